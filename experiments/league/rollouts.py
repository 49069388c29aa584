"""Count what each arm drew and trained on, per step: rollouts.csv.

    python -m experiments.league.rollouts

Reads runs/league.
"""

from pathlib import Path

from pods.analysis import load

OUT = Path(__file__).with_name("rollouts.csv")
COUNTED = ("generated_rollouts", "trained_rollouts", "zero_variance_fraction")


if __name__ == "__main__":
    study = load("runs/league")
    table = study.steps.groupby("series")[list(COUNTED)].mean()
    table.to_csv(OUT, float_format="%.4g")
    print(table.to_string())
