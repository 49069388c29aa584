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
# # Accuracy against training time
#
# The figure of a study, from its run folders or from the PODS authors' released logs. Set `STUDY`
# (or the environment variable `PODS_STUDY`) to the study's folder: `runs/quickstart` after
# `python src/run.py experiment=quickstart`, `runs/published` after `pods import-published FOLDER`.

# %%
# %matplotlib inline
import os
from pathlib import Path

from IPython.display import display

from pods.analysis.comparison.compare import compare
from pods.analysis.comparison.words import paragraphs
from pods.analysis.figures import drawings
from pods.analysis.load import load
from pods.analysis.tables import tables
from pods.runs.store import run_folders

STUDY = Path(os.environ.get("PODS_STUDY", "../runs/quickstart"))

# %% [markdown]
# `load` checks every (arm, seed, checkpoint, repeat, question) and raises with a line for each
# hole; `allow_missing=True` goes on without what is missing.

# %%
study = load(STUDY, run_folders(STUDY))
made = tables(study)
display(made.summary)

# %%
figures = {drawing.name: drawing for drawing in drawings(study, made)}
display(figures["accuracy_vs_time"].draw())

# %% [markdown]
# What the difference between two arms is, and how sure that is. Name others, or none for all pairs.

# %%
series = list(study.runs.series.unique())
if len(series) > 1:
    comparison = compare(study, series[:2])
    print(paragraphs(comparison))
    display(comparison.contrasts)

# %% [markdown]
# Every other figure that the study has the runs for.

# %%
for name, drawing in figures.items():
    if name != "accuracy_vs_time":
        display(drawing.draw())
