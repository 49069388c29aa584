"""Numbers in, matplotlib figures out.

`specs.py` decides which figures a study supports and writes them, `drawing.py` draws on axes, and
`style.py` has what they share. `screen.mplstyle` and `paper.mplstyle` are matplotlib styles:
`matplotlib.style.use("pods.analysis.figures.paper")`.
"""
