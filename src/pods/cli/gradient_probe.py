"""`pods probe`: which rule, n and m estimate the policy gradient best at a checkpoint."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pods.cli.checkpoints import add_options as add_checkpoint_options
from pods.cli.checkpoints import find_checkpoint, find_run, load_policy, usable_device
from pods.config.parse import ConfigError
from pods.config.schema import BudgetConfig, Config
from pods.memory.fit import free_memory
from pods.runs.attempts import command
from pods.runs.store import RunStore, run_folders
from pods.system.machine import cores, set_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from pods.analysis.gradient_probe import Estimator
    from pods.types import Group, Problem, Rollout, Task

FOLDER = "probed"
"""Folder in the study's, beside the runs: what is in it belongs to no run."""
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
SHARE = 0.8  # of the free memory
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


def probe(options: Namespace) -> int:
    """Draw rollouts at a checkpoint, sketch their gradients, resample every estimator, and write.

    Raises:
        ConfigError: an option is not allowed, or there is no such run or checkpoint.
        ValueError: weights, data or memory are missing.
    """
    for name, least in LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name}", value, f"must be at least {least}")
    store = find_run(options.run, options.runs_dir)
    config, checkpoint = store.config(), find_checkpoint(store, options.step)
    set_threads(cores())
    from pods.analysis.gradient_figure import readable, write
    from pods.analysis.gradient_probe import moments, summarise
    from pods.policy.sketches import inner_products
    from pods.seeding import derive

    estimators = _estimators(config, options.rollouts)
    seconds, why = _seconds(store, config, estimators)
    gradients, groups = _pool(config, checkpoint, options)
    with _progress("inner products", len(gradients)) as report:
        products = inner_products(gradients, report).numpy()
    with _progress("resampling", len(estimators)) as report:
        found = moments(products, groups, estimators, options.groups,
                        derive(options.seed, "probe groups"), report)  # fmt: skip
    baseline = [(one.name, one.n, one.m) for one in estimators].index(BASELINE)
    table = summarise(found, estimators, seconds, baseline, config.prompts_per_step, BOOTSTRAP,
                      derive(options.seed, "probe bootstrap"))  # fmt: skip
    success = sum(float(group.correct.mean()) for group in groups) / len(groups)
    print(readable(table))
    run = f"{store.folder.parent.name}-{store.folder.name}"
    stem = store.folder.parents[2] / FOLDER / f"{run}-{checkpoint.name}"
    about = {
        "checkpoint": str(checkpoint), "command": command(), "success": success,
        "prompts": options.prompts, "rollouts": options.rollouts, "groups": options.groups,
        "dimensions": gradients.shape[1], "exact": options.sketch is None, "seed": options.seed,
        "prompts_per_step": config.prompts_per_step, "seconds": why or "fitted to the study",
    }  # fmt: skip
    title = f"{run}, {checkpoint.name}: {success:.0%} of the rollouts are right"
    path = write(table, about, stem, title)
    print(
        f"{title}\nper second: {about['seconds']}\nfigure: {path} (PDF, SVG, CSV, JSON beside it)"
    )
    return 0


def _estimators(config: Config, most: int) -> "list[Estimator]":
    """Return every panel at every n up to the size of the pool and every m up to n."""
    from pods.analysis.gradient_probe import Estimator
    from pods.method.grpo import advantages
    from pods.method.rules import RULES

    return [
        Estimator(
            f"{rule}, {baseline}, {scale}",
            RULES[rule],
            partial(advantages, baseline=baseline, scale=scale, ddof=config.advantage.ddof,
                    eps=config.advantage.eps),
            n,
            m,
        )
        for rule, baseline, scale in PANELS
        for n in NS
        for m in MS
        if m <= n <= most
    ]  # fmt: skip


def _seconds(
    store: RunStore, config: Config, estimators: "Sequence[Estimator]"
) -> tuple[list[float], str]:
    """Predict a step's seconds from the study's runs of this model and task, or say why not."""
    from pods.analysis.cost.model import cost_model, per_run, predict, why_not_identifiable
    from pods.analysis.study import load
    from pods.analysis.tables import at_the_end

    folder = store.folder.parents[2]
    same = [run for run in run_folders(folder) if run.parents[1] == store.folder.parents[1]]
    unknown = [float("nan")] * len(estimators)
    try:
        study = load(folder, same, allow_missing=True)
    except ValueError as error:
        return unknown, f"unknown ({str(error).splitlines()[0]})"
    table = per_run(study.runs, study.steps, at_the_end(study).reset_index())
    model = cost_model(table, study.steps)
    seconds = [predict(model, one.n, one.m, config.prompts_per_step).seconds for one in estimators]
    if any(map(math.isnan, seconds)):
        return unknown, f"unknown ({why_not_identifiable(model)})"
    if min(seconds) <= 0:
        return unknown, "unknown (the fitted cost of some (n, m) is not positive)"
    return seconds, ""


