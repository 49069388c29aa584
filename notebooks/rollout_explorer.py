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
# # Rollouts: completions, their rewards, and which of them were kept
#
# Runs write the rollouts of step 1 and of every `rollouts_every_steps`-th step. Set `STUDY` (or
# the environment variable `PODS_STUDY`) to a study's folder.

# %%
import os
from pathlib import Path

import pandas as pd

from pods.analysis.loading.rollouts import examples, read_rollouts, rollout_steps
from pods.runs.store import run_folders

STUDY = Path(os.environ.get("PODS_STUDY", "../runs/quickstart"))
pd.set_option("display.max_columns", None, "display.float_format", "{:.4g}".format)
RUNS = run_folders(STUDY)
RUN = next((run for run in RUNS if "max_variance" in str(run)), RUNS[0])  # or any other
RUN, rollout_steps(RUN)

# %% [markdown]
# One row per prompt of the step: the number of rollouts, the share of correct ones, and the effect
# of selection on the spread of their rewards. Without spread there is no gradient.


# %%
def groups(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Make one row per problem: its rollouts, and the effect of selection (std has ddof 0)."""
    of_problem = rollouts.groupby("problem", sort=False)
    table = of_problem.agg(question=("question", "first"), n=("kept", "size"), m=("kept", "sum"))
    kept = rollouts[rollouts.kept].groupby("problem", sort=False)
    for prefix, some in (("", of_problem), ("kept_", kept)):
        table[f"{prefix}correct"] = some.correct.mean()
        table[f"{prefix}reward"] = some.reward.mean()
        table[f"{prefix}reward_std"] = some.reward.std(ddof=0)
    return table.reset_index()


step = rollout_steps(RUN)[-1]
rollouts = read_rollouts(RUN, step)
groups(rollouts)

# %% [markdown]
# The number of rollouts of the step by reward, and how many of them were kept.

# %%
rollouts.groupby(["problem", "reward"]).kept.agg(["size", "sum"])

# %% [markdown]
# Completions: the kept ones with the largest and smallest advantage, and some that were not kept.

# %%
for row in examples(rollouts).itertuples():
    print(f"--- kept={row.kept} reward={row.reward} advantage={row.advantage}")
    print(row.question, row.completion, sep="\n")

# %% [markdown]
# The same over the course of the run, averaged over the prompts of each step.

# %%
columns = ["correct", "reward_std", "kept_correct", "kept_reward_std"]
pd.DataFrame(
    {step: groups(read_rollouts(RUN, step))[columns].mean() for step in rollout_steps(RUN)}
).T
