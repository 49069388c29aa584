"""Exact comparison of answers in LaTeX, without a computer algebra system.

`tokens.py` reads text as tokens, `parser.py` (with `atoms.py` and `cursor.py`) makes a tree of them
(`tree.py`), `relations.py` brings two answers into a common form, and `goals.py` compares them by
rational values (`values.py`), units and structure; pairs that are left are printed (`printer.py`)
for a worker to prove. Start reading in `exact.py`, which calls them all.
"""
