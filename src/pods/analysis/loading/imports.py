"""Studies that consist of other people's accuracy records, in the tables that our runs give."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pods.analysis.loading.study import KEY, Study
from pods.runs.files import sha256

TABLES = ("runs.csv", "evaluations.csv")
META = "import.json"


class Imported(NamedTuple):
    """Records of runs that share a training set, a test set and a time axis."""

    runs: pd.DataFrame
    """One row per run: run, series, arm, rule, n, m, groups, prompts, seed, machine, complete."""
    evaluations: pd.DataFrame
    """One row per (run, checkpoint): series, seed, run, step, train_seconds, accuracy, lenient
    (only where their grader is known to be lenient), format, both, length, repeats, questions, and
    shared (true where all runs share one measurement)."""
    about: dict[str, Any]
    """The content of `import.json`: machines, budget (as text), note (what a reader of these
    numbers has to know), missing (runs that are left out, with the reason), until (the end of the
    records' own time axis), and where the records come from."""

    def study(self, name: str) -> Study:
        """Make a study of the records; its window ends where their figures do."""
        names = zip(self.runs.series, self.runs.arm, self.runs.n, self.runs.m, strict=True)
        settings = [  # what a name says besides arm, n and m, before them and after
            series.replace(f"{arm} {n}→{m}", "").strip(" ,") for series, arm, n, m in names
        ]
        return Study(
            name=name,
            runs=self.runs.assign(settings=settings),
            evaluations=self.evaluations,
            steps=pd.DataFrame(columns=[*KEY, "step"]),
            machines=list(self.about["machines"]),
            budget=str(self.about["budget"]),
            missing=list(self.about["missing"]),
            inconsistencies=[],
            order=[*self.evaluations.series.unique()],
            seeded=False,
            note=str(self.about["note"]),
            until=float(self.about["until"]),
        )


def read_import(study: Path) -> Imported:
    """Read what `pods_lab.published.tables.write_import` wrote; floats are read back exactly.

    `ValueError`: a file is missing or damaged; the message names it.
    """
    folder = study / "imported"
    if not folder.is_dir():
        raise ValueError(f"{study}: no such study: it has neither runs nor imported logs")
    try:
        about = json.loads((folder / META).read_bytes())
        whole = {name: sha256(folder / name) for name in TABLES} == about["tables"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder}: must be imported again, {META}: {error}") from error
    if not whole:
        raise ValueError(f"{folder}: must be imported again, {' or '.join(TABLES)} is damaged")
    runs, evaluations = (pd.read_csv(folder / t, float_precision="round_trip") for t in TABLES)
    return Imported(runs, evaluations, about)
