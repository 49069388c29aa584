"""Which arms of a sweep still need seeds, by its plan and the runs that are finished."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config.schema import Config
from pods.runs.identity import identity, run_folder
from pods.runs.store import run_folders

if TYPE_CHECKING:
    from pods.analysis.loading.study import Study


def undecided(configs: Sequence[Config]) -> list[Config]:
    """Return the configs of arms of which a contrast is open, or has no run yet.

    An arm that is in no contrast gets seeds as long as any contrast is open.
    """
    from pods.analysis.loading.series_names import place
    from pods.analysis.numbers.planned import judge, open_curves

    study = _study(configs[0])
    if study is None:
        return list(configs)

    judgements = judge(study, study.plans[-1])
    if any(not judgement.curves for judgement in judgements):  # of an arm without a run
        return list(configs)
    is_open = open_curves(judgements)
    asked = {name for judgement in judgements for name in judgement.curves}

    curve_of = dict(zip(study.runs.folder, study.runs.series, strict=True))
    curves = {}
    contents = [identity(config) for config in configs]
    for config, content in zip(configs, contents, strict=True):
        name = curve_of.get(str(run_folder(config, content)))
        if name is not None:
            curves[place(content)] = name

    chosen = []
    for config, content in zip(configs, contents, strict=True):
        name = curves.get(place(content))
        if name in is_open or (name not in asked and is_open):
            chosen.append(config)
    return chosen


def decision_lines(configs: Sequence[Config]) -> list[str]:
    """Say what the plan's contrasts have come to."""
    from pods.analysis.compare.planned import planned_lines

    study = _study(configs[0])
    return ["no run is complete"] if study is None else planned_lines(study)


def _study(config: Config) -> "Study | None":
    """Read the study of a config with whatever runs are complete; None if there is none."""
    from pods.analysis.loading.load import load

    folder = Path(config.runs_dir, config.study)
    try:
        return load(folder, run_folders(folder), allow=True)
    except ValueError:  # nothing to read yet, or imported logs
        return None
