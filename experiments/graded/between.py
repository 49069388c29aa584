"""How much more a rule gains under graded rewards than under 0 and 1, paired over seeds."""

from itertools import product
from pathlib import Path

import pandas as pd
from scipy import stats

HERE = Path(__file__).parent
ARMS = ["pods", "balanced", "random", "grpo"]


def main() -> None:
    """Print the mean of each difference in points, with its 95 % t interval, for both tasks."""
    for folder, outcome in product((HERE, HERE / "countdown"), ("mean_accuracy", "final_accuracy")):
        print(f"\n{outcome} of {'countdown' if folder != HERE else 'chainsum'}")
        graded, binary = (
            100 * pd.read_csv(folder / file).pivot(index="seed", columns="arm", values=outcome)
            for file in ("runs.csv", "binary/runs.csv")
        )
        gained = graded[ARMS] - binary[ARMS]
        contrasts = {f"{arm}: graded - binary": gained[arm] for arm in ARMS}
        for arm in ARMS[1:]:
            contrasts[f"pods - {arm}: graded - binary"] = gained["pods"] - gained[arm]
        for name, points in contrasts.items():
            low, high = stats.t.interval(0.95, len(points) - 1, points.mean(), points.sem())
            print(f"{name:33} {points.mean():+.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
