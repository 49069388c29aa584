"""A smoke step for `pods doctor`: load what a run loads, generate, compare log-probs, update."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from textwrap import shorten
from typing import TypeVar

import numpy as np
import torch

from pods.config.schema import Config
from pods.policy.process_group import SINGLE_PROCESS
from pods.seeding import derive
from pods.training.build import build_worker
from pods.training.data import load_data
from pods.training.mismatch import EngineMismatch, make_monitor
from pods.training.workers import Worker
from pods.types import GenerationRequest, Rollout, Sampling

QUESTIONS, ROLLOUTS = 4, 4
BATCH_TOKENS = 64
ANSWER_TOKENS = 48  # enough to recognise language
LINE_COLUMNS = 80
T = TypeVar("T")
Lines = Iterator[tuple[str, str]]  # label and text of each


def smoke_step(config: Config) -> Lines:
    """Load what a run loads, generate, and take an update; yield a line for each result.

    `EngineMismatch`: the engine's log-probs are not the trainer's. `ValueError`: weights or data
    are missing, or the run does not fit into memory.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries
    data, seconds = _timed(lambda: load_data(config, lambda: None))
    sizes = f"{len(data.task.train):,} train and {len(data.task.test):,} test questions"
    yield "loaded", f"{sizes}: {seconds:.1f} s"
    if data.memory.roomy:  # else it is printed already
        yield "memory", data.memory.text
    worker, seconds = _timed(lambda: build_worker(config, data, lambda: None, SINGLE_PROCESS))
    parameters = sum(parameter.numel() for parameter in worker.policy.model.parameters())
    yield "loaded", f"policy with {parameters:,} parameters, and engine: {seconds:.1f} s"
    prompts, seeds = data.questions[:QUESTIONS], [derive(1, "trial", k) for k in range(QUESTIONS)]
    greedy = GenerationRequest(prompts[:1], 1, Sampling(0.0, ANSWER_TOKENS), [0])
    [[answer]] = worker.engine.generate(greedy)
    yield "question", shorten(data.task.test[0].messages[-1]["content"], LINE_COLUMNS)
    yield "answer", shorten(answer.text, LINE_COLUMNS)
    tokens = min(BATCH_TOKENS, config.sampling.max_completion_tokens)
    sampling = Sampling(config.sampling.temperature, tokens)
    request = GenerationRequest(prompts, ROLLOUTS, sampling, seeds[: len(prompts)])
    groups, seconds = _timed(lambda: worker.engine.generate(request))
    rollouts = [rollout for group in groups for rollout in group]
    speed = sum(len(rollout.completion_ids) for rollout in rollouts) / seconds
    yield "speed", f"{speed:,.0f} tokens/s, {len(rollouts)} rollouts of up to {tokens} tokens"
    yield from _update(worker, config, rollouts)


def _update(worker: Worker, config: Config, rollouts: list[Rollout]) -> Lines:
    """Take one optimizer update with advantages of alternating sign, and compare log-probs in it.

    `EngineMismatch` is raised at the mean gap past which a run would fail.
    """
    if config.sharded() and config.hardware.processes > 1:
        yield "update", f"not tried: it needs the memory of {config.hardware.processes} processes"
        return
    once = replace(config, update=replace(config.update, epochs=1, minibatches=1))
    once = replace(once, engine=replace(config.engine, lag=0))  # here the weights are the same
    advantages = np.where(np.arange(len(rollouts)) % 2, 1.0, -1.0)
    trial, size = replace(worker, config=once), [len(rollouts)]
    stats, seconds = _timed(lambda: trial.update(rollouts, advantages, size, 1))
    mean, monitor = stats.logprob_gap_mean, make_monitor(once)
    if monitor.fails and not mean <= monitor.bound:  # so that NaN fails, too
        raise EngineMismatch(
            f"the engine's log-probs differ from the trainer's by {mean:.2g} on average, past "
            f"{monitor.bound:g}"
        )
    yield "gap", f"engine and trainer: mean |Δlogp| {mean:.1e}, max {stats.logprob_gap:.1e}"
    prompts = {rollout.prompt_ids for rollout in rollouts}  # each is encoded once
    tokens = sum(map(len, [*prompts, *(rollout.completion_ids for rollout in rollouts)]))
    yield "update", f"gradient norm {stats.grad_norm:.2g}: {seconds:.1f} s for {tokens} tokens"


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of some work and the seconds it took, including work on a GPU."""
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return result, time.perf_counter() - start
