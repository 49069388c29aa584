"""One vLLM engine on the weights of a shape: its checks, its rate, steps with it."""

import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import torch
from gpu_config import Skipped, shape_config
from gpu_step import PROMPT, SIZES, random_policy, random_prompts, whole_steps
from step import make_engine

from pods.types import GenerationRequest, Sampling

RATE_ROUNDS = 3


def vllm(options: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Start vLLM once; run hardware/vllm_checks.py, time it beside raw vLLM, take steps.

    No completion ends before the limit, and the lengths of the steps are recorded.
    """
    if find_spec("vllm") is None:
        raise Skipped("vLLM is not installed")
    from gpu_checks import run_all
    from vllm_checks import CHECKS, Running

    config = shape_config(options, {"engine.name": "vllm", "engine.sync": "adapter"})
    torch.set_num_threads(config.hardware.threads)
    policy, config = random_policy(config, Path(mkdtemp()))
    prompts = random_prompts(policy, 100, 40 if options.toy else PROMPT)
    start = time.perf_counter()
    engine = make_engine(policy, config)
    results: dict[str, Any] = {"start_seconds": time.perf_counter() - start, "steps": {}}
    results["facts"] = dict(engine.facts)  # a card's ways are not those of a CPU
    yield results
    half = time.monotonic() + (deadline - time.monotonic()) / 2
    running = Running(policy, engine, config, prompts, half)
    checks = {check.__name__: partial(check, running) for check in CHECKS}
    failed = None
    try:
        for results["checks"] in run_all(checks):
            yield results
    except AssertionError as error:  # rates and steps are still informative
        failed = error
    longest = config.sampling.max_completion_tokens
    results["tokens_per_second"] = rates(engine, prompts[:1], config.nm.n, longest)
    yield results
    sizes = ((4, 4), (16, 4)) if options.toy else SIZES
    yield from whole_steps(policy, config, engine, prompts, sizes, results, deadline)
    if failed is not None:
        raise failed


def rates(engine: Any, prompts: list[Any], n: int, tokens: int) -> dict[str, float]:
    """Compare our rollouts with vLLM's own loop in the same engine; the sides take turns."""
    sampling = Sampling(1.0, tokens)

    def ours(turn: int) -> None:
        engine.generate(GenerationRequest(prompts, n, sampling, [turn]))

    def raw(turn: int) -> None:
        settings = engine.sampling_params(n, sampling, turn)
        for i, ids in enumerate(prompts):
            prompt = {"prompt_token_ids": list(ids)}
            name = f"raw-{turn}-{i}"
            engine.vllm.add_request(name, prompt, settings, lora_request=engine.adapter)
        with torch.inference_mode():
            while engine.vllm.has_unfinished_requests():
                engine.vllm.step()

    seconds: dict[str, list[float]] = {"ours": [], "raw": []}
    for turn in range(RATE_ROUNDS + 1):  # the first warms up
        for side in (ours, raw):
            start = time.perf_counter()
            side(turn)
            seconds[side.__name__].append(time.perf_counter() - start)
    drawn = len(prompts) * n * tokens
    rate = {name: drawn / median(each[1:]) for name, each in seconds.items()}
    return {**rate, "ours_of_raw": rate["ours"] / rate["raw"]}
