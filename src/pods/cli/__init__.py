"""The `pods` command: one module per verb, with its options and what it prints.

Training is in `src/run.py`, which `pods run` becomes, and what a verb computes lives in `analysis`,
`runs` and `launch`. Other packages, such as `pods_lab`, add verbs by entry points of the group
`pods.verbs`. Start reading in `main.py`.
"""
