"""The parts of gpu.py: each a generator of what it has measured so far, the last of it all.

A part is given what was typed (`--model`, `--data`, `--device`, `--toy`, and the engine to train
with) and a deadline of `time.monotonic()`, after which it begins nothing new.
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

from pods.assemble import make_engine
from pods.policy.load import load
from pods.runs.clock import PHASES

Found = Iterator[dict[str, Any]]
ROUNDS = 10  # at most: the deadline cuts them
GROWTH = ((16, 64), (4, 16, 64), (8, 16, 32))  # n, m and T, every m <= n


def checks(asked: Namespace, deadline: float) -> Found:
    """What must hold on a GPU (tests/gpu_checks.py): seconds of each, or how it failed."""
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    from gpu_checks import CHECKS

    found: dict[str, Any] = {}
    failed = []
    for check in CHECKS:
        start = time.monotonic()
        try:
            check(asked.device)
            found[check.__name__] = round(time.monotonic() - start, 2)
        except Exception:  # the others are still worth knowing
            found[check.__name__] = traceback.format_exc()
            failed.append(check.__name__)
        yield found
    if failed:
        raise AssertionError("\n".join([f"failed: {', '.join(failed)}", *map(found.get, failed)]))


def step(engine: str, asked: Namespace, deadline: float) -> Found:
    """Steps of the real loop, n = m = 16, all completions as long as allowed (step.py)."""
    sizes = (8, 16) if asked.toy else (64, 256)
    longest = {"engine.name": engine, "sampling.max_completion_tokens": max(sizes)}
    config = config_of(asked, {**GRPO, **longest})
    torch.set_num_threads(config.hardware.threads)
    policy = endless(load(config))
    task, prompts = pool(config, policy.tokenizer)
    drawing = make_engine(policy, config, lambda: None)
    found: dict[str, Any] = {}
    for place, tokens in enumerate(sizes):
        until = _share(deadline, len(sizes) - place)
        sampling = replace(config.sampling, max_completion_tokens=tokens)
        loop = make_loop(policy, replace(config, sampling=sampling), drawing, task, prompts)
        rows = list[dict[str, Any]]()
        for row in islice(steps(loop, partial(_before, until)), ROUNDS + 1):
            rows.append(row)
            counted = rows[1:] or rows  # the first warms up
            medians = {key: median(row[key] for row in counted) for key in ("seconds", *PHASES)}
            found[f"16 x {tokens}"] = {"steps": len(rows[1:]), **medians}
            yield found


def update(asked: Namespace, deadline: float) -> Found:
    """The update beside the bare forward + backward of as many tokens (update.py)."""
    from update import CASES, measure, suitable

    config = config_of(asked, {"task.few_shot": 0})
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    cases = {"4 x 8": [8] * 4, "4 x 2 to 8": [2, 4, 6, 8]} if asked.toy else CASES
    found: dict[str, Any] = {}
    for place, (case, lengths) in enumerate(cases.items()):
        until = _share(deadline, len(cases) - place)
        for found[case] in measure(policy, config, suitable(prompts), lengths, ROUNDS, until):
            yield found


def memory(asked: Namespace, deadline: float) -> Found:
    """Peak bytes of log-probs and their gradient beside plain log_softmax (memory.py)."""
    from memory import SIDES, peak

    shape = {"rows": 2, "tokens": 64, "vocabulary": 8192, "width": 128} if asked.toy else {}
    found: dict[str, Any] = {"shape": shape or "as in memory.py"}
    for side in SIDES:
        found[side] = peak(side, asked.device, **shape)
        yield found
    yield {**found, "ours_of_plain": found["ours"] / max(1, found["plain"])}


def growth(asked: Namespace, deadline: float) -> Found:
    """How a step grows with n, m and T, beside the cost model where pandas is (growth.py)."""
    from growth import grid, judge, measure

    config = config_of(asked, {"task.few_shot": 0})
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    sizes = grid((4, 8), (2, 4, 8), (2, 4, 8)) if asked.toy else grid(*GROWTH)
    cells, took = [], 0.0
    while not cells or (time.monotonic() + took < deadline and len(cells[0].update) < ROUNDS):
        start = time.monotonic()
        more = measure(policy, config, prompts, sizes, rounds=1)
        took = time.monotonic() - start
        cells = [replace(old, generate=old.generate + new.generate, update=old.update + new.update)
                 for old, new in zip(cells, more, strict=True)] if cells else more  # fmt: skip
        yield {"cells": [asdict(cell) for cell in cells]}
    try:
        fitted = judge(cells)
    except ImportError as error:
        fitted = {"fit": f"not made: {error}"}
    yield {**fitted, "cells": [asdict(cell) for cell in cells]}


def rollouts(asked: Namespace, deadline: float) -> Found:
    """Rollouts beside raw vLLM (rollouts.py), both with plain weights and no adapter."""
    from rollouts import measure

    changes = {**GRPO, "engine.name": "vllm", "engine.sync": "merged"}
    yield from measure(config_of(asked, changes), ROUNDS, deadline)


def _share(deadline: float, parts: int) -> float:
    """When the first of so many equal parts of the time that is left ends."""
    now = time.monotonic()
    return now + (deadline - now) / parts


def _before(deadline: float) -> bool:
    return time.monotonic() < deadline


PARTS: dict[str, Callable[[Namespace, float], Found]] = {
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
