"""Steps and updates of a policy of random weights, beside what they cannot be faster than."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from gpu_config import QWEN_WORDS, SHAPES, shape_config
from gpu_probe import gemm_tflops, kernels, seconds_of
from step import Endless, endless, make_engine, make_loop, steps
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.policy import attention
from pods.policy.compiled import fuse_layers
from pods.policy.lora import with_adapters
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, set_cuda_math
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.tasks.load import load as load_task
from pods.training.clock import PHASES, host_peak
from pods.types import Prompt, Rollout

Results = Iterator[dict[str, Any]]
ROUNDS = 5  # at most: the deadline cuts them
PROMPT = 130  # tokens of a question of GSM8K with its instruction
SIZES = ((16, 16), (64, 16))  # n, m of the steps


def random_policy(config: Config, folder: Path | None = None) -> tuple[Endless, Config]:
    """Make a policy with adapters on the config's device; no id stops its completions.

    Args:
        config: its `model.name` is a key of `SHAPES`.
        folder: where to write weights and tokenizer for an engine that reads files; None: nowhere.

    Returns:
        The policy, and the config with `model.path` set to the folder.
    """
    set_cuda_math()
    sizes = SHAPES[config.model.name]
    with torch.random.fork_rng(), torch.device(config.hardware.device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**sizes), dtype=getattr(torch, config.model.dtype),
            attn_implementation=attention.NAME,
        )  # fmt: skip
    toy = config.model.name == "toy"  # its output layer is padded, too
    words = 331 if toy else min(QWEN_WORDS, sizes["vocab_size"])
    tokenizer = stand_in_tokenizer(words)
    if folder is not None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        config = replace(config, model=replace(config.model, path=str(folder)))
    if config.update.compiled:
        fuse_layers(model)
    policy = Policy(with_adapters(model.eval(), config), tokenizer, None)
    return endless(policy), config


def stand_in_tokenizer(words: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer of so many words, of which the first pads and the second ends."""
    model = Tokenizer(WordLevel({f"w{i}": i for i in range(words)}, "w0"))
    special = {"pad_token": "w0", "eos_token": "w1", "unk_token": "w0"}
    return PreTrainedTokenizerFast(tokenizer_object=model, **special)


def random_prompts(policy: Policy, count: int, tokens: int) -> list[Prompt]:
    """Draw prompts of random ids: the ids do not change the work."""
    rng = np.random.default_rng(0)
    return [tuple(row) for row in rng.integers(2, policy.vocabulary, (count, tokens)).tolist()]


def random_rollouts(prompt: Prompt, lengths: Sequence[int], vocabulary: int) -> list[Rollout]:
    """Return one rollout per length, of random ids: the ids do not change the work."""
    rng = np.random.default_rng(0)
    drawn = [tuple(rng.integers(vocabulary, size=length).tolist()) for length in lengths]
    return [Rollout(prompt, ids, np.zeros(len(ids), np.float32), "", False) for ids in drawn]


def step(options: Namespace, deadline: float) -> Results:
    """Time the update by itself and whole steps with the transformers engine.

    Every completion has the maximal length. Of the update there are the seconds beside their
    floor, the kernels that take longest, and the peak memory.
    """
    config = shape_config(options, {})
    torch.set_num_threads(config.hardware.threads)
    start = perf_counter()
    policy, config = random_policy(config)
    results: dict[str, Any] = {"weights_seconds": perf_counter() - start, "update": {}, "steps": {}}
    prompts = random_prompts(policy, 100, 12 if options.toy else PROMPT)
    longest = config.sampling.max_completion_tokens
    sizes = ((4, 4), (16, 4)) if options.toy else SIZES
    for rows in sorted({m for _, m in sizes} | {n for n, _ in sizes}):
        for measured in update_alone(policy, config, prompts[0], [longest] * rows):
            results["update"][f"{rows} x {longest}"] = measured
            yield results
    engine = make_engine(policy, config)
    yield from whole_steps(policy, config, engine, prompts, sizes, results, deadline)


def update_alone(policy: Policy, config: Config, prompt: Prompt, lengths: Sequence[int]) -> Results:
    """Measure an update on random completions of one prompt: seconds, floor, memory, kernels."""
    rollouts = random_rollouts(prompt, lengths, policy.vocabulary)
    advantages = np.resize([1.0, -1.0], len(lengths))
    optimizer = make_optimizer(policy, config.update)

    def work() -> None:
        update(UpdateContext(policy, config), optimizer, rollouts, advantages, [len(rollouts)], 1)

    _reset_peak(config)
    seconds = seconds_of(work, config.hardware.device, rounds=3)
    floor = update_floor(config, len(lengths), max(lengths))
    measured = {
        "seconds": seconds, "floor_seconds": floor, "times_the_floor": seconds / floor,
        "tokens_per_second": sum(lengths) / seconds, "peak_bytes": _peak(config),
    }  # fmt: skip
    yield measured
    if len(rollouts) <= SIZES[0][1]:  # of one micro-batch: more kernels take long to count
        yield {**measured, "kernels": kernels(work, 30)}


def update_floor(config: Config, rows: int, tokens: int) -> float:
    """Return the least seconds of an update: its products at the rate that the device reaches now.

    Forward, and back to the states, 2 operations each per weight and token (Kaplan et al.,
    arXiv:2001.08361, section 2.1, without the gradient of frozen weights); of the output layer only
    for completion tokens, which here are nearly all. Attention and adapters are not counted.
    """
    sizes, device = SHAPES[config.model.name], config.hardware.device
    hidden, width = sizes["hidden_size"], sizes["hidden_size"] // sizes["num_attention_heads"]
    projections = 2 * hidden * (hidden + width * sizes["num_key_value_heads"])
    layer = projections + 3 * hidden * sizes["intermediate_size"]
    weights = sizes["num_hidden_layers"] * layer + hidden * sizes["vocab_size"]
    micro_batch = min(config.update.micro_batch_tokens, rows * tokens)
    rate = gemm_tflops(sizes, config.computed_in(), device, micro_batch) * 1e12
    return 4 * weights * rows * tokens / rate


def _reset_peak(config: Config) -> None:
    if config.hardware.device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak(config: Config) -> int:
    """Return the largest bytes since the last reset; on a CPU, of the process so far."""
    on_gpu = config.hardware.device == "cuda"
    return torch.cuda.max_memory_allocated() if on_gpu else host_peak()


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
                "steps": len(rows[1:]), **medians, "peak_bytes": _peak(config),
                "prompt_tokens": row["prompt_tokens"],
                "completion_tokens": row["completion_tokens"],
            }  # fmt: skip
            yield results
