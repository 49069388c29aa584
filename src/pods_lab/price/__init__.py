"""What a step costs by n and m, price cards, and where an arm pays.

`model.py` fits the seconds of a step, `settings.py` says which runs share a fit, `costs.py` makes
the tables and `text.py` the lines; `card.py` makes a price card of a fit, `pays.py` computes the
lead of each arm at many prices, and `figure.py` draws it.
"""
