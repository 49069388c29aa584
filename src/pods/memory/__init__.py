"""Predict, before anything loads, whether a run will fit in memory. Nothing here loads torch.

Start reading in `plan.py`, which adds up the parts; `fit.py` compares the plan with the machine
and suggests changes. The check with real tensors at the start of a run is `training/preflight.py`.
"""
