"""`pods plan STUDY`: what a step costs by n and m, from finished runs."""

import argparse
import dataclasses
import json
from contextlib import suppress

from pods.cli.options import add_study_options
from pods.runs.files import replace
from pods.runs.find import find_study
from pods.system.text import short


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, allow=True)
    add = parser.add_argument
    add("--nm", action="append", metavar="N,M", help="sizes to predict (default: those measured)")
    add("--seconds", type=float, help="training clock per run (default: the study's budget)")
    add("--published", action="store_true", help="the PODS authors' runs on one L40S, not a study")


def run(options: argparse.Namespace) -> None:
    """Print the plan of a study, and write its tables."""
    from pods.analysis.loading.load import load
    from pods.analysis.writing import figures_folder
    from pods_lab.plan.plan import parse_nm, plan, plan_authors
    from pods_lab.plan.settings import fitted_clock

    sizes = [parse_nm(word) for word in options.nm or ()]
    if options.published:
        print("\n".join(plan_authors(sizes, options.seconds).lines))
        return

    folder, runs = find_study(options.study, options.runs_dir)
    study = load(folder, runs, options.allow)
    report = plan(study, sizes, options.seconds)
    figures = figures_folder(folder)
    for name, table in report.tables.items():
        replace(figures / f"plan.{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    with suppress(ValueError):  # several settings, or not identified: the lines say so
        prices = dataclasses.asdict(fitted_clock(study))
        replace(figures / "plan.clock.json", json.dumps(prices, indent=1))
    print("\n".join(short(study.missing) + short(study.inconsistencies) + report.lines))
    print(f"tables: {figures}/plan.*")
