"""Choose which runs are compared: the arms that a user names, their baseline, pairs over seeds."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pods.analysis.outcomes import RunCurve, run_curves
from pods.analysis.study import Study


@dataclass(frozen=True)
class Contrast:
    """The runs of one arm against those of its baseline, one beside the other where paired."""

    ours: list[RunCurve]
    theirs: list[RunCurve]
    paired: bool
    left_out: list[str]
    """Runs without a partner, each with the reason."""

    @property
    def names(self) -> dict[str, str]:
        """The columns that identify the contrast in a table."""
        return {"series": self.ours[0].series, "baseline": self.theirs[0].series}


def resolve(study: Study, word: str) -> str:
    """Find the curve meant by an arm's label, a rule, or a curve's name (-> may stand for →).

    Raises:
        ValueError: no curve fits, or several do; the message lists the candidates.
    """
    name = word.replace("->", "→").strip()
    runs, series = study.runs, list(dict.fromkeys(study.runs.series))
    if name in series:
        return name
    before_keys = runs.series.str.partition(",")[0]
    fits = (runs.arm == name) | (runs.rule == name) | (before_keys == name)
    fits |= before_keys.str.endswith(f" {name}")  # imported logs: GSM8K pods 64→16
    matches = list(dict.fromkeys(runs.series[fits]))
    if len(matches) != 1:
        fault = "is ambiguous" if matches else "is unknown"
        raise ValueError(f"arm {word!r} {fault}: must be one of {' | '.join(matches or series)}")
    return str(matches[0])


def default_baseline(study: Study) -> str | None:
    """Return the chosen baseline; else the only curve labelled `grpo`, or with n = m."""
    if study.baseline is not None:
        return study.baseline
    runs = study.runs[study.runs.complete]
    for fits in (runs.arm == "grpo", (runs.rule == "all") & (runs.n == runs.m)):
        names = runs.series[fits].unique()
        if len(names) == 1:
            return str(names[0])
    return None


def choose_arms(study: Study, words: Sequence[str]) -> tuple[dict[str, list[RunCurve]], list[str]]:
    """Choose the arms that are compared: the named ones, or all that have complete runs.

    A single named arm is compared with the default baseline.

    Returns:
        The complete runs of each arm; runs that are left out.

    Raises:
        ValueError: an arm is unknown, ambiguous, named twice or without a complete run, or there
            are fewer than two arms.
    """
    baseline = default_baseline(study)
    names = [resolve(study, word) for word in words]
    if len(names) == 1 and baseline is not None:
        names.append(baseline)
    if len(set(names)) < len(names) or len(names) == 1:
        present = " | ".join(dict.fromkeys(study.runs.series))
        raise ValueError(f"arms={' '.join(words)}: must be two or more different ones of {present}")
    curves = {name: run_curves(study, name) for name in names or dict.fromkeys(study.runs.series)}
    used = {curve.run for arm in curves.values() for curve in arm}
    left_out = [
        f"{series} seed {seed}: not complete ({run})"
        for series, seed, run in study.runs[["series", "seed", "run"]].itertuples(index=False)
        if series in curves and run not in used
    ]
    needed = names or [name for name in curves if name == study.baseline]
    empty = [name for name in needed if not curves[name]]
    if empty:
        raise ValueError(f"arm {empty[0]!r} has no complete run")
    arms = {name: runs for name, runs in curves.items() if runs}
    if len(arms) < 2:
        raise ValueError(
            "a comparison needs two arms with complete runs; the study has: "
            f"{' | '.join(arms) or 'none'}"
        )
    return arms, left_out


def choose_pairs(arms: Sequence[str], named: bool, baseline: str | None) -> list[tuple[str, str]]:
    """Choose the (arm, baseline) pairs: every two arms where there is no baseline.

    The first of several arms that were named is compared with each of the others.

    >>> choose_pairs(["a", "b", "c"], False, "b"), choose_pairs(["a", "b", "c"], True, "b")
    ([('a', 'b'), ('c', 'b')], [('a', 'b'), ('a', 'c')])
    """
    if named:
        return [(arms[0], other) for other in arms[1:]]
    if baseline is None:
        return list(itertools.combinations(arms, 2))
    return [(name, baseline) for name in arms if name != baseline]


def contrast_of(ours: list[RunCurve], theirs: list[RunCurve], seeded: bool) -> Contrast:
    """Pair runs over shared seeds, if seeds mean anything and at least two are shared."""
    one, other = ({curve.seed: curve for curve in arm} for arm in (ours, theirs))
    shared = sorted(one.keys() & other.keys())
    if not seeded or len(shared) < 2:
        return Contrast(ours, theirs, False, [])
    left_out = [
        f"{curve.series} seed {curve.seed}: {partner[0].series} has no such seed"
        for arm, partner in ((ours, theirs), (theirs, ours))
        for curve in arm
        if curve.seed not in shared
    ]
    return Contrast([one[s] for s in shared], [other[s] for s in shared], True, left_out)
