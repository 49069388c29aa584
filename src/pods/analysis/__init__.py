"""From run folders to numbers: load a study, check it, average, compare, draw, explain the cost.

Nothing here trains, evaluates or imports torch, and nothing writes into a run's folder. README.md
says which numbers are made and how. Start reading in `study.py`, which loads a study and checks
that it is complete and consistent; then `outcomes.py` and `comparison/`, or `curves.py` and
`figures.py`. `cost/` models the time of a step and plans sweeps, and
`published/` imports the PODS authors' logs.
"""
