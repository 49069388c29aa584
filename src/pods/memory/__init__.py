"""Whether a run fits in memory, before anything loads (not even torch): start in `fit.py`."""
