"""Find the curves of a study that a user means, and the one that others are compared with."""

import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pods.analysis.loading.study import Study
from pods.system.text import short


def curves_named(study: Study, typed: str) -> list[str]:
    """Return the curves that have all typed words in their names: an arm may have several.

    The words are the label of the arm, the rule, n→m (-> may stand for →), and keys that vary,
    whole or by their last part: `pods`, `pods 64->16`, `pods lr=0.001`. The whole name of a curve
    means that curve alone.

    `ValueError`: no curve fits; the message lists what there is.
    """
    runs = study.runs
    matches = curves_fitting(zip(runs.series, runs.arm, runs.rule, strict=True), typed)
    if matches:
        return matches

    unknown = f"arm {typed!r} is unknown in study {study.name}"
    name = typed.strip()
    if name and _is_study(study, name):
        raise ValueError(f"{unknown}; did you mean pods compare --study {name}?")
    series = [str(name) for name in study.runs.series.unique()]
    raise ValueError(f"{unknown}: must be one of {' | '.join(short(series))}")


def curves_fitting(labels: Iterable[tuple[str, str | None, str]], typed: str) -> list[str]:
    """Return the curves that the typed words name, as in `curves_named`; none if no curve fits.

    `labels` has curve, arm and rule of each run.
    """
    first: dict[str, tuple[str | None, str]] = {}
    for curve, arm, rule in labels:
        first.setdefault(str(curve), (arm, rule))
    name = typed.replace("->", "→").strip()
    if name in first:
        return [name]

    wanted = set(_words(name))
    matches = []
    for curve, (arm, rule) in first.items():
        if wanted and wanted <= {arm, rule, *_words(curve)}:
            matches.append(curve)
    return matches


def resolve(study: Study, typed: str) -> str:
    """Return the only curve that is named; see `curves_named`.

    `ValueError`: no curve fits, or several do; the message lists the candidates.
    """
    matches = curves_named(study, typed)
    if len(matches) > 1:
        several = f"arm {typed!r} is ambiguous in study {study.name}"
        raise ValueError(f"{several}: must be one of {' | '.join(short(matches))}")
    return matches[0]


def default_baseline(study: Study) -> str | None:
    """Return the chosen baseline; else the only curve labelled `grpo`, or with n = m."""
    if study.baseline is not None:
        return study.baseline
    runs = study.runs[study.runs.complete]
    is_grpo = runs.arm == "grpo"
    keeps_all = (runs.rule == "all") & (runs.n == runs.m)
    return _only(runs[is_grpo]) or _only(runs[keeps_all])


def _only(runs: pd.DataFrame) -> str | None:
    """Return the name of the curve that all these runs belong to, if they belong to one."""
    names = runs.series.unique()
    return str(names[0]) if len(names) == 1 else None


def _words(name: str) -> list[str]:
    """Return the words of a curve's name, and of each key=value also the end: lr=0.1."""
    words = re.split(r"[\s,]+", name)
    keys = [word for word in words if "=" in word]
    for key in keys:
        before, _, value = key.partition("=")
        words.append(f"{before.rpartition('.')[2]}={value}")
    return [word for word in words if word]


def _is_study(study: Study, name: str) -> bool:
    """Return whether there is a study of this name beside this one."""
    if "folder" not in study.runs:
        return False
    return any((Path(folder).parents[3] / name).is_dir() for folder in study.runs.folder)
