"""Draw the accuracy figure of a study again from the evaluations that are committed beside it.

Usage: python experiments/figures.py FOLDER [FOLDER ...]

Reads FOLDER/accuracy_vs_time.runs.csv (or accuracy_vs_steps.runs.csv), a row per evaluation of a
run, and writes the PNG of that name, as `pods plot` draws it.
"""

import sys
from pathlib import Path

import matplotlib.style
import pandas as pd

from pods.analysis.figures import specs
from pods.analysis.loading.study import Study
from pods.analysis.numbers.curves import curves
from pods.analysis.numbers.tables import Tables

KEYS_BEFORE_THE_SEED = ("series", "seed", "run")


def study_of(evaluations: pd.DataFrame, name: str, x: str) -> Study:
    """Return a study that has the evaluations of complete runs and nothing else."""
    runs = evaluations.drop_duplicates("run")[list(KEYS_BEFORE_THE_SEED)].assign(complete=True)
    return Study(
        name=name,
        runs=runs,
        evaluations=evaluations,
        steps=pd.DataFrame(columns=[*KEYS_BEFORE_THE_SEED, "step"]),
        machines=[],
        budget="",
        missing=[],
        inconsistencies=[],
        order=list(evaluations.series.unique()),
        x=x,
    )


def draw(folder: Path) -> Path:
    """Draw the figure of one folder and return its path."""
    [source] = folder.glob("accuracy_vs_*.runs.csv")
    x = "steps" if source.name.startswith("accuracy_vs_steps") else "train_seconds"
    study = study_of(pd.read_csv(source), folder.name, x)
    nothing = pd.DataFrame()
    figure_spec = specs.accuracy(study, Tables(curves=curves(study), runs=nothing, summary=nothing))

    path = source.with_name(source.name.replace(".runs.csv", ".png"))
    with matplotlib.style.context("pods.analysis.figures.screen"):
        figure_spec.draw().savefig(path)
    return path


if __name__ == "__main__":
    matplotlib.use("agg")
    for name in sys.argv[1:]:
        print(draw(Path(name)))
