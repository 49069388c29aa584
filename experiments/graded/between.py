"""How much more a rule gains under graded rewards than under 0 and 1, paired over seeds.

python -m experiments.graded.between    writes between.csv, from the runs.csv of this folder
"""

from pathlib import Path

import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import report

HERE = Path(__file__).parent
OTHERS = ["balanced", "random", "grpo"]

if __name__ == "__main__":
    rows = []
    for task, folder in (("chainsum", HERE), ("countdown", HERE / "countdown")):
        files = [pd.read_csv(folder / file) for file in ("runs.csv", "binary/runs.csv")]
        for outcome in ("mean_accuracy", "final_accuracy"):
            graded, binary = (of.pivot(index="seed", columns="arm", values=outcome) for of in files)
            gained = (graded - binary)[["pods", *OTHERS]]
            gained = gained.assign(**{f"pods - {arm}": gained.pods - gained[arm] for arm in OTHERS})
            for name, of in gained.items():
                row = {"task": task, "outcome": outcome, "contrast": name}
                rows.append(row | contrast(of.to_numpy(float)))
    report(pd.DataFrame(rows), HERE / "between.csv")
