"""How well rule, n and m estimate the policy gradient at a checkpoint.

`pool.py` generates rollouts and `sketches.py` makes the gradient of each, `moments.py` resamples
every estimator from their inner products, `figure.py` draws, `verb.py` is the command.
"""
