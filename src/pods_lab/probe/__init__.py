"""How well rule, n and m estimate the policy gradient at a checkpoint.

`pool.py` draws rollouts, `sketches.py` makes their gradients, `moments.py` resamples estimators.
"""
