"""One run: the training loop, its evaluation, and what puts them together.

`loop.py` has the parts of a step and `schedule.py` their order; neither writes a file. `trainer.py`
consumes the steps and writes the run folder; `build.py` connects the parts. Start reading in
`schedule.py`, then `loop.py`. Many runs live in `launch`.
"""
