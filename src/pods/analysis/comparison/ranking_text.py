"""Present a ranking on a screen and as JSON: one sentence first, then the table."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.ranking import BEST, NOISE, UNTESTED, WORSE, Ranking
from pods.analysis.noise import slow_runs
from pods.analysis.outcomes import MEASURES, run_curves, title_of, unmeasured
from pods.analysis.statistics import ALPHA
from pods.analysis.study import Study
from pods.analysis.tables import amount, clock_words, json_value


def format_ranking(ranking: Ranking, study: Study) -> str:
    """Return the verdict, the table and its notes for a screen."""
    table = readable(ranking, study).to_string(index=False)
    return "\n".join([verdict(ranking, study), "", table, *notes(ranking, study)])


def verdict(ranking: Ranking, study: Study) -> str:
    """Say which arm is best, and which others the runs cannot tell from it."""
    best, by = ranking.table.iloc[0], ranking.by
    runs = f"{best.runs} run{'' if best.runs == 1 else 's'}"
    if by.outcome is None:
        worse = "later"
        reached = f"{best.reached:.0f} of {runs}"
        said = f"is the fastest to {_target(ranking, study)}: {reached}, "
        late = np.isinf(best.value)
        said += "so in the median none does" if late else f"median {_time(best.value, study)}"
    else:
        worse, title = "lower", title_of(by.outcome, study.metric)
        said = f"has the highest {title}, {100 * best.value:.2f} % ({runs})"
    return f"{ranking.best} {said}; {'; '.join(_others(ranking, worse))}."


def _others(ranking: Ranking, worse: str) -> Iterator[str]:
    """Yield what the tests of the other arms found, as text."""
    others = len(ranking.table) - 1
    noise, untested, settled = (ranking.found(what) for what in (NOISE, UNTESTED, WORSE))
    if (ranking.table.runs == 1).all():
        yield "with one run per arm nothing can be tested"
        return
    if settled:
        every = "the other arm is" if others == 1 else "every other arm is"
        some = f"{len(settled)} of {others} others are" if len(settled) > 1 else f"1 of {others} is"
        yield f"{every if len(settled) == others else some} {worse}"
    if len(noise) == others > 1:
        yield f"every other arm is within noise of the best: {', '.join(noise)}"
    elif noise:
        yield f"within noise of the best: {', '.join(noise)}"
    if untested:
        yield f"not tested (too few runs, or no spread): {', '.join(untested)}"


def notes(ranking: Ranking, study: Study) -> Iterator[str]:
    """Yield what a reader has to know of the numbers."""
    table, x = ranking.table, study.x
    span = f"from {amount(ranking.window.start, x)} to {amount(ranking.window.end, x)}"
    clock = clock_words(study)
    timed = ranking.by.outcome is None
    measure, error = MEASURES[study.metric], "" if timed else "; ± 1 standard error over runs"
    yield f"{measure[0].upper()}{measure[1:]} {span}{clock}{error}."
    if table.p.notna().any():
        designs = table.design.dropna().unique()
        paired = " and ".join(
            {"paired": "paired over seeds", "unpaired": "unpaired"}[d] for d in designs
        )
        of = " of mean times" if timed else ""
        yield (
            f"Difference{of} to the best ({paired}) with its 95 % t interval, which is not "
            f"adjusted; within noise: p after Holm is above {ALPHA:g}."
        )
    if table.loc[table.p.notna(), "estimate"].isna().any():
        yield "Where a run never arrives there is no t interval; an exact test of order decides."
    yield (
        f"The best of {len(table)} is chosen by luck in part (the winner's curse): its value and "
        "its lead are likely too good, so confirm them with new seeds."
    )
    if timed and _too_early(ranking, study):
        yield "Half of some arm's runs get there before their first evaluation: those are guesses."


def warnings(ranking: Ranking, study: Study) -> Iterator[str]:
    """Yield what weakens the ranking: what is left out, missing, inconsistent or badly timed."""
    for title, lines in {
        "Left out": ranking.left_out,
        "Missing": study.missing,
        "Inconsistent": study.inconsistencies,
        "Measured times": slow_runs(study).values(),
        "Note": [study.note] if study.note else [],
    }.items():
        yield from (f"{title}: {line}" for line in lines)


def _too_early(ranking: Ranking, study: Study) -> bool:
    """Return whether an arm's median run passes the target on its first line."""
    target = np.array([ranking.by.target])
    return any(
        unmeasured(run_curves(study, series), target, ranking.window)[0]
        for series in ranking.table.series
    )


def readable(ranking: Ranking, study: Study) -> pd.DataFrame:
    """Format the table for a reader: percent and points, or times."""
    timed, rows = ranking.by.outcome is None, []
    factor = 1 if timed else 100
    unit = "seconds" if study.x == "train_seconds" else study.x.replace("_", " ")
    row: Any
    for row in ranking.table.itertuples():
        value = _number(factor * row.value)
        error = "" if np.isnan(row.stderr) else f" ± {_number(factor * row.stderr)}"
        reached = f"{row.reached:.0f} of {row.runs}" if timed else f"{row.runs}"
        low, high = (_number(factor * end) for end in (row.low, row.high))
        rows.append(
            {
                "rank": row.rank,
                "curve": row.series,
                "reached" if timed else "runs": reached,
                f"median {unit}" if timed else f"{_short(ranking)}, %": f"{value}{error}",
                "diff.": "" if np.isnan(row.estimate) else f"{factor * row.estimate:+.2f}",
                "95 % interval": "" if np.isnan(row.low) else f"[{low}, {high}]",
                "against best": "" if row.against_best == BEST else row.against_best,
            }
        )
    table = pd.DataFrame(rows)
    return table.loc[:, (table != "").any()]


def as_json(ranking: Ranking, study: Study) -> dict[str, Any]:
    """Return the ranking with its settings; NaN becomes null, an infinite time a word."""
    by = ranking.by
    unit = "seconds" if study.x == "train_seconds" else study.x
    return {
        "study": study.name,
        "budget": study.budget,
        "clock": study.clock,
        "machines": study.machines,
        "settings": {
            "by": by.outcome or f"time_to:{by.target:g}",
            "metric": study.metric,
            "alpha": ALPHA,
            f"window_{unit}": [ranking.window.start, ranking.window.end],
            "seeds_pair_runs": study.seeded,
        },
        "verdict": verdict(ranking, study),
        "best": ranking.best,
        "within_noise": ranking.found(NOISE),
        "ranking": [
            {key: json_value(value, "not reached") for key, value in row.items()}
            for row in ranking.table.to_dict("records")
        ],
        "notes": [*notes(ranking, study), *warnings(ranking, study)],
    }


def _short(ranking: Ranking) -> str:
    return str(ranking.by.outcome).removesuffix("_accuracy")


def _target(ranking: Ranking, study: Study) -> str:
    what = "" if study.metric == "accuracy" else f" {MEASURES[study.metric]}"
    return f"{100 * ranking.by.target:g} %{what}"


def _time(value: float, study: Study) -> str:
    """Show a median time, or median of another x, which is small where x is steps."""
    if study.x == "train_seconds" or value >= 100:
        return amount(value, study.x)
    return f"{value:.3g} {study.x.replace('_', ' ')}"


def _number(value: float) -> str:
    if np.isinf(value):
        return "never"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}"
