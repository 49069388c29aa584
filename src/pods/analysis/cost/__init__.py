"""The cost of steps, runs and sweeps: a model fitted to finished runs, predictions, a scheduler.

`plan.py` answers `pods plan STUDY` from finished runs, `price.py` answers `pods plan PRESET
--hardware` before there are any. Both take a `PlanRequest`, simulate jobs with `schedule.py` and
print through `text.py`. Accuracy stays outside: `breakeven.py` takes the number of steps that an
arm needs from `analysis/comparison`. Start reading in `model.py`: seconds per step = a + b n + c m.
"""
