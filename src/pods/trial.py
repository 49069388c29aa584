"""A policy and its engine, loaded as a run loads them and put to a short test on real questions."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

from pods.assemble import lengths, make_engine
from pods.config import Config
from pods.memory.fit import refuse_unless_it_fits
from pods.policy.load import Policy, load, load_tokenizer
from pods.policy.optimizer import make_optimizer
from pods.policy.scoring import score_all
from pods.policy.update import update
from pods.proof import NotThePolicy, make_proof
from pods.randomness import derive
from pods.records import Problem, Rollout, Sampling
from pods.rollouts.canary import prove_it_follows
from pods.rollouts.engine import Engine, Prompt
from pods.tasks.load import load as load_task
from pods.tasks.prompts import fitting

MOVES = 3  # updates: few, so that the change is as small as a run's first ones are
SIGNS = (-1.0, 1.0)
SYNCS = 5
CALLS = 3
QUESTIONS, ROLLOUTS = 4, 4  # of doctor's small batch
BATCH_TOKENS = 64
ANSWER_TOKENS = 48  # enough to see whether it is language
LINE = 80  # columns of a question or an answer
T = TypeVar("T")


def examine(config: Config) -> Iterator[tuple[str, str]]:
    """Load what a run loads, part by part, and ask for an answer and a small batch of rollouts.

    Yields:
        Label and text of what was found, for `pods doctor`.

    Raises:
        NotThePolicy: the engine generates from other weights.
        ValueError: weights or data are not here, or the run does not fit into memory.
    """
    _settle(config)
    task, seconds = _timed(lambda: load_task(config.task))
    sizes = f"{len(task.train):,} train and {len(task.test):,} test questions"
    yield "loaded", f"{sizes}: {seconds:.1f} s"
    tokenizer, limit = load_tokenizer(config), config.sampling.max_prompt_tokens
    _, fit, _ = fitting([*task.train, *task.test], tokenizer, limit)
    if fit:  # else it is said below
        yield "memory", refuse_unless_it_fits(config, lengths(fit))
    policy, seconds = _timed(lambda: load(config, tokenizer))
    numbers = sum(parameter.numel() for parameter in policy.model.parameters())
    yield "loaded", f"policy, {numbers:,} parameters: {seconds:.1f} s"
    problems, prompts = _asked(task.test[:QUESTIONS], policy, config)
    engine, seconds = _timed(lambda: make_engine(policy, config, lambda: None))
    yield "loaded", f"engine: {seconds:.1f} s"
    if config.engine.name == "vllm":
        _, seconds = _timed(lambda: prove_it_follows(policy, engine, prompts[0]))
        yield "follows", f"the policy, after a change and a sync: {seconds:.1f} s"
    [[answer]], _ = _generate(engine, prompts[:1], 1, Sampling(0.0, ANSWER_TOKENS), 0)
    yield "question", _on_a_line(problems[0].messages[-1]["content"])
    yield "answer", _on_a_line(answer.text)
    tokens = min(BATCH_TOKENS, config.sampling.max_completion_tokens)
    sampling = Sampling(config.sampling.temperature, tokens)
    groups, speed = _generate(engine, prompts, ROLLOUTS, sampling, 1)
    batch = f"{len(prompts) * ROLLOUTS} rollouts of up to {tokens} tokens"
    yield "speed", f"{speed:,.0f} tokens/s, {batch}"
    mean, largest = _gap(policy, config, [rollout for group in groups for rollout in group])
    yield "gap", f"engine and trainer: mean |Δlogp| {mean:.1e}, max {largest:.1e}"
    if not mean <= (bound := make_proof(config).bound):  # so that NaN is past it
        raise NotThePolicy(f"the engine's log-probs are {mean:.2g} from the trainer's on average, "
                           f"past engine.gap_bound={bound:g}")  # fmt: skip


def measure(config: Config) -> dict[str, Any]:
    """Move the policy a little by real updates, and measure how its engine follows.

    The advantages are random signs: what counts is the size of the change, not where it leads.

    Returns:
        `sync_seconds` and `kept` (kept projection), None unless the engine has weights of its own;
        `tokens_per_second`, `gap_mean` and `gap_max`; `fit`, whether a run would go on.
    """
    _settle(config)
    task, policy = load_task(config.task), load(config)
    engine = make_engine(policy, config, lambda: None)
    optimizer = make_optimizer(policy, config.update)
    sampling = Sampling(config.sampling.temperature, config.sampling.max_completion_tokens)
    size = config.prompts_per_step * config.nm.groups
    _, fit = _asked(task.train[: (MOVES + CALLS) * size], policy, config)
    asked = list(islice(cycle(fit), (MOVES + CALLS) * size))

    def call(step: int) -> tuple[list[Rollout], float]:
        """The rollouts that a step would train on, m a group, and tokens a second of all n."""
        prompts = asked[(step - 1) * size : step * size]
        groups, speed = _generate(engine, prompts, config.nm.n, sampling, step)
        return [rollout for group in groups for rollout in group[: config.nm.m]], speed

    for step in range(1, MOVES + 1):  # the first calls warm the engine up
        rollouts, _ = call(step)
        rng = np.random.default_rng(derive(config.seed, "signs", step))
        signs = rng.choice(SIGNS, len(rollouts))
        update(policy, optimizer, config, rollouts, signs, step)
        engine.sync()
    syncs = [_timed(engine.sync) for _ in range(SYNCS)]
    calls = [call(step) for step in range(MOVES + 1, MOVES + CALLS + 1)]
    mean, largest = _gap(policy, config, calls[-1][0])
    handed_over, proof = config.engine.name == "vllm", make_proof(config)
    return {
        "sync_seconds": median(seconds for _, seconds in syncs) if handed_over else None,
        "tokens_per_second": median(speed for _, speed in calls),
        "gap_mean": mean,
        "gap_max": largest,
        "kept": syncs[-1][0],
        "fit": mean <= proof.bound and proof.keeps(syncs[-1][0]),
    }


def _settle(config: Config) -> None:
    """Give torch the threads that a run would have, and keep the screen for what is found."""
    transformers_logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a hub out of reach: each retry
    torch.set_num_threads(config.hardware.threads)


def _asked(
    problems: Sequence[Problem], policy: Policy, config: Config
) -> tuple[tuple[Problem, ...], tuple[Prompt, ...]]:
    """Those of a few problems whose prompt fits, and their token ids."""
    limit = config.sampling.max_prompt_tokens
    kept, prompts, _ = fitting(problems, policy.tokenizer, limit)
    if not kept:
        raise ValueError(
            f"sampling.max_prompt_tokens={limit}: none of {len(problems)} prompts fits"
        )
    return kept, prompts


def _generate(
    engine: Engine, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
) -> tuple[list[list[Rollout]], float]:
    """Draw n rollouts of each prompt in one call.

    Returns:
        n rollouts a prompt, and tokens generated a second.
    """
    seeds = [derive(seed, "trial", slot) for slot in range(len(prompts))]
    start = time.perf_counter()
    groups = engine.generate(prompts, n, sampling, seeds)
    seconds = time.perf_counter() - start
    return groups, sum(len(r.completion_ids) for group in groups for r in group) / seconds


def _gap(policy: Policy, config: Config, rollouts: Sequence[Rollout]) -> tuple[float, float]:
    """Mean and largest |log-prob of the engine - of the trainer| over the rollouts' tokens."""
    trainer = score_all(policy, config, lambda: None, rollouts)
    found = np.concatenate(
        [np.abs(r.logprobs - own.cpu().numpy()) for r, own in zip(rollouts, trainer, strict=True)]
    )
    return float(found.mean(dtype=np.float64)), float(found.max())


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What some work gives, and the seconds it took, a GPU's part included."""
    start = time.perf_counter()
    found = work()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return found, time.perf_counter() - start


def _on_a_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else f"{line[:LINE]} ..."
