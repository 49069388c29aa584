"""Models that ship with the package: `tiny`, whose recipe is `experiments/quickstart/recipe.py`.

Fetched models are in the user's cache, and loading any model is `policy/policy.py`.
"""
