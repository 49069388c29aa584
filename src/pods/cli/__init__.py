"""The `pods` command: one module per verb, with its options and what it prints.

Training is in `src/run.py`, which `pods run` becomes, and what a verb computes lives in `analysis`,
`runs` and `launch`. The verbs of `pods_lab` are loaded by name. Start reading in `main.py`.
"""
