"""`pods plan`: a cost model fitted to finished runs, its predictions, and what they decide.

`model.py` (read it first) fits, `plan.py` predicts, `breakeven.py` weighs arms, `text.py` writes.
"""
