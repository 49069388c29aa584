"""Which arm is better: contrasts with intervals and tests, speed-ups to targets, a ranking.

`compare.py` makes the tables, with `speedup.py`. `text.py` says what they find, and `tables.py`
writes and shows all of it.
"""
