"""How a step grows with n, m and T: measured, and as the cost model of `pods plan` has it.

    python experiments/benchmarks/growth.py [--n 16 32 64] [--m 4 16 64] [--tokens 8 16 32] \
        [KEY=VALUE ...]                                                  words as of src/run.py

Generates n completions of exactly T tokens, updates on m of them, for every n, m and T that fit,
in turns. Prints JSON: for each T the model's fit (seconds = fixed + b n + c m) to the medians and
the largest residual; over all sizes the fit by tokens (seconds = fixed + d tokens); how each phase
grows with T, as an exponent and as R² of a straight line; and all that was measured.
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

from pods.config import Config
from pods.policy.load import Policy, load
from pods.policy.optimizer import make_optimizer
from pods.policy.update import update
from pods.records import Sampling
from pods.rollouts.engine import Prompt
from pods.rollouts.transformers_engine import TransformersEngine
from pods.runs.clock import TrainClock

PHASES = ("generate", "update")


@dataclass(frozen=True, slots=True)
class Cell:
    """One size of a step, and the seconds that its phases took, round by round."""

    n: int
    m: int
    tokens: int
    """Of each completion."""
    generate: tuple[float, ...]
    update: tuple[float, ...]


def grid(n: Sequence[int], m: Sequence[int], tokens: Sequence[int]) -> list[tuple[int, int, int]]:
    """Every (n, m, T) with m <= n."""
    return [size for size in product(n, m, tokens) if size[1] <= size[0]]


def measure(
    policy: Policy,
    config: Config,
    prompts: Sequence[Prompt],
    sizes: Sequence[tuple[int, int, int]],
    rounds: int,
) -> list[Cell]:
    """Time generation and update at every size, one after the other, round after round.

    Needs torch, transformers and peft only. The policy is trained meanwhile.

    Args:
        policy: of the transformers engine.
        config: of a run; its n, m and token limit are not looked at.
        prompts: token ids; each round takes one, the same for all sizes.
        sizes: (n, m, T).
        rounds: that are counted; one before them warms up.
    """
    policy = endless(policy)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    optimizer = make_optimizer(policy, config.update)
    on_gpu = policy.device.type == "cuda"
    clock = TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None)
    seconds: list[list[dict[str, float]]] = [[] for _ in sizes]
    for number in range(rounds + 1):
        prompt = prompts[number % len(prompts)]
        for (n, m, tokens), taken in zip(sizes, seconds, strict=True):
            sampling = Sampling(config.sampling.temperature, tokens)
            limit = replace(config.sampling, max_completion_tokens=tokens)
            with clock.phase("generate"):
                [rollouts] = engine.generate([prompt], n, sampling, [number])
            signs = np.where(np.arange(m) % 2, 1.0, -1.0)
            with clock.phase("update"):
                update(policy, optimizer, replace(config, sampling=limit), rollouts[:m], signs, 1)
            taken.append(clock.commit())
    return [
        Cell(*size, *(tuple(row[phase] for row in taken[1:]) for phase in PHASES))
        for size, taken in zip(sizes, seconds, strict=True)
    ]


def judge(cells: Sequence[Cell]) -> dict[str, Any]:
    """Fit the cost model of `pods plan` to the medians for each T, and each phase's growth in T."""
    import pandas as pd  # here, with the analysis: a GPU's script measures without them

    rows = [
        {"run": f"{c.n}-{c.m}-{c.tokens}", "n": c.n, "m": c.m, "tokens": c.tokens, "prompts": 1,
         "rule": "all", "arm": "", "generated_tokens": c.n * c.tokens,
         "trained_tokens": c.m * c.tokens,
         **{f"seconds/{phase}": statistics.median(getattr(c, phase)) for phase in PHASES}}
        for c in cells
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    return {
        "at_tokens": {str(tokens): _fitted(of) for tokens, of in table.groupby("tokens")},
        "by_tokens": _fitted_by_tokens(table),
        "growth_in_tokens": {
            "generate": _growth(table, "seconds/generate", "n"),
            "update": _growth(table, "seconds/update", "m"),
        },
    }


def _model(table: Any) -> Any:
    """The cost model, a cell being a run of one step."""
    import pandas as pd

    from pods.analysis.cost.model import cost_model, per_run

    none = pd.DataFrame(columns=["run", "step", "train_seconds"])
    return cost_model(per_run(table, table, none), table)


def _fitted(table: Any) -> dict[str, Any]:
    """Of the cells of one T: what each term costs in seconds, R², the largest residual."""
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
    """Of all cells: a phase by its own tokens, whatever n, m and T they come from."""
    return {
        phase: {term: line.at({term: 1.0})[0] for term in line.terms} | {"r2": line.r2}
        for phase, line in _model(table).tokens.items()
    }


def _growth(table: Any, column: str, size: str) -> dict[str, dict[str, float]]:
    """For each n or m: the exponent of T by a line through the logarithms, and R² of one in T."""
    from pods.analysis.cost.least_squares import fit

    found = {}
    for count, of in table.groupby(size):
        medians = of.groupby("tokens", as_index=False)[column].median()
        if len(medians) > 1:
            slope, _ = np.polyfit(np.log(medians.tokens), np.log(medians[column]), 1)
            line = fit(medians, column, ("fixed", "tokens"))
            found[f"{size}={count}"] = {"exponent": float(slope), "linear_r2": line.r2}
    return found


def main() -> None:
    """Measure and judge, and print both."""
    from pods.runs.environment import environment

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--m", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--tokens", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    asked, words = parser.parse_known_args()
    config = configured(words)
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    _, prompts = pool(config, policy.tokenizer)
    cells = measure(policy, config, prompts, grid(asked.n, asked.m, asked.tokens), asked.rounds)
    print(json.dumps({
        "environment": environment(), "threads": torch.get_num_threads(), "words": words,
        **judge(cells), "cells": [asdict(cell) for cell in cells],
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
