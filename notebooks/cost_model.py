# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The cost of a step: seconds = a + b·n + c·m
#
# This notebook fits the phase timers of finished runs. Set `STUDY` (or the environment variable
# `PODS_STUDY`) to a study's folder; `python src/run.py experiment=cost_grid` measures nine (n, m).

# %%
import os
from pathlib import Path

import pandas as pd

from pods.analysis import load
from pods_lab.price.costs import authors_costs, costs

STUDY = Path(os.environ.get("PODS_STUDY", "../runs/quickstart"))
pd.set_option("display.max_columns", None, "display.float_format", "{:.4g}".format)
study = load(STUDY, allow=True)
report = costs(study, nm=((16, 16), (64, 16), (64, 64), (32, 8)))
print(*report.lines, sep="\n")

# %% [markdown]
# The tables behind this text are the fits, their residuals and the predictions.

# %%
report.tables["fit"]

# %%
report.tables["residuals"]

# %%
report.tables["predictions"]

# %% [markdown]
# This is the same analysis of the step times that the PODS authors measured on one L40S.

# %%
print(*authors_costs().lines, sep="\n")
