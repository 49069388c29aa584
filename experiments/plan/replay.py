"""Judge quickstart's plan seed by seed on sixteen seeds of all arms, as `plan.stop=decided` does.

    python experiments/plan/replay.py

Reads runs.csv, and writes replayed.csv: at which seed each contrast was decided, and what the t
test with Holm's correction says after all sixteen.
"""

from pathlib import Path

import pandas as pd

from pods.analysis.numbers.sequential import interval_at_every_look, state_of
from pods.analysis.numbers.statistics import ALPHA, holm, t_test
from pods.config.schema import CONF
from pods.runs.plan import plan_of_file

HERE = Path(__file__).parent


def main() -> None:
    """Replay the plan, and write the table."""
    plan = plan_of_file(CONF / "plan" / "quickstart.yaml")
    runs = pd.read_csv(HERE / "runs.csv")
    outcomes = runs.pivot(index="series", columns="seed", values=plan.plan.outcome)
    alpha = ALPHA / len(plan.questions)
    rows = []
    for asked in plan.questions:
        arm = outcomes.loc[asked.arm.replace("->", "→")]
        baseline = outcomes.loc[asked.baseline.replace("->", "→")]
        values = (arm - baseline).to_numpy()
        for seeds in range(1, len(values) + 1):
            low, high = interval_at_every_look(values[:seeds], alpha)
            state = state_of(low, high, plan.plan.margin / 100)
            if state != "open":
                break
        test = t_test(values)
        rows.append(
            {
                "arm": asked.arm,
                "over": asked.baseline,
                "state": state,
                "seeds": seeds,
                "estimate": values[:seeds].mean(),
                "low": low,
                "high": high,
                "all_seeds": len(values),
                "all_estimate": test.estimate,
                "all_low": test.low,
                "all_high": test.high,
                "p": test.p,
            }
        )
    table = pd.DataFrame(rows)
    table["all_p_holm"] = holm(table.pop("p").to_numpy())
    table.to_csv(HERE / "replayed.csv", index=False, float_format="%.6g")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
