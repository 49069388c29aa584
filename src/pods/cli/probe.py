"""A smoke step for `pods doctor`: load what a run loads, generate, compare log-probs, update.

The benchmark `experiments/benchmarks/calibrate.py` measures engines with the same functions.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.engines.sync_check import check_weight_sync
from pods.memory.fit import refuse_unless_it_fits
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load, load_tokenizer
from pods.policy.scoring import Context, score_all
from pods.policy.update import update
from pods.seeding import derive
from pods.tasks.load import load as load_task
from pods.tasks.prompts import drop_long_prompts
from pods.training.build import lengths, make_engine
from pods.training.mismatch import EngineMismatch, make_monitor
from pods.types import GenerationRequest, Prompt, Rollout, Sampling

QUESTIONS, ROLLOUTS = 4, 4  # of the smoke step
BATCH_TOKENS = 64
ANSWER_TOKENS = 48  # enough to recognise language
LINE_COLUMNS = 80
T = TypeVar("T")


def probe(config: Config) -> Iterator[tuple[str, str]]:
    """Load what a run loads, part by part, and take a small step.

    Yields:
        Label and text of each result.

    Raises:
        EngineMismatch: the engine's log-probs are not the trainer's.
        ValueError: weights or data are missing, or the run does not fit into memory.
    """
    quiet_and_threads(config)
    task, seconds = timed(lambda: load_task(config.task))
    sizes = f"{len(task.train):,} train and {len(task.test):,} test questions"
    yield "loaded", f"{sizes}: {seconds:.1f} s"
    tokenizer, limit = load_tokenizer(config), config.sampling.max_prompt_tokens
    _, all_prompts, _ = drop_long_prompts([*task.train, *task.test], tokenizer, limit)
    problems, prompts, _ = drop_long_prompts(task.test[:QUESTIONS], tokenizer, limit)
    if not prompts:
        raise ValueError(f"sampling.max_prompt_tokens={limit}: all test prompts are longer")
    yield "memory", refuse_unless_it_fits(config, lengths(all_prompts)).text
    policy, seconds = timed(lambda: load(config, tokenizer))
    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    yield "loaded", f"policy with {parameters:,} parameters: {seconds:.1f} s"
    engine, seconds = timed(lambda: make_engine(policy, config, lambda: None))
    yield "loaded", f"engine: {seconds:.1f} s"
    if config.engine.name == "vllm":
        _, seconds = timed(lambda: check_weight_sync(policy, engine, prompts[0]))
        yield "sync", f"the engine follows a change of the weights: {seconds:.1f} s"
    [[answer]], _ = timed_rollouts(engine, prompts[:1], 1, Sampling(0.0, ANSWER_TOKENS), 0)
    yield "question", _one_line(problems[0].messages[-1]["content"])
    yield "answer", _one_line(answer.text)
    tokens = min(BATCH_TOKENS, config.sampling.max_completion_tokens)
    sampling = Sampling(config.sampling.temperature, tokens)
    groups, speed = timed_rollouts(engine, prompts, ROLLOUTS, sampling, 1)
    rollouts = [rollout for group in groups for rollout in group]
    yield "speed", f"{speed:,.0f} tokens/s, {len(rollouts)} rollouts of up to {tokens} tokens"
    mean, largest = logprob_gap(policy, config, rollouts)
    yield "gap", f"engine and trainer: mean |Δlogp| {mean:.1e}, max {largest:.1e}"
    if not mean <= (bound := make_monitor(config).bound):  # so that NaN fails, too
        raise EngineMismatch(
            f"the engine's log-probs differ from the trainer's by {mean:.2g} on average, more than "
            f"engine.gap_bound={bound:g}"
        )
    yield "update", _update(policy, config, rollouts)


def _update(policy: Policy, config: Config, rollouts: Sequence[Rollout]) -> str:
    """Take one optimizer update with advantages of alternating sign."""
    processes = config.hardware.processes
    if config.sharded() and processes > 1:
        return f"not tried: it needs the memory of {processes} processes"
    config = replace(config, update=replace(config.update, epochs=1, minibatches=1))
    optimizer = make_optimizer(policy, config.update)
    advantages = np.where(np.arange(len(rollouts)) % 2, 1.0, -1.0)
    stats, seconds = timed(
        lambda: update(Context(policy, config), optimizer, rollouts, advantages, [len(rollouts)], 1)
    )
    return f"gradient norm {stats.grad_norm:.2g}: {seconds:.1f} s"


def quiet_and_threads(config: Config) -> None:
    """Give torch the threads of a run, and silence the libraries' progress bars and retries."""
    transformers_logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    torch.set_num_threads(config.hardware.threads)


def timed_rollouts(
    engine: Engine, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
) -> tuple[list[list[Rollout]], float]:
    """Draw n rollouts per prompt in one call; return them and the tokens generated per second."""
    seeds = [derive(seed, "trial", slot) for slot in range(len(prompts))]
    start = time.perf_counter()
    groups = engine.generate(GenerationRequest(prompts, n, sampling, seeds))
    seconds = time.perf_counter() - start
    return groups, sum(len(r.completion_ids) for group in groups for r in group) / seconds


def logprob_gap(policy: Policy, config: Config, rollouts: Sequence[Rollout]) -> tuple[float, float]:
    """Return mean and largest |engine log-prob - trainer log-prob| over the rollouts' tokens."""
    scores = score_all(Context(policy, config), rollouts)
    gaps = np.concatenate(
        [np.abs(r.logprobs - own.cpu().numpy()) for r, own in zip(rollouts, scores, strict=True)]
    )
    return float(gaps.mean(dtype=np.float64)), float(gaps.max())


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of some work and the seconds it took, including work on a GPU."""
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE_COLUMNS else f"{line[:LINE_COLUMNS]} ..."
