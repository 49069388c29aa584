"""The folder of one run: its config, log, checkpoints, evaluations, identity, status and lock.

Only this package knows the names of the files; it loads no heavy library. What a run writes into
them is decided in `training`, and what is computed from many runs lives in `analysis`. Start with
README.md, then read `store.py`; `tracking/` copies a run to W&B.
"""