def _pool(config: Config, checkpoint: Path, options: Namespace) -> "tuple[Tensor, list[Group]]":
    """Generate and grade the rollouts, and sketch the normalised gradient of each.

    Raises:
        ConfigError: there are too few problems, or the sketches do not fit into memory.
    """
    import numpy as np
    import torch

    from pods.analysis.gradient_probe import normaliser
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.scoring import Context
    from pods.policy.sketches import sketches, trained_parameters
    from pods.seeding import derive
    from pods.tasks.load import load
    from pods.tasks.prompts import drop_long_prompts
    from pods.types import GenerationRequest, Sampling

    task = load(config.task)
    policy = load_policy(config, checkpoint, usable_device(config))
    limit = config.sampling.max_prompt_tokens
    problems, prompts, _ = drop_long_prompts(task.train, policy.tokenizer, limit)
    if options.prompts > len(problems):
        raise ConfigError("--prompts", options.prompts, f"must be at most {len(problems)}")
    context = Context(policy, config)
    weights = sum(one.numel() for one in trained_parameters(context))
    dimensions = min(options.sketch or weights, weights)
    _check_memory(options, dimensions)
    rng = np.random.default_rng(derive(options.seed, "probe prompts"))
    chosen = rng.choice(len(problems), options.prompts, replace=False)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    tokens = config.sampling.max_completion_tokens
    groups, rollouts, scales = list["Group"](), list["Rollout"](), list["NDArray[np.float64]"]()
    with _progress("generating", len(chosen)) as report:
        for done, index in enumerate(chosen, 1):
            sampling = Sampling(config.sampling.temperature, tokens)
            seeds = [derive(options.seed, "probe", done)]
            [drawn] = engine.generate(
                GenerationRequest([prompts[index]], options.rollouts, sampling, seeds)
            )
            groups.append(_graded(config, task, problems[index], drawn))
            scales.append(normaliser(groups[-1].lengths, config.update.aggregation, tokens))
            rollouts += drawn
            report(done)
    with _progress("gradients", len(rollouts)) as report:
        rows = sketches(context, rollouts, dimensions, derive(options.seed, "sketch"), report)
    return rows.mul_(torch.from_numpy(np.concatenate(scales)).float()[:, None]), groups


def _check_memory(options: Namespace, dimensions: int) -> None:
    """Check that the sketches and their inner products fit into the memory that is free.

    Raises:
        ConfigError: they do not; it names a sketch that would.
    """
    rollouts, memory = options.prompts * options.rollouts, free_memory("cpu")
    free = memory[0] * SHARE if memory else float("inf")
    most = int((free / 4 - 2 * rollouts**2) / rollouts)  # float32; and the products, twice
    if dimensions > most:
        where = f"{rollouts} rollouts of {dimensions:,} numbers need "
        where += f"{4 * rollouts * (dimensions + 2 * rollouts) / 1e9:.1f} GB of {free / 1e9:.1f} GB"
        allowed = (
            f"must be at most {most}" if most > 0 else "does not help: ask for fewer --prompts"
        )
        raise ConfigError("--sketch", options.sketch, f"{allowed}, or fewer --rollouts: {where}")


def _graded(
    config: Config, task: "Task", problem: "Problem", rollouts: "Sequence[Rollout]"
) -> "Group":
    """Grade rollouts as training does."""
    import numpy as np

    from pods.tasks.rewards import grade_rollout
    from pods.types import Group

    grades = [grade_rollout(config, task, problem, rollout) for rollout in rollouts]
    return Group(
        np.array([grade.reward for grade in grades]),
        np.array([grade.rewarded for grade in grades]),
        np.array([len(rollout.completion_ids) for rollout in rollouts]),
    )


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yield the function that reports how much is done."""
    from pods.training.progress import Progress

    progress = Progress(BudgetConfig(train_seconds=None, max_steps=total))
    try:
        yield lambda done: progress.draw(f"{label} {done}/{total}", done)
    finally:
        progress.close()
