"""The policy: load it, score tokens under it, update it."""
