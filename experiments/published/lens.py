"""Look at the authors' GSM8K logs through the prices of a step: map.csv and map.png.

Usage: python experiments/published/lens.py [FOLDER]

FOLDER is the authors' release (default: where `pods reproduce` keeps it). Their logs say after how
many steps a checkpoint was made, and by n and m what each of these steps generated and trained on.
So the nominal time is not needed. Prints the sentences that `pods price STUDY --map` prints.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from pods.analysis.figures.style import save, screen
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.study import KEY, Study
from pods.analysis.writing import write_csv
from pods.config.price_card import read_card
from pods.runs.paths import pods_home
from pods_lab.price.figure import draw
from pods_lab.price.pays import lead_table
from pods_lab.price.pays_text import card_sentences, sentences
from pods_lab.published.release import read_release

HERE = Path(__file__).parent
ARMS = ("grpo", "random", "pods 32->16", "pods 64->16", "pods 128->16", "pods 64->8")
CARDS = ("l40s", "h200")  # of steps with one prompt, as theirs


def with_steps(study: Study) -> Study:
    """Give a study of the logs a row per step, with what its n and m say that it did."""
    last = study.evaluations.groupby("run").step.max()
    tables = []
    for run in study.runs.itertuples():
        steps = pd.DataFrame({"step": range(1, last[run.run] + 1)})
        for name in KEY:
            steps[name] = getattr(run, name)
        steps["generated_rollouts"] = run.n * run.prompts
        steps["trained_rollouts"] = run.m * run.prompts
        tables.append(steps)
    return replace(study, steps=pd.concat(tables, ignore_index=True))


def main() -> None:
    """Write the table and the figure, and print the sentences."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else pods_home() / "published"
    logs = read_release(folder, "gsm8k").study("gsm8k")
    study = with_steps(apply_filter(logs, StudyFilter(arms=ARMS, baseline="grpo")))
    table, left_out = lead_table(study, [read_card(name) for name in CARDS])

    write_csv(HERE / "map.csv", table, study)
    with screen():
        save(draw(study, table), [HERE / "map.png"])
    print("\n".join([*sentences(table), *card_sentences(table, study), *left_out]))


if __name__ == "__main__":
    main()
