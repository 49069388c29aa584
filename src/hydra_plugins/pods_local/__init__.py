"""Hydra's view of the local launcher."""
