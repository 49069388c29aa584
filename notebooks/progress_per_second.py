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
# # Which n and m, at your prices?
#
# A step that generates n rollouts of each prompt and trains on m of them takes
# a + B (b n + c m) seconds. What it gains is what
# the law of this project expects
# (`pods_lab.advise.progress`): move the success rate p and your prices, and see which pair
# gains most per second. The law is measured to be wrong in places: experiments/law says where.

# %%
import numpy as np
import pandas as pd
from IPython.display import display
from ipywidgets import interact
from matplotlib import pyplot as plt

from pods_lab.advise.progress import MEASURED, expected_progress

WHOLE = 1e6  # rollouts that p is known from
SIZES = [2, 4, 8, 16, 32, 64, 128]


def gains(p=0.5, prompts=2, fixed=0.03, generated=0.0003, kept=0.0005):
    """Return the expected progress per second of n (rows) and m (columns), over that of 16→16."""
    pairs = [(n, m) for n in SIZES for m in SIZES if m <= n]
    posteriors = np.array([[p * WHOLE, (1 - p) * WHOLE]])
    progress = expected_progress(pairs, posteriors, MEASURED, prompts)
    seconds = [fixed + prompts * (generated * n + kept * m) for n, m in pairs]
    table = pd.Series(progress / seconds, pd.MultiIndex.from_tuples(pairs, names=["n", "m"]))
    return (table / table[16, 16]).unstack()


# %% [markdown]
# The sliders' first values are those of two prompts of `chainsum` on one CPU core, in seconds.


# %%
def draw(**settings):
    """Draw a curve per m."""
    axes = gains(**settings).plot(logx=True, marker="o", ylabel="progress per second, 16→16 = 1")
    axes.set_xticks(SIZES, SIZES)
    axes.set_ylim(0)
    display(axes.figure)
    plt.close(axes.figure)


sliders = interact(
    draw,
    p=(0.02, 0.98, 0.02),
    prompts=(1, 32),
    fixed=(0.0, 10.0, 0.01),
    generated=(0.0001, 0.5, 0.0001),
    kept=(0.0001, 0.5, 0.0001),
)

# %% [markdown]
# The same as a table.

# %%
gains()
