"""Compare the choices of prompts from further start policies: starts.csv and starts.verdicts.csv.

    python -m experiments.league.starts STUDY [STUDY ...]

Reads these studies in runs. starts.csv has what the commands of README.md compare, at equal steps
and at two cards' prices, and what a step draws; starts.verdicts.csv what the plan settles.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pods.analysis import load
from pods.analysis.compare.planned import plan_table
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.study import Study
from pods.analysis.numbers.planned import judgements_of
from pods.config.price_card import read_card
from pods_lab.price.pays import leads

HERE = Path(__file__).parent
CHOICES = ("greso", "dapo", "mopps", "arcus", "cero")
ALONE = ("grpo 16→16", *(f"{name} 16→16" for name in CHOICES))
WITH_PODS = ("pods 64→16", *(f"pods_{name} 64→16" for name in CHOICES))
CLAIMED = ("arcus 16→16", "dapo 16→16", "mopps 16→16")  # ARCUS over both
FAMILIES = [
    (ALONE, "grpo 16→16"),
    (WITH_PODS, "pods 64→16"),
    (CLAIMED, "dapo 16→16"),
    (CLAIMED, "mopps 16→16"),
]
CARDS = ("l40s", "hosted")


def views(study: Study, arms: tuple[str, ...]) -> Iterator[tuple[str, Study]]:
    """Yield the arms of a study at equal steps, and at each card's prices."""
    yield "steps", apply_filter(study, StudyFilter(arms=arms, x="steps"))
    for card in CARDS:
        yield card, apply_filter(study, StudyFilter(arms=arms, prices=read_card(card)))


def compared(study: Study) -> Iterator[dict[str, object]]:
    """Yield a row per contrast, with its lead at equal steps and at each card's prices."""
    drawn = study.steps.groupby("series")[["generated_rollouts", "zero_variance_fraction"]].mean()
    first = study.evaluations[study.evaluations.step == 0].groupby("series").accuracy.mean()
    for arms, baseline in FAMILIES:
        rows: dict[str, dict[str, object]] = {}
        for name, seen in views(study, arms):
            for lead in leads(seen, baseline, {}):
                series = str(lead["series"])
                row = rows.setdefault(series, {"series": series, "over": baseline})
                row["seeds"] = lead["runs"]
                for number in ("estimate", "low", "high"):
                    row[f"{name}_{number}"] = lead[number]
        for series, row in rows.items():
            if arms != CLAIMED or series.startswith("arcus"):
                yield row | {"right": first[series]} | drawn.loc[series].to_dict()


def main(names: list[str]) -> None:
    """Write both tables."""
    studies = {name: load(Path("runs") / name) for name in names}
    tables = {
        "starts.csv": {name: pd.DataFrame(compared(study)) for name, study in studies.items()},
        "starts.verdicts.csv": {
            name: plan_table(study, judgements_of(study)) for name, study in studies.items()
        },
    }
    for file, of_studies in tables.items():
        table = pd.concat(of_studies, names=["study"]).reset_index("study")
        table.to_csv(HERE / file, index=False, float_format="%.5g")
        print(table.to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
