"""`pods probe`: which rule, n and m estimate the policy gradient best at a checkpoint."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.find import find_checkpoint, find_run
from pods.runs.store import RunStore, run_folders
from pods.seeding import derive
from pods.system.machine import cores, set_threads

if TYPE_CHECKING:
    from pods_lab.probe.moments import Estimator
    from pods_lab.probe.pool import Pool

FOLDER = "probed"  # in the study's, beside the runs: what is in it belongs to no run
PANELS = (  # rule, advantage.baseline, advantage.scale
    ("max_variance", "selected", "std"),
    ("max_variance", "full", "std"),
    ("max_abs_advantage", "full", "std"),
    ("balanced", "full", "none"),
    ("random", "selected", "std"),
    ("random", "leave_one_out", "none"),
    ("percentile", "selected", "std"),
    ("max_reward", "selected", "std"),
)
NS = (16, 32, 64, 128)
MS = (4, 8, 16, 32, 64)
BASELINE = ("random, selected, std", 16, 16)  # at n = m every rule is GRPO
BOOTSTRAP = 2000
LEAST = {"prompts": 2, "rollouts": NS[0], "groups": 1, "sketch": 1, "seed": 0}


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    add = partial(parser.add_argument, type=int)
    add("--prompts", default=16, metavar="P", help="training problems to probe (default: 16)")
    add("--rollouts", default=128, metavar="N", help="rollouts of each (default: 128)")
    add("--groups", default=64, metavar="R", help="groups drawn of each (default: 64)")
    add("--sketch", metavar="D", help="project gradients to D dimensions (default: exact)")
    add("--seed", default=0, help="of prompts, sampling and resampling (default: 0)")


def run(options: Namespace) -> None:
    """Draw rollouts at a checkpoint, sketch their gradients, resample every estimator, and write.

    `ValueError`: an option is not allowed; run, checkpoint, weights, data or memory are missing.
    """
    _check(options)
    store = find_run(options.run, options.runs_dir)
    config = store.config()
    checkpoint = find_checkpoint(store, options.step)
    set_threads(cores())
    from pods_lab.probe.figure import readable, write
    from pods_lab.probe.law import constants
    from pods_lab.probe.moments import moments, summarise
    from pods_lab.probe.pool import draw_pool, shown

    estimators = _estimators(config, options.rollouts)
    prices = _prices(store, config, estimators)
    pool = draw_pool(config, checkpoint, options)
    rows = pool.gradients.numpy()
    products = rows @ rows.T  # numpy computes each of them once
    measured = moments(
        products,
        pool.groups,
        shown(estimators, "resampling"),
        options.groups,
        derive(options.seed, "probe groups"),
    )
    names = [(estimator.name, estimator.n, estimator.m) for estimator in estimators]
    table = summarise(
        measured,
        estimators,
        prices.seconds,
        baseline=names.index(BASELINE),
        prompts_per_step=config.prompts_per_step,
        resamples=BOOTSTRAP,
        seed=derive(options.seed, "probe bootstrap"),
    )
    law = constants(products, pool.groups, BOOTSTRAP, derive(options.seed, "probe law"))

    about = _about(options, pool) | {
        "checkpoint": str(checkpoint),
        "seconds": prices.origin,
        "prompts_per_step": config.prompts_per_step,
    }
    name = f"{store.folder.parent.name}-{store.folder.name}"
    title = f"{name}, {checkpoint.name}: {pool.success:.0%} of the rollouts are right"
    stem = store.folder.parents[2] / FOLDER / f"{name}-{checkpoint.name}"
    path = write(table, law, about, stem, title)
    print(f"{readable(table, law)}\n{title}\nper second: {prices.origin}")
    print(f"figure: {path} (PDF, SVG, CSV, JSON beside it)")


def _check(options: Namespace) -> None:
    """Raise a ConfigError if a number is too small."""
    for name, least in LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name}", value, f"must be at least {least}")


def _about(options: Namespace, pool: "Pool") -> dict[str, object]:
    """Return how the numbers were made, for their JSON file."""
    return {
        "exact": not options.sketch,
        "success": pool.success,
        "prompts": options.prompts,
        "rollouts": options.rollouts,
        "groups": options.groups,
        "seed": options.seed,
        "dimensions": pool.gradients.shape[1],
    }


def _estimators(config: Config, most: int) -> "list[Estimator]":
    """Return every panel at every n up to the size of the pool and every m up to n."""
    from pods.method.grpo import advantages
    from pods.method.rules import RULES
    from pods_lab.probe.moments import Estimator

    estimators = []
    for rule, baseline, scale in PANELS:
        weigh = partial(advantages, eps=config.advantage.eps, baseline=baseline, scale=scale)
        for n, m in product(NS, MS):
            if m <= n <= most:
                name = f"{rule}, {baseline}, {scale}"
                estimators.append(Estimator(name, RULES[rule], weigh, n, m))
    return estimators


class _Prices(NamedTuple):
    """What a step of each estimator costs."""

    seconds: list[float]
    """NaN if they are unknown."""
    origin: str
    """Where they come from, or why they are unknown."""


def _prices(store: RunStore, config: Config, estimators: "Sequence[Estimator]") -> _Prices:
    """Predict a step's seconds from the study's runs of this model and task."""
    from pods.analysis.loading.load import load
    from pods.analysis.numbers.tables import at_the_end
    from pods_lab.price.model import cost_model, per_run, predict, why_not_identifiable

    folder = store.folder.parents[2]
    same = [run for run in run_folders(folder) if run.parents[1] == store.folder.parents[1]]
    unknown = [math.nan] * len(estimators)
    try:
        study = load(folder, same, allow=True)
    except ValueError as error:
        return _Prices(unknown, f"unknown ({str(error).splitlines()[0]})")

    table = per_run(study.runs, study.steps, at_the_end(study).reset_index())
    model = cost_model(table)
    seconds = []
    for estimator in estimators:
        step = predict(model, estimator.n, estimator.m, config.prompts_per_step)
        seconds.append(step.seconds)
    if any(math.isnan(step_seconds) for step_seconds in seconds):
        return _Prices(unknown, f"unknown ({why_not_identifiable(model)})")
    if min(seconds) <= 0:
        return _Prices(unknown, "unknown (the fitted cost of some (n, m) is not positive)")
    return _Prices(seconds, "fitted to the study")
