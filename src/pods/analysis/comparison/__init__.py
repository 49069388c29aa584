"""Which arm is better: contrasts with intervals and tests, speed-ups to targets, verdicts.

Start reading in `compare.py`, which makes the tables. `contrasts.py` chooses the runs that are set
against each other; `verdicts.py` and `formatting.py` present the result. `ranking.py` sorts many
arms from the best.
"""
