"""`pods plan`: a cost model fitted to finished runs, its predictions, and what they decide.

Start reading in `model.py`: seconds per step = a + b n + c m. `plan.py` splits a study into what
shares a fit and predicts, `breakeven.py` weighs the cost of a step against the number of steps that
an arm needs, which it takes from `pods.analysis.compare`, and `text.py` writes the answer.
"""
