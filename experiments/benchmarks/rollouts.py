"""Rollouts as the training loop draws them, beside raw vLLM on the same prompts and settings.

    python experiments/benchmarks/rollouts.py [KEY=VALUE ...]      words as of src/run.py

Both engines live in this process, with the same arguments and the same weights, and take turns.
Ours is `VllmEngine.generate` (prefix cache emptied, a check between tokens, records made); the
other is `LLM.generate` on the same token ids. Prints JSON: medians, and the ratio of each pair.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from vllm import LLM

from pods.checks import build
from pods.config import Config
from pods.policy.load import load
from pods.records import Sampling
from pods.rollouts.vllm_engine import VllmEngine
from pods.rollouts.vllm_setup import arguments
from pods.tasks.load import load as load_task
from pods.tasks.prompts import fitting

ROUNDS = 5


def measure(
    config: Config, rounds: int, deadline: float = float("inf")
) -> Iterator[dict[str, Any]]:
    """Start both engines and take turns, the first of which is not counted.

    Args:
        config: of the run; `engine.sync=merged`, so that raw vLLM has the same weights.
        rounds: turns that count.
        deadline: `time.monotonic()` after which no turn begins.

    Yields:
        After each turn tokens/s of both sides, medians, and the median ratio of a turn.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    task = load_task(config.task)
    _, prompts, _ = fitting(task.train[:100], policy.tokenizer, config.sampling.max_prompt_tokens)
    ours = VllmEngine(policy, config, lambda: None)
    raw = LLM(**arguments(config))

    sampling = Sampling(config.sampling.temperature, config.sampling.max_completion_tokens)
    rows = []
    for turn in range(rounds + 1):
        if time.monotonic() > deadline:
            return
        first = turn * config.prompts_per_step
        asked = prompts[first : first + config.prompts_per_step]
        row = {}
        for name in ("raw", "ours") if turn % 2 else ("ours", "raw"):
            start = time.perf_counter()
            if name == "ours":
                groups = ours.generate(asked, config.nm.n, sampling, range(len(asked)))
                tokens = sum(len(r.completion_ids) for group in groups for r in group)
            else:
                settings = [ours.parameters(config.nm.n, sampling, i) for i in range(len(asked))]
                found = raw.generate([{"prompt_token_ids": list(p)} for p in asked], settings,
                                     use_tqdm=False)  # fmt: skip
                tokens = sum(len(one.token_ids) for output in found for one in output.outputs)
            row[name] = tokens / (time.perf_counter() - start)
        if turn:  # the first round warms up
            rows.append(row)
            yield {
                "ours_tokens_per_second": statistics.median(row["ours"] for row in rows),
                "raw_tokens_per_second": statistics.median(row["raw"] for row in rows),
                "ratio": statistics.median(row["ours"] / row["raw"] for row in rows),
                "rounds": list(rows),
            }


def main(words: list[str]) -> None:
    """Take turns, and print what each took."""
    from pods.compose import compose  # here: a GPU's script brings a config of its own

    config = build(compose(["engine=vllm", "tracking=none", *words]))
    *_, found = measure(config, ROUNDS)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
