"""Hydra's view of where the jobs of a sweep run."""
