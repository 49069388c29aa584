"""What a run leaves behind, and how: identity, files, checkpoints, the clock, the W&B mirror."""
