"""What the runs of SmolLM2 say if the start policy is the unit, and at equal numbers of steps.

    python -m experiments.llm.policies

Reads the committed runs.csv and accuracy_vs_time.runs.csv of this folder, of second/ and of
starts/. Writes policies.csv: each contrast over six start policies, of which two have six seeds,
whose mean is one value, and four have one run. Writes equal_steps.csv: by how much pods 64→16 is
ahead of both controls after as many steps as the slowest run of a start policy made.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import report

HERE = Path(__file__).parent
PODS = "pods 64→16"
CONTROLS = ("random 64→16", "grpo 16→16")
OUTCOMES = ("mean_accuracy", "final_accuracy")


def by_policy(outcome: str) -> pd.DataFrame:
    """Return an outcome by start policy (rows) and arm: the mean over the seeds of a policy."""
    tables = []
    for name, folder in (("first", HERE), ("second", HERE / "second")):
        runs = pd.read_csv(folder / "runs.csv")
        tables.append(runs.assign(policy=name))
    others = pd.read_csv(HERE / "starts" / "runs.csv")
    tables.append(others.assign(policy=others.start))

    runs = pd.concat(tables)
    return runs.pivot_table(outcome, "policy", "series")


def over_policies() -> pd.DataFrame:
    """Return a row per outcome and control, paired over start policies."""
    rows = []
    for outcome in OUTCOMES:
        values = by_policy(outcome)
        for control in CONTROLS:
            differences = (values[PODS] - values[control]).dropna().to_numpy(float)
            row = {"outcome": outcome, "arm": PODS, "over": control}
            rows.append(row | contrast(differences))
    return pd.DataFrame(rows).rename(columns={"seeds": "policies"})


def at_equal_steps(start: str, folder: Path) -> list[dict[str, object]]:
    """Return a row per control of a start policy, paired over seeds."""
    evaluations = pd.read_csv(folder / "accuracy_vs_time.runs.csv")
    evaluations = evaluations[evaluations.series.isin([PODS, *CONTROLS])]
    steps = int(evaluations.groupby("run").step.max().min())

    values = {}
    for (arm, seed), run in evaluations.sort_values("step").groupby(["series", "seed"]):
        values[arm, seed] = np.interp(steps, run.step, run.accuracy)
    by_seed = pd.Series(values).unstack(0)

    rows = []
    for control in CONTROLS:
        differences = (by_seed[PODS] - by_seed[control]).dropna().to_numpy(float)
        row = {"start": start, "steps": steps, "arm": PODS, "over": control}
        rows.append(row | contrast(differences))
    differences = (by_seed[CONTROLS[0]] - by_seed[CONTROLS[1]]).dropna().to_numpy(float)
    row = {"start": start, "steps": steps, "arm": CONTROLS[0], "over": CONTROLS[1]}
    rows.append(row | contrast(differences))
    return rows


if __name__ == "__main__":
    report(over_policies(), HERE / "policies.csv")
    rows = at_equal_steps("first", HERE) + at_equal_steps("second", HERE / "second")
    rows += at_equal_steps("Qwen", HERE / "qwen")
    report(pd.DataFrame(rows), HERE / "equal_steps.csv")
