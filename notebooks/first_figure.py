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
# # The first figure
#
# From nothing to accuracy against training time in two minutes of two CPU cores. On a machine that
# you rent by the notebook, `%pip install "pods-rl[train]"` first, or the wheel of this repository.
#
# Set `STUDY` (or the environment variable `PODS_STUDY`) to the folder of runs that are there:
# `../runs/quickstart` after `python src/run.py experiment=quickstart`, or
# `../runs/published-gsm8k` after `pods reproduce gsm8k FOLDER`. Otherwise the next cell makes four
# runs of 20 s.

# %%
# %matplotlib inline
import os
import subprocess
from pathlib import Path

import matplotlib
import pandas as pd
from IPython.display import display

import pods
from pods.analysis.compare.tables import format_comparison
from pods.analysis.figures.specs import figure_specs
from pods.analysis.numbers.tables import tables

STUDY = Path(os.environ.get("PODS_STUDY", "runs/first_figure"))
matplotlib.rcParams["figure.dpi"] = 72
pd.set_option("display.max_columns", None, "display.float_format", "{:.4g}".format)

# %%
if not STUDY.is_dir():
    sweep = ["arm=pods,grpo", "seed=range(2)", "budget.train_seconds=20", "study=first_figure"]
    subprocess.run(["pods", "run", "-m", *sweep], check=True, stdout=subprocess.DEVNULL)

# %% [markdown]
# `load` checks every (arm, seed, checkpoint, repeat, question) and raises an error with a line for
# each problem; with `allow=True` it leaves out what is missing.

# %%
study = pods.load(STUDY)
study_tables = tables(study)
display(study_tables.summary)

# %%
figures = {spec.name: spec for spec in figure_specs(study, study_tables)}
display(figures["accuracy_vs_time"].draw())

# %% [markdown]
# The arms compared, each with the GRPO arm. To compare others, name them:
# `pods.compare(study, ["pods", "random"])` compares the first with each of the others.

# %%
if study.runs.series.nunique() > 1:
    comparison = pods.compare(study)
    print(format_comparison(comparison))
    display(comparison.contrasts)

# %% [markdown]
# Every other figure for which the study has the runs.

# %%
for name, spec in figures.items():
    if name != "accuracy_vs_time":
        display(spec.draw())
