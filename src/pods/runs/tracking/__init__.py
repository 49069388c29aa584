"""The copies of a run for W&B, TensorBoard or Trackio, made from its files; see `tracker.py`."""
