"""The W&B copy of a run, made from the files of the run folder, which are the source of truth.

`rows.py` reads what W&B is to have, `exporter.py` sends it: now and then during a run
(`wandb_tracker.py`), and afterwards by `pods sync` (`sync.py`).
"""
