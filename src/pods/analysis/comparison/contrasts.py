"""Which runs are compared: the arms that a user names, and the pairs that their seeds make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pods.analysis.load import Study
from pods.analysis.outcomes import RunCurve, run_curves


@dataclass(frozen=True)
class Contrast:
    """The runs of one arm against those of its baseline, in pairs where paired."""

    ours: list[RunCurve]
    theirs: list[RunCurve]
    paired: bool
    left_out: list[str]

    @property
    def names(self) -> dict[str, str]:
        """Columns that say which contrast a row is of."""
        return {"series": self.ours[0].series, "baseline": self.theirs[0].series}


def resolve(study: Study, word: str) -> str:
    """The curve that a user means by an arm's label, a rule, or a name, with -> for → if they like.

    Raises:
        ValueError: none or several fit; the message lists what there is.
    """
    wanted = word.replace("->", "→").strip()
    series = list(dict.fromkeys(study.runs.series))
    if wanted in series:
        return wanted
    runs = study.runs
    fits = runs[(runs.arm == wanted) | (runs.rule == wanted)
                | (runs.series.str.partition(",")[0] == wanted)]  # fmt: skip
    found = list(dict.fromkeys(fits.series))
    if len(found) != 1:
        what = "is ambiguous" if found else "is unknown"
        raise ValueError(f"arm {word!r} {what}; there are: "
                         f"{' | '.join(found or series)}")  # fmt: skip
    return str(found[0])


def arms_of(study: Study, words: Sequence[str] | None) -> tuple[list[list[RunCurve]], list[str]]:
    """The complete runs of each arm, and what is left out."""
    if words and len(words) == 1:
        there = " | ".join(dict.fromkeys(study.runs.series))
        raise ValueError(f"{words[0]!r} alone: name two arms or more, or none for every pair; "
                         f"there are: {there}")  # fmt: skip
    names = [resolve(study, word) for word in words or dict.fromkeys(study.runs.series)]
    if len(set(names)) < len(names):
        raise ValueError(f"an arm is named twice: {', '.join(names)}")
    whole = {name: run_curves(study, name) for name in names}
    taken = {curve.run for curves in whole.values() for curve in curves}
    rows: list[Any] = list(study.runs.itertuples())
    left_out = [
        f"{run.series} seed {run.seed}: not complete ({run.run})"
        for run in rows
        if run.series in names and run.run not in taken
    ]
    empty = [name for name in names if not whole[name]]
    if words and empty:
        raise ValueError(f"arm {empty[0]!r} has no complete run")
    arms = [curves for curves in whole.values() if curves]
    if len(arms) < 2:
        raise ValueError(f"a comparison wants two arms with complete runs; there are: "
                         f"{' | '.join(c[0].series for c in arms) or 'none'}")  # fmt: skip
    return arms, left_out


def contrast_of(ours: list[RunCurve], theirs: list[RunCurve], seeded: bool) -> Contrast:
    """Pair over shared seeds where seeds mean anything and at least two are shared."""
    one, other = ({curve.seed: curve for curve in arm} for arm in (ours, theirs))
    shared = sorted(one.keys() & other.keys())
    if not seeded or len(shared) < 2:
        return Contrast(ours, theirs, False, [])
    lost = [
        f"{curve.series} seed {curve.seed}: no such seed of {partner[0].series}"
        for arm, partner in ((ours, theirs), (theirs, ours))
        for curve in arm
        if curve.seed not in shared
    ]
    return Contrast([one[s] for s in shared], [other[s] for s in shared], True, lost)
