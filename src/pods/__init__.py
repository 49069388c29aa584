"""Compare which rollouts a policy is trained on, at the same wall-clock budget."""
