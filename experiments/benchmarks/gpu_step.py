"""Steps and updates of a policy of random weights, beside what they cannot be faster than."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from gpu_config import shape_config
from gpu_model import random_policy, random_prompts
from gpu_probe import bandwidth, gemm_tflops, kernels, seconds_of
from growth import grid, judge
from growth import measure as measure_growth
from step import make_engine, make_loop, steps
from update import random_rollouts

from pods.analysis.cost.roofline import Gpu, step_bound
from pods.config.schema import Config
from pods.engines.base import Engine
from pods.memory.architecture import KNOWN
from pods.memory.plan import LIBRARIES, Lengths, make_plan
from pods.memory.shape import read_shape
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.tasks.load import load as load_task
from pods.training.clock import PHASES, HostMemory

Results = Iterator[dict[str, Any]]
ROUNDS = 10  # at most: the deadline cuts them
EAGER_TOKENS = 128  # of a completion with the transformers engine, whose tokens take long
PROMPT = 130  # tokens of a question of GSM8K with its instruction
SIZES = ((16, 16), (64, 16))  # n, m of the steps
GROWTH = ((16, 64), (4, 16, 64), (8, 16, 32))  # n, m and T, every m <= n


def step(options: Namespace, deadline: float) -> Results:
    """Time the update by itself and whole steps with the transformers engine.

    Every completion has the maximal length. Of the update there are the seconds beside their
    floor, the kernels that take longest, and the peak memory beside the plan.
    """
    config = shape_config(options, {})
    torch.set_num_threads(config.hardware.threads)
    start = perf_counter()
    policy, config = random_policy(config)
    prompt_tokens = 12 if options.toy else PROMPT
    results: dict[str, Any] = {"weights_seconds": perf_counter() - start, "update": {}, "steps": {}}
    prompts = random_prompts(policy, 100, prompt_tokens)
    longest = config.sampling.max_completion_tokens
    sizes = ((4, 4), (16, 4)) if options.toy else SIZES
    for rows in sorted({m for _, m in sizes} | {n for n, _ in sizes}):
        for measured in update_alone(policy, config, prompts[0], [longest] * rows):
            results["update"][f"{rows} x {longest}"] = measured
            yield results
    eager = min(longest, EAGER_TOKENS)
    config = replace(config, sampling=replace(config.sampling, max_completion_tokens=eager))
    engine = make_engine(policy, config)
    yield from whole_steps(policy, config, engine, prompts, sizes, results, deadline)
    results["memory"] = {"generate": peak_beside_plan(config, prompt_tokens, "generate")}
    yield results


def update_alone(
    policy: Policy, config: Config, prompt: Sequence[int], lengths: Sequence[int]
) -> Results:
    """Measure an update on random completions of one prompt: seconds, floor, memory, kernels."""
    rollouts = random_rollouts(prompt, lengths, policy.vocabulary)
    advantages = np.resize([1.0, -1.0], len(lengths))
    optimizer = make_optimizer(policy, config.update)

    def work() -> None:
        update(Context(policy, config), optimizer, rollouts, advantages, [len(rollouts)], 1)

    _reset_peak(config)
    device = config.hardware.device
    seconds = seconds_of(work, device, rounds=3)
    floor = floors(config, len(lengths), len(lengths), sum(lengths) / len(lengths))["update"]
    measured = {
        "seconds": seconds, "floor_seconds": floor, "times_the_floor": seconds / floor,
        "tokens_per_second": sum(lengths) / seconds,
        "memory": peak_beside_plan(config, len(prompt), "update"),
    }  # fmt: skip
    yield measured
    yield {**measured, "kernels": kernels(work, 30)}


def floors(config: Config, n: int, m: int, tokens: float) -> dict[str, float]:
    """Return the least seconds of a step's phases at the rates that this device reaches now.

    These are the bounds of `pods.analysis.cost.roofline`, with the measured rate of a product and
    of a copy in place of a data sheet's.
    """
    assert config.model.hub is not None
    device = config.hardware.device
    micro_batch = min(config.update.micro_batch_tokens, int(m * tokens))
    rate = gemm_tflops(KNOWN[config.model.hub], config.computed_in(), device, micro_batch) * 1e12
    sized = replace(config, nm=replace(config.nm, n=n, m=m))
    shape = read_shape(replace(config.model, path=None))
    return asdict(step_bound(sized, shape, Gpu("measured", rate, bandwidth(device), 0), tokens))


def _reset_peak(config: Config) -> None:
    if config.hardware.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        HostMemory().reset()


def peak_beside_plan(config: Config, prompt_tokens: int, phase: str) -> dict[str, float]:
    """Return the largest bytes since the last reset, and the plan's of the same phase.

    On a card the plan's libraries do not count, which torch does not allocate; on a CPU the
    resident memory of the whole process is measured.
    """
    lengths = Lengths(prompt_tokens, 0)
    plan = make_plan(config, read_shape(replace(config.model, path=None)), lengths)
    on_gpu = config.hardware.device == "cuda"
    planned = sum(plan.held.values()) + sum(getattr(plan, phase).values())
    planned -= LIBRARIES["cuda"] if on_gpu else 0
    peak = torch.cuda.max_memory_allocated() if on_gpu else HostMemory().peak()
    return {"bytes": peak, "planned_bytes": planned, "planned_of_measured": planned / peak}


def whole_steps(
    policy: Any, config: Config, engine: Engine, prompts: Sequence[Any],
    sizes: Sequence[tuple[int, int]], results: dict[str, Any], deadline: float,
) -> Results:  # fmt: skip
    """Take steps of the real loop at each n and m; `results` gets medians under "steps"."""
    task = load_task(config.task)
    task = replace(task, train=task.train[: len(prompts)])  # of which only the number matters
    for index, (n, m) in enumerate(sizes):
        until = monotonic() + (deadline - monotonic()) / (len(sizes) - index)
        _reset_peak(config)
        sized = replace(config, nm=replace(config.nm, n=n, m=m))
        loop = make_loop(policy, sized, engine, task, prompts)
        rows = list[dict[str, Any]]()
        for row in islice(steps(loop, lambda until=until: monotonic() < until), ROUNDS + 1):  # type: ignore[misc]
            rows.append(row)
            counted = rows[1:] or rows  # the first warms up
            medians = {key: median(row[key] for row in counted) for key in ("seconds", *PHASES)}
            results["steps"][f"{n} to {m}"] = {
                "steps": len(rows[1:]), **medians,
                "floors": floors(config, n, m, max(row["completion_tokens"])),
                "prompt_tokens": row["prompt_tokens"],
                "completion_tokens": row["completion_tokens"],
            }  # fmt: skip
            yield results


def growth(options: Namespace, deadline: float) -> Results:
    """Measure how a step grows with n, m and T, and fit the cost model if possible (growth.py)."""
    config = shape_config(options, {})
    torch.set_num_threads(config.hardware.threads)
    policy, config = random_policy(config)
    prompts = random_prompts(policy, 100, 12 if options.toy else PROMPT)
    sizes = grid((4, 8), (2, 4, 8), (2, 4, 8)) if options.toy else grid(*GROWTH)
    cells, elapsed, rounds = [], 0.0, 2 if options.toy else ROUNDS
    while not cells or (monotonic() + elapsed < deadline and len(cells[0].update) < rounds):
        start = monotonic()
        more = measure_growth(policy, config, prompts, sizes, rounds=1)
        elapsed = monotonic() - start
        cells = [replace(old, generate=old.generate + new.generate, update=old.update + new.update)
                 for old, new in zip(cells, more, strict=True)] if cells else more  # fmt: skip
        yield {"cells": [asdict(cell) for cell in cells]}
    try:
        fitted = judge(cells)
    except ImportError as error:
        fitted = {"fit": f"not computed: {error}"}
    yield {**fitted, "cells": [asdict(cell) for cell in cells]}
