"""How much more a rule gains under graded rewards than under 0 and 1, paired over seeds.

python -m experiments.graded.between    writes between.csv, from the runs.csv of this folder

That is the mean of each difference with its 95 % t interval, for both tasks.
"""

from pathlib import Path

import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import report

HERE = Path(__file__).parent
ARMS = ["pods", "balanced", "random", "grpo"]

if __name__ == "__main__":
    rows = []
    for task, folder in (("chainsum", HERE), ("countdown", HERE / "countdown")):
        for outcome in ("mean_accuracy", "final_accuracy"):
            graded, binary = (
                pd.read_csv(folder / file).pivot(index="seed", columns="arm", values=outcome)
                for file in ("runs.csv", "binary/runs.csv")
            )
            gained = graded[ARMS] - binary[ARMS]
            differences = {arm: gained[arm] for arm in ARMS}
            differences |= {f"pods - {arm}": gained["pods"] - gained[arm] for arm in ARMS[1:]}
            for name, of in differences.items():
                row = {"task": task, "outcome": outcome, "contrast": name}
                rows.append(row | contrast(of.to_numpy(float)))
    report(pd.DataFrame(rows), HERE / "between.csv")
