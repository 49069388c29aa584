"""The copies of a run for W&B and TensorBoard, made from the run's files, which are the truth.

`rows.py` reads what a copy is to have and `names.py` names it. `exporter.py` sends it to W&B and
`tensorboard.py` writes it for TensorBoard: now and then during a run (`tracker.py`), and afterwards
by `pods sync` (`sync.py`).
"""
