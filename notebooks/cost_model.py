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
# # What a step costs: seconds = a + b·n + c·m
#
# Fitted to the phase timers of finished runs. Set `STUDY` (or the environment variable
# `PODS_STUDY`) to a study's folder; `python src/run.py experiment=cost_grid` measures nine (n, m).

# %%
import os
from pathlib import Path

from pods.analysis.cost.plan import Ask, plan, plan_published
from pods.analysis.load import load
from pods.runs.store import run_folders

STUDY = Path(os.environ.get("PODS_STUDY", "../runs/quickstart"))
study = load(STUDY, run_folders(STUDY), allow_missing=True, allow_mixed=True)
made = plan(study, Ask(cells=((16, 16), (64, 16), (64, 64), (32, 8))))
print(*made.lines, sep="\n")

# %% [markdown]
# The tables behind these words: the fits, their residuals, what is predicted.

# %%
made.tables["fit"]

# %%
made.tables["residuals"]

# %%
made.tables["predictions"]

# %% [markdown]
# The same from the step times that the PODS authors measured on one L40S.

# %%
print(*plan_published(Ask()).lines, sep="\n")
