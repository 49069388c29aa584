"""Problems, prompts and rewards.

`datasets/` reads questions and golds, `prompts.py` makes prompts of them, and `rewards.py` grades
completions: `answers.py` finds the answer, and the package `mathgrade` compares it with the gold.
`lenient.py` is the PODS authors' grader. Completions come from `pods.engines`. Start in `load.py`.
"""
