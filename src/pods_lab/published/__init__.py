"""`pods reproduce`: the figures of the PODS paper from the logs that its authors released.

`fetch.py` downloads the release, `release.py` reads it into the tables of our own runs: JSON files
of runs on one GPU (`one_gpu.py`) and W&B exports of runs on eight (`eight_gpus.py`).
`paper_figures.py` says which runs a figure shows and holds the SHA-256 of what they say, so that
nothing but the release passes; `reproduce.py` computes the paper's numbers.
"""
