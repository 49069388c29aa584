"""Measure how a step grows with n, m and T, and compare it with the cost model of `pods plan`.

    python experiments/benchmarks/growth.py [--n 16 32 64] [--m 4 16 64] [--tokens 8 16 32] \
        [KEY=VALUE ...]                                                  overrides as for src/run.py

It generates n completions of exactly T tokens and updates on m of them, for every n, m and T with
m <= n, in turns. It prints JSON: for each T the model's fit (seconds = fixed + b n + c m) to the
medians and the largest residual; over all sizes the fit by tokens (seconds = fixed + d tokens); how
each phase grows with T, as an exponent and as R² of a straight line; and all measurements.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from step import configured, endless, pool

from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.training.clock import TrainClock
from pods.types import GenerationRequest, Prompt, Sampling

PHASES = ("generate", "update")


@dataclass(frozen=True, slots=True)
class Cell:
    """One size of a step, and the seconds of its phases in each round."""

    n: int
    m: int
    tokens: int
    """Length of each completion."""
    generate: tuple[float, ...]
    update: tuple[float, ...]


def grid(n: Sequence[int], m: Sequence[int], tokens: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return every (n, m, T) with m <= n."""
    return [size for size in product(n, m, tokens) if size[1] <= size[0]]


def measure(
    policy: Policy,
    config: Config,
    prompts: Sequence[Prompt],
    sizes: Sequence[tuple[int, int, int]],
    rounds: int,
) -> list[Cell]:
    """Time generation and update at every size, one after the other, round after round.

    This needs torch, transformers and peft only, and trains the policy.

    Args:
        policy: the policy to generate with and to train.
        config: config of a run; its n, m and token limit are ignored.
        prompts: token ids; each round uses one prompt for all sizes.
        sizes: (n, m, T).
        rounds: number of counted rounds; one more before them warms up.
    """
    policy = endless(policy)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    optimizer = make_optimizer(policy, config.update)
    on_gpu = policy.device.type == "cuda"
    clock = TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None)
    seconds: list[list[dict[str, float]]] = [[] for _ in sizes]
    for number in range(rounds + 1):
        prompt = prompts[number % len(prompts)]
        for (n, m, tokens), phases in zip(sizes, seconds, strict=True):
            sampling = Sampling(config.sampling.temperature, tokens)
            limit = replace(config.sampling, max_completion_tokens=tokens)
            with clock.phase("generate"):
                [rollouts] = engine.generate(GenerationRequest([prompt], n, sampling, [number]))
            advantages = np.where(np.arange(m) % 2, 1.0, -1.0)
            with clock.phase("update"):
                context = Context(policy, replace(config, sampling=limit))
                update(context, optimizer, rollouts[:m], advantages, [m], 1)
            phases.append(clock.commit().wall)
    return [
        Cell(*size, *(tuple(row[phase] for row in rows[1:]) for phase in PHASES))
        for size, rows in zip(sizes, seconds, strict=True)
    ]


def judge(cells: Sequence[Cell]) -> dict[str, Any]:
    """Fit the cost model of `pods plan` to the medians for each T, and each phase's growth in T."""
    import pandas as pd  # imported here: gpu.py measures without pandas and the analysis

    rows = [
        {"run": f"{c.n}-{c.m}-{c.tokens}", "n": c.n, "m": c.m, "tokens": c.tokens, "prompts": 1,
         "rule": "all", "arm": "", "generated_tokens": c.n * c.tokens,
         "trained_tokens": c.m * c.tokens,
         **{f"seconds/{phase}": statistics.median(getattr(c, phase)) for phase in PHASES}}
        for c in cells
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    return {
        "at_tokens": {
            str(tokens): _fitted(cells_at) for tokens, cells_at in table.groupby("tokens")
        },
        "by_tokens": _fitted_by_tokens(table),
        "growth_in_tokens": {
            "generate": _growth(table, "seconds/generate", "n"),
            "update": _growth(table, "seconds/update", "m"),
        },
    }


def _model(table: Any) -> Any:
    """Fit the cost model, with each cell as a run of one step."""
    import pandas as pd

    from pods.analysis.cost.model import cost_model, per_run

    none = pd.DataFrame(columns=["run", "step", "train_seconds"])
    return cost_model(per_run(table, table, none), table)


def _fitted(table: Any) -> dict[str, Any]:
    """Fit the cells of one T: the seconds of each term, R², and the largest residual."""
    from pods.analysis.cost.model import residuals

    model = _model(table)
    fits = {"step": model.total, **model.phases}
    off = residuals(model).percent
    return {
        "fits": {
            what: {term: line.at({term: 1.0})[0] for term in line.terms} | {"r2": line.r2}
            for what, line in fits.items()
        },
        "largest_residual_percent": float(off[off.abs().idxmax()]),
    }


def _fitted_by_tokens(table: Any) -> dict[str, dict[str, float]]:
    """Fit each phase of all cells by its own tokens, whatever n, m and T they come from."""
    return {
        phase: {term: line.at({term: 1.0})[0] for term in line.terms} | {"r2": line.r2}
        for phase, line in _model(table).tokens.items()
    }


def _growth(table: Any, column: str, size: str) -> dict[str, dict[str, float]]:
    """Return, per n or m, the exponent of T (by a log-log fit) and R² of a straight line in T."""
    from pods.analysis.cost.least_squares import fit

    growth = {}
    for count, cells in table.groupby(size):
        medians = cells.groupby("tokens", as_index=False)[column].median()
        if len(medians) > 1:
            slope, _ = np.polyfit(np.log(medians.tokens), np.log(medians[column]), 1)
            line = fit(medians, column, ("fixed", "tokens"))
            growth[f"{size}={count}"] = {"exponent": float(slope), "linear_r2": line.r2}
    return growth


def main() -> None:
    """Measure, fit, and print both."""
    from pods.runs.attempts import environment

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--m", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--tokens", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    options, overrides = parser.parse_known_args()
    config = configured(overrides)
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    cells = measure(
        policy, config, prompts, grid(options.n, options.m, options.tokens), options.rounds
    )
    print(json.dumps({
        "environment": environment(), "threads": torch.get_num_threads(), "words": overrides,
        **judge(cells), "cells": [asdict(cell) for cell in cells],
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
