"""The `pods` command: what each verb does, one module per verb or family of verbs.

Training is in `src/run.py`, which `pods run` and `pods sweep` start, and what a verb computes lives
in `analysis` and `runs`. Start reading in `main.py`; `parser.py` declares the verbs.
"""
