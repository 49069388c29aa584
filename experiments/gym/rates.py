"""Count how often each model is right before any training, task by task: rates.csv.

    python -m experiments.gym.rates STUDY     reads runs/STUDY, evaluated and not trained

A question is mixed if some of its answers are right and some are not: only such a question teaches
GRPO anything. An answer is cut if it reached the limit of tokens.
"""

import sys
from pathlib import Path

import pandas as pd

from pods.runs.evaluations import read_evaluation
from pods.runs.store import RunStore, run_folders

OUT = Path(__file__).with_name("rates.csv")


def row(store: RunStore) -> dict[str, object]:
    """Return the rates of one run's first evaluation, in percent."""
    config = store.config()
    records = read_evaluation(store, config, 0)
    answers = pd.DataFrame(
        {"question": r.question, "right": r.correct, "cut": not r.finished} for r in records
    )
    of_question = answers.groupby("question")["right"].mean()
    return {
        "task": config.task.gym,
        "model": config.model.name,
        "questions": len(of_question),
        "answers_each": config.evaluation.repeats,
        "right": 100 * answers["right"].mean(),
        "mixed": 100 * ((of_question > 0) & (of_question < 1)).mean(),
        "cut": 100 * answers["cut"].mean(),
    }


if __name__ == "__main__":
    study = Path("runs") / sys.argv[1]
    table = pd.DataFrame(row(RunStore(folder)) for folder in run_folders(study))
    table = table.sort_values(["model", "task"])
    table.to_csv(OUT, index=False, float_format="%.4g")
    print(table.to_string(index=False))
