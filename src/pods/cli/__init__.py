"""The `pods` command: what each verb does, one module per verb or family of verbs.

Training is started by `src/run.py`, not from here, and what a verb computes lives in `analysis` and
`runs`. Start reading in `main.py`, which parses the command line.
"""
