"""Define the parts of gpu.py: each yields its results so far, and the complete ones last.

A part gets the command line (`--model`, `--data`, `--device`, `--toy`, and the engine to train
with) and a deadline of `time.monotonic()`, after which it starts nothing new.
"""

import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_arms import arm
from gpu_config import GRPO, config_of
from gpu_figure import figure
from step import endless, make_loop, pool, steps

from pods.policy.policy import load
from pods.training.build import make_engine
from pods.training.clock import PHASES

Results = Iterator[dict[str, Any]]
ROUNDS = 10  # at most: the deadline cuts them
GROWTH = ((16, 64), (4, 16, 64), (8, 16, 32))  # n, m and T, every m <= n


def checks(options: Namespace, deadline: float) -> Results:
    """Run the checks of tests/gpu_checks.py; record the seconds of each, or its traceback."""
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    from gpu_checks import CHECKS

    results: dict[str, Any] = {}
    failed = []
    for check in CHECKS:
        start = time.monotonic()
        try:
            check(options.device)
            results[check.__name__] = round(time.monotonic() - start, 2)
        except Exception:  # the other checks are still informative
            results[check.__name__] = traceback.format_exc()
            failed.append(check.__name__)
        yield results
    if failed:
        raise AssertionError("\n".join([f"failed: {', '.join(failed)}", *map(results.get, failed)]))


def step(engine: str, options: Namespace, deadline: float) -> Results:
    """Time steps of the real loop, n = m = 16, all completions of maximal length (step.py)."""
    sizes = (8, 16) if options.toy else (64, 256)
    longest = {"engine.name": engine, "sampling.max_completion_tokens": max(sizes)}
    config = config_of(options, {**GRPO, **longest})
    torch.set_num_threads(config.hardware.threads)
    policy = endless(load(config))
    task, prompts = pool(config, policy.tokenizer)
    generator = make_engine(policy, config, lambda: None)
    results: dict[str, Any] = {}
    for index, tokens in enumerate(sizes):
        until = _share(deadline, len(sizes) - index)
        sampling = replace(config.sampling, max_completion_tokens=tokens)
        loop = make_loop(policy, replace(config, sampling=sampling), generator, task, prompts)
        rows = list[dict[str, Any]]()
        for row in islice(steps(loop, partial(_before, until)), ROUNDS + 1):
            rows.append(row)
            counted = rows[1:] or rows  # the first warms up
            medians = {key: median(row[key] for row in counted) for key in ("seconds", *PHASES)}
            results[f"16 x {tokens}"] = {"steps": len(rows[1:]), **medians}
            yield results


def update(options: Namespace, deadline: float) -> Results:
    """Compare the update with the bare forward + backward of as many tokens (update.py)."""
    from update import CASES, measure, suitable

    config = config_of(options, {"task.few_shot": 0})
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    cases = {"4 x 8": [8] * 4, "4 x 2 to 8": [2, 4, 6, 8]} if options.toy else CASES
    results: dict[str, Any] = {}
    for index, (case, lengths) in enumerate(cases.items()):
        until = _share(deadline, len(cases) - index)
        for results[case] in measure(policy, config, suitable(prompts), lengths, ROUNDS, until):
            yield results


def memory(options: Namespace, deadline: float) -> Results:
    """Compare the peak bytes of log-probs and their gradient with log_softmax (memory.py)."""
    from memory import SIDES, peak

    shape = {"rows": 2, "tokens": 64, "vocabulary": 8192, "width": 128} if options.toy else {}
    results: dict[str, Any] = {"shape": shape or "as in memory.py"}
    for side in SIDES:
        results[side] = peak(side, options.device, **shape)
        yield results
    yield {**results, "ours_of_plain": results["ours"] / max(1, results["plain"])}


def growth(options: Namespace, deadline: float) -> Results:
    """Measure how a step grows with n, m and T, and fit the cost model if possible (growth.py)."""
    from growth import grid, judge, measure

    config = config_of(options, {"task.few_shot": 0})
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    sizes = grid((4, 8), (2, 4, 8), (2, 4, 8)) if options.toy else grid(*GROWTH)
    cells, elapsed = [], 0.0
    while not cells or (time.monotonic() + elapsed < deadline and len(cells[0].update) < ROUNDS):
        start = time.monotonic()
        more = measure(policy, config, prompts, sizes, rounds=1)
        elapsed = time.monotonic() - start
        cells = [replace(old, generate=old.generate + new.generate, update=old.update + new.update)
                 for old, new in zip(cells, more, strict=True)] if cells else more  # fmt: skip
        yield {"cells": [asdict(cell) for cell in cells]}
    try:
        fitted = judge(cells)
    except ImportError as error:
        fitted = {"fit": f"not computed: {error}"}
    yield {**fitted, "cells": [asdict(cell) for cell in cells]}


def rollouts(options: Namespace, deadline: float) -> Results:
    """Compare rollouts with raw vLLM (rollouts.py), both with plain weights and no adapter."""
    from rollouts import measure

    changes = {**GRPO, "engine.name": "vllm", "engine.sync": "merged"}
    yield from measure(config_of(options, changes), ROUNDS, deadline)


def _share(deadline: float, parts: int) -> float:
    """Return the end of the first of `parts` equal parts of the remaining time."""
    now = time.monotonic()
    return now + (deadline - now) / parts


def _before(deadline: float) -> bool:
    return time.monotonic() < deadline


PARTS: dict[str, Callable[[Namespace, float], Results]] = {
    "checks": checks,
    "step": partial(step, "transformers"),
    "update": update,
    "memory": memory,
    "growth": growth,
    "step_vllm": partial(step, "vllm"),
    "rollouts": rollouts,
    "grpo": partial(arm, "grpo"),
    "pods": partial(arm, "pods"),
    "figure": figure,
}
