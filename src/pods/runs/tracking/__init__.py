"""The copies of a run for W&B, TensorBoard or Trackio, made from the run's files.

The files are the truth. `rows.py` reads from them what a copy is to have, and `sinks.py` hands it
to each tracker's library. `tracker.py` does so during a run, which it can never stop, and
afterwards for `pods sync`.
"""
