"""Which arms of a sweep still need seeds, by its plan and the runs that are finished."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.plan import question
from pods.config.schema import Config
from pods.runs.identity import identity
from pods.runs.store import RunStore, run_folders

if TYPE_CHECKING:
    from pods.analysis.loading.study import Study


def undecided(configs: Sequence[Config]) -> list[Config]:
    """Return the configs of arms of which a contrast is open, or has no run yet.

    An arm that is in no contrast gets seeds as long as any contrast is open. The curve of a config
    is known by the runs of the study, whose seeds need not be among the configs.
    """
    from pods.analysis.loading.series_names import place, without_start
    from pods.analysis.numbers.planned import judgements_of, open_curves

    study = _study(configs[0])
    if study is None:
        return list(configs)

    judgements = judgements_of(study)
    if any(not judgement.curves for judgement in judgements):  # of an arm without a run
        return list(configs)
    is_open = open_curves(judgements)
    asked = {name for judgement in judgements for name in judgement.curves}

    def curve(content: Mapping[str, Any]) -> tuple[object, ...]:
        return place(without_start(content) if study.own_starts else content)

    curves = {}
    for folder, series in zip(study.runs.folder, study.runs.series, strict=True):
        curves[curve(RunStore(Path(folder)).identity())] = series

    chosen = []
    for config in configs:
        name = curves.get(curve(identity(config)))
        if name in is_open or (name not in asked and is_open):
            chosen.append(config)
    return chosen


def unknown_arms(configs: Sequence[Config]) -> Iterator[str]:
    """Yield a line for each arm of a contrast that is in neither these configs nor their study.

    Nothing is said if data or weights are missing, without which curves have no names.
    """
    from pods.analysis.loading.arm_names import curves_fitting

    if not configs[0].plan.contrasts:
        return
    try:
        curves = _curves(configs)
    except OSError:
        return

    for text in configs[0].plan.contrasts:
        contrast = question(text)
        for arm in (contrast.arm, contrast.baseline):
            if not curves_fitting(curves, arm):
                yield f"warning: plan.contrasts: no run here or in the study is {arm!r}: {contrast}"


def _curves(configs: Sequence[Config]) -> list[tuple[str, str | None, str]]:
    """Return curve, arm and rule of each of these configs, and of each run in their study."""
    from pods.analysis.loading.series_names import series_names

    runs = [(config, identity(config)) for config in configs]
    for folder in run_folders(Path(configs[0].runs_dir, configs[0].study)):
        with suppress(OSError, ValueError):  # a damaged run is named elsewhere
            store = RunStore(folder)
            runs.append((store.config(), store.identity()))

    curves = []
    for name, (config, _) in zip(series_names(runs), runs, strict=True):
        curves.append((name, config.arm, config.sampler.rule))
    return curves


def decision_lines(configs: Sequence[Config]) -> list[str]:
    """Say what the plan's contrasts have come to."""
    from pods.analysis.compare.planned import planned_lines
    from pods.analysis.numbers.planned import judgements_of

    study = _study(configs[0])
    if study is None:
        return ["no run is complete"]
    return planned_lines(study, judgements_of(study))


def _study(config: Config) -> "Study | None":
    """Read the study of a config with whatever runs are complete; None if there is none."""
    from pods.analysis.loading.load import load

    folder = Path(config.runs_dir, config.study)
    try:
        return load(folder, run_folders(folder), allow=True)
    except ValueError:  # nothing to read yet, or imported logs
        return None
