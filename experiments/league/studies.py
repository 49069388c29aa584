"""Compare the choices of prompts in further studies: OUT.csv and OUT.verdicts.csv.

    python -m experiments.league.studies OUT STUDY [STUDY ...]

Reads these studies in runs; OUT is a name, and both files are written beside this one. OUT.csv has
the lead of each contrast at equal steps and at two cards' prices, and the means of `STEP_MEANS`
over all steps; OUT.verdicts.csv what each contrast of the plan has come to.
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
STEP_MEANS = ["generated_rollouts", "zero_variance_fraction", "correct"]


def views(study: Study, arms: tuple[str, ...]) -> Iterator[tuple[str, Study]]:
    """Yield the arms of a study at equal steps, and at each card's prices."""
    yield "steps", apply_filter(study, StudyFilter(arms=arms, x="steps"))
    for card in CARDS:
        yield card, apply_filter(study, StudyFilter(arms=arms, prices=read_card(card)))


def compared(study: Study) -> Iterator[dict[str, object]]:
    """Yield a row per contrast, with its lead at equal steps and at each card's prices."""
    step_means = study.steps.groupby("series")[STEP_MEANS].mean()
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
                yield row | {"right": first[series]} | step_means.loc[series].to_dict()


def main(out: str, names: list[str]) -> None:
    """Write both tables."""
    comparisons = {}
    verdicts = {}
    for name in names:
        study = load(Path("runs") / name)
        comparisons[name] = pd.DataFrame(compared(study))
        verdicts[name] = plan_table(study, judgements_of(study))

    for file, tables in ((f"{out}.csv", comparisons), (f"{out}.verdicts.csv", verdicts)):
        table = pd.concat(tables, names=["study"]).reset_index("study")
        table.to_csv(HERE / file, index=False, float_format="%.5g")
        print(table.to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
