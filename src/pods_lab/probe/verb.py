"""`pods probe`: which rule, n and m estimate the policy gradient best at a checkpoint."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.find import find_checkpoint, find_run
from pods.runs.store import RunStore, run_folders
from pods.seeding import derive
from pods.system.machine import cores, set_threads

if TYPE_CHECKING:
    from pods_lab.probe.moments import Estimator

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
NS, MS = (16, 32, 64, 128), (4, 8, 16, 32, 64)
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
    for name, least in LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name}", value, f"must be at least {least}")
    store = find_run(options.run, options.runs_dir)
    config, checkpoint = store.config(), find_checkpoint(store, options.step)
    set_threads(cores())
    from pods_lab.probe.figure import readable, write
    from pods_lab.probe.law import constants
    from pods_lab.probe.moments import moments, summarise
    from pods_lab.probe.pool import draw_pool, shown

    estimators = _estimators(config, options.rollouts)
    seconds, why = _seconds(store, config, estimators)
    gradients, groups = draw_pool(config, checkpoint, options)
    rows, seed = gradients.numpy(), partial(derive, options.seed)
    products = rows @ rows.T  # numpy computes each of them once
    found = moments(products, groups, shown(estimators, "resampling"), options.groups,
                    seed("probe groups"))  # fmt: skip
    baseline = [(one.name, one.n, one.m) for one in estimators].index(BASELINE)
    table = summarise(found, estimators, seconds, baseline, config.prompts_per_step, BOOTSTRAP,
                      seed("probe bootstrap"))  # fmt: skip
    law = constants(products, groups, BOOTSTRAP, seed("probe law"))
    about = {
        "checkpoint": str(checkpoint), "exact": not options.sketch, "seconds": why,
        "success": sum(float(group.rewarded.mean()) for group in groups) / len(groups),
        **{key: getattr(options, key) for key in ("prompts", "rollouts", "groups", "seed")},
        "dimensions": gradients.shape[1], "prompts_per_step": config.prompts_per_step,
    }  # fmt: skip
    name = f"{store.folder.parent.name}-{store.folder.name}"
    title = f"{name}, {checkpoint.name}: {about['success']:.0%} of the rollouts are right"
    stem = store.folder.parents[2] / FOLDER / f"{name}-{checkpoint.name}"
    path = write(table, law, about, stem, title)
    print(readable(table, law), title, f"per second: {about['seconds']}", sep="\n")
    print(f"figure: {path} (PDF, SVG, CSV, JSON beside it)")


def _estimators(config: Config, most: int) -> "list[Estimator]":
    """Return every panel at every n up to the size of the pool and every m up to n."""
    from pods.method.grpo import advantages
    from pods.method.rules import RULES
    from pods_lab.probe.moments import Estimator

    how = partial(advantages, eps=config.advantage.eps)
    return [
        Estimator(f"{rule}, {baseline}, {scale}", RULES[rule],
                  partial(how, baseline=baseline, scale=scale), n, m)
        for rule, baseline, scale in PANELS
        for n in NS
        for m in MS
        if m <= n <= most
    ]  # fmt: skip


def _seconds(
    store: RunStore, config: Config, estimators: "Sequence[Estimator]"
) -> tuple[list[float], str]:
    """Predict a step's seconds from the study's runs of this model and task; say how or why not."""
    from pods.analysis.loading.load import load
    from pods.analysis.numbers.tables import at_the_end
    from pods_lab.plan.model import cost_model, per_run, predict, why_not_identifiable

    folder = store.folder.parents[2]
    same = [run for run in run_folders(folder) if run.parents[1] == store.folder.parents[1]]
    unknown = [float("nan")] * len(estimators)
    try:
        study = load(folder, same, allow=True)
    except ValueError as error:
        return unknown, f"unknown ({str(error).splitlines()[0]})"
    table = per_run(study.runs, study.steps, at_the_end(study).reset_index())
    model = cost_model(table)
    seconds = [predict(model, one.n, one.m, config.prompts_per_step).seconds for one in estimators]
    if any(map(math.isnan, seconds)):
        return unknown, f"unknown ({why_not_identifiable(model)})"
    if min(seconds) <= 0:
        return unknown, "unknown (the fitted cost of some (n, m) is not positive)"
    return seconds, "fitted to the study"
