"""The folder of one run: its config, log, checkpoints, evaluations, identity, status and lock.

`training` decides what a run writes, `analysis` reads it. Start with README.md and `store.py`.
"""
