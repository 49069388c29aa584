"""Compare rollouts as the training loop draws them with raw vLLM on the same prompts and settings.

    python experiments/benchmarks/rollouts.py [KEY=VALUE ...]      overrides as for src/run.py

Both engines live in this process, with the same arguments and the same weights, and take turns.
Ours is `VllmEngine.generate`, which empties the prefix cache, checks for a stop between tokens and
builds rollouts; the other is `LLM.generate` on the same token ids. The script prints JSON: medians,
and the ratio of each turn.
"""

import json
import statistics
import sys
import time
from typing import Any

import torch
from vllm import LLM

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.engines.vllm_engine import VllmEngine
from pods.engines.vllm_setup import arguments
from pods.policy.policy import load
from pods.tasks.load import load as load_task
from pods.tasks.prompts import drop_long_prompts
from pods.types import GenerationRequest, Sampling

ROUNDS = 5


def measure(config: Config, rounds: int) -> dict[str, Any]:
    """Start both engines and take turns, the first of which is not counted.

    Args:
        config: config of the run; `engine.sync=merged`, so that raw vLLM has the same weights.
        rounds: turns that count.

    Returns:
        The median tokens/s of both sides and the median ratio of the turns.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    task = load_task(config.task)
    _, prompts, _ = drop_long_prompts(
        task.train[:100], policy.tokenizer, config.sampling.max_prompt_tokens
    )
    ours = VllmEngine(policy, config, lambda: None)
    raw = LLM(**arguments(config))

    sampling = Sampling(config.sampling.temperature, config.sampling.max_completion_tokens)
    rows = []
    for turn in range(rounds + 1):
        first = turn * config.prompts_per_step
        batch = prompts[first : first + config.prompts_per_step]
        row = {}
        for name in ("raw", "ours") if turn % 2 else ("ours", "raw"):
            start = time.perf_counter()
            if name == "ours":
                groups = ours.generate(
                    GenerationRequest(batch, config.nm.n, sampling, range(len(batch)))
                )
                tokens = sum(len(r.completion_ids) for group in groups for r in group)
            else:
                settings = [
                    ours.sampling_params(config.nm.n, sampling, i) for i in range(len(batch))
                ]
                prompt_ids = [{"prompt_token_ids": list(ids)} for ids in batch]
                outputs = raw.generate(prompt_ids, settings, use_tqdm=False)
                tokens = sum(len(one.token_ids) for output in outputs for one in output.outputs)
            row[name] = tokens / (time.perf_counter() - start)
        if turn:  # the first round warms up
            rows.append(row)
    return {
        "ours_tokens_per_second": statistics.median(row["ours"] for row in rows),
        "raw_tokens_per_second": statistics.median(row["raw"] for row in rows),
        "ratio": statistics.median(row["ours"] / row["raw"] for row in rows),
        "rounds": rows,
    }


def main(overrides: list[str]) -> None:
    """Take turns, and print the rates of both sides."""
    config = validate(compose(["engine=vllm", "tracking=none", *overrides]))
    print(json.dumps(measure(config, ROUNDS), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
