"""`pods plan`: what steps and sweeps cost, from finished runs or for a preset that has not run."""

import argparse
import dataclasses
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pods.cli.study_verbs import study_of
from pods.runs.files import replace

if TYPE_CHECKING:
    from pods.analysis.cost.plan import PlanRequest

STUDY_ONLY = ("nm", "steps", "jobs", "published")
PRESET_ONLY = ("source", "tokens", "gpus", "failures", "restart")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("--study", dest="named", metavar="STUDY", help="same as the positional argument")
    add("--seconds", type=float, help="training clock per run (default: the study's budget)")
    add("--seeds", type=int, help="seeds of the sweep (default: as many as the study has)")
    add = parser.add_argument_group("from finished runs").add_argument
    add("--nm", action="append", metavar="N,M", help="sizes to predict (default: those measured)")
    add("--steps", type=int, help="steps per run, instead of seconds")
    add("--jobs", type=int, help="runs at a time (default: one per core)")
    published = "use the PODS authors' step times on one L40S instead of a study"
    add("--published", action="store_const", const=True, help=published)
    add = parser.add_argument_group("before a preset has run").add_argument
    add("--hardware", metavar="NAME", help="price the preset STUDY on this hardware")
    add(
        "--from",
        dest="source",
        metavar="STUDY",
        help="use step times measured in STUDY (default: published times for the same setup)",
    )
    add("--tokens", type=int, help="mean completion length for lower bounds (default: the maximum)")
    add("--gpus", metavar="N,...", help="sizes of the cluster (default: 1,8,64,512)")
    add("--failures", type=float, metavar="RATE", help="failures per GPU-hour (default: none)")
    add(
        "--restart",
        type=float,
        metavar="MINUTES",
        help="until the GPUs of a failed job can be used again (default: 10)",
    )


def plan(options: argparse.Namespace) -> int:
    """Print the plan of a study or preset; write the tables of a study."""
    for name in STUDY_ONLY if options.hardware else PRESET_ONLY:
        if getattr(options, name) is not None:
            word = "not with" if options.hardware else "needs"
            raise ValueError(f"--{'from' if name == 'source' else name}: {word} --hardware")
    if options.hardware:
        return _preset(options)
    from pods.analysis.cost.plan import fitted_clock, plan, plan_published
    from pods.analysis.draw import figures_folder
    from pods.analysis.study import load

    request = _request(options)
    if options.published:
        print(*plan_published(request).lines, sep="\n")
        return 0
    folder, runs = study_of(options, options.named)
    study = load(folder, runs, options.allow_missing, options.allow_mixed)
    report, figures = plan(study, request), figures_folder(folder)
    for name, table in report.tables.items():
        replace(figures / f"plan.{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    with suppress(ValueError):  # several settings, or not identified: the lines say so
        prices = json.dumps(dataclasses.asdict(fitted_clock(study)), indent=1)
        replace(figures / "plan.clock.json", prices)
    print(
        *study.missing, *study.inconsistencies, *report.lines, f"tables: {figures}/plan.*", sep="\n"
    )
    return 0


def _preset(options: argparse.Namespace) -> int:
    from pods.analysis.cost.price import plan_preset
    from pods.analysis.cost.step_time import check_comparable, measured
    from pods.analysis.study import load
    from pods.config.presets import sweep_of
    from pods.runs.store import RunStore

    request, preset, name = _request(options), options.named or options.study, options.source
    request.check()
    folder, runs = study_of(options, name) if name else (None, [])
    sweep = sweep_of(preset, options.hardware, options.seeds)
    source = None
    if folder:
        if not runs:
            raise ValueError(f"from={name}: {folder} has imported logs, no runs")
        check_comparable(sweep.configs[0], RunStore(runs[0]).config(), name)
        source = measured(load(folder, runs), name)
    print(*plan_preset(preset, sweep, request, source).lines, sep="\n")
    return 0


def _request(options: argparse.Namespace) -> "PlanRequest":
    from pods.analysis.cost.plan import PlanRequest, parse_nm

    names = ("seconds", "steps", "seeds", "tokens", "failures", "restart")
    given = {name: getattr(options, name) for name in names}
    given |= {"slots": options.jobs or os.cpu_count() if options.jobs != 0 else 0}
    given |= {"nm": tuple(map(parse_nm, options.nm or ()))}
    given |= {"gpus": _counts(options.gpus) if options.gpus else None}
    return PlanRequest(**{name: value for name, value in given.items() if value is not None})


def _counts(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise ValueError(f"gpus={text}: must be whole numbers such as 8,64,512")
    return tuple(map(int, words))
