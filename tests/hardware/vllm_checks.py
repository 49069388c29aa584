"""What must hold of vLLM on a GPU: plain functions of one engine, run by a GPU's script.

They ask what test_vllm.py asks on a CPU, of whatever model the engine has: its weights may be
random and its dtype may be bfloat16. Nothing here needs pytest or Hydra. Each check returns the
numbers that it measured, and leaves policy and engine in step.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from gpu_checks import below

from pods.config.schema import Config
from pods.engines.base import EngineFailed
from pods.engines.sync_check import check_weight_sync
from pods.engines.transformers_engine import TransformersEngine
from pods.policy.fsdp import weights_version
from pods.policy.policy import Policy
from pods.policy.scoring import UpdateContext, score_all
from pods.system.signals import Preempted
from pods.types import GenerationRequest, Prompt, Rollout, Sampling

GAP = {"float32": 1e-4, "bfloat16": 0.05}  # mean of a token, as the monitor has it
NEAR = {"float32": 1e-3, "bfloat16": 0.3}  # of the best token's log-prob: rounding decides
DRAWS, BUCKETS = 512, 8
SWAPS = 100


@dataclass
class Running:
    """One engine with its policy."""

    policy: Policy
    engine: Any
    """A `VllmEngine`."""
    config: Config
    prompts: list[Prompt]
    deadline: float
    """Of `time.monotonic()`; what repeats ends here."""

    def draw(self, n: int, temperature: float, tokens: int) -> list[list[Rollout]]:
        """Complete the first four prompts, with the same seeds each time."""
        seeds, sampling = range(1, 5), Sampling(temperature, tokens)
        request = GenerationRequest(self.prompts[:4], n, sampling, seeds)
        return self.engine.generate(request)  # type: ignore[no-any-return]

    def gaps(self, groups: list[list[Rollout]]) -> np.ndarray[Any, Any]:
        """|log-prob of the engine - of the trainer| of every token."""
        rollouts = [rollout for group in groups for rollout in group]
        context = UpdateContext(self.policy, self.config)
        scores = torch.cat(score_all(context, rollouts)).cpu().numpy()
        return np.abs(scores - np.concatenate([rollout.logprobs for rollout in rollouts]))

    def trained(self) -> list[torch.Tensor]:
        """The weights that are trained."""
        return [p for p in self.policy.model.parameters() if p.requires_grad]

    @contextmanager
    def disturbed(self, size: float) -> Iterator[None]:
        """Add noise to the trained weights; afterwards restore them, and sync."""
        before = [p.detach().clone() for p in self.trained()]
        generator = torch.Generator(self.policy.device).manual_seed(0)
        try:
            with torch.no_grad():
                for p in self.trained():
                    noise = torch.randn(p.shape, generator=generator, device=p.device)
                    p.add_(size * noise.to(p.dtype))
            yield
        finally:
            with torch.no_grad():
                for p, start in zip(self.trained(), before, strict=True):
                    p.copy_(start)
            self.engine.sync()


def next_logprobs(running: Running, ids: tuple[int, ...]) -> torch.Tensor:
    """(L, vocabulary) log-probs of the next token after each of the ids, by the trainer."""
    policy = running.policy
    with torch.no_grad():
        logits = policy.causal_lm(torch.tensor([ids], device=policy.device)).logits
    return logits[0, :, : policy.vocabulary].float().log_softmax(-1)  # type: ignore[no-any-return]


def greedy_tokens_are_the_trainers(running: Running) -> dict[str, float]:
    """Each greedy token has the trainer's highest log-prob, but for rounding."""
    groups, behind = running.draw(1, 0.0, 16), 0.0
    for [rollout] in groups:
        ids, prompt = rollout.prompt_ids + rollout.completion_ids, len(rollout.prompt_ids)
        scores = next_logprobs(running, ids)[prompt - 1 : -1]
        chosen = torch.tensor(rollout.completion_ids, device=scores.device)[:, None]
        behind = max(behind, float((scores.max(1).values - scores.gather(1, chosen)[:, 0]).max()))
    below(behind, NEAR[running.config.engine.dtype], "log-prob of the best token - of the chosen")
    engine = TransformersEngine(running.policy, 64, lambda: None)
    request = GenerationRequest(running.prompts[:4], 1, Sampling(0.0, 16), range(1, 5))
    equal = [a == b for [mine], [theirs] in zip(groups, engine.generate(request), strict=True)
             for a, b in zip(mine.completion_ids, theirs.completion_ids, strict=True)]  # fmt: skip
    return {"behind": behind, "equal_to_transformers": float(np.mean(equal))}


def frequencies_are_the_probabilities(running: Running) -> dict[str, float]:
    """Of tokens sorted by probability into buckets of an equal share, so many are drawn."""
    request = GenerationRequest(running.prompts[:1], DRAWS, Sampling(1.0, 1), [5])
    [group] = running.engine.generate(request)
    p = next_logprobs(running, running.prompts[0])[-1].double().exp().cpu().numpy()
    order = np.argsort(-p)
    bucket = np.empty(len(p), int)
    bucket[order] = ((np.cumsum(p[order]) - p[order]) * BUCKETS).astype(int).clip(0, BUCKETS - 1)
    drawn = np.bincount(bucket[[r.completion_ids[0] for r in group]], minlength=BUCKETS) / DRAWS
    expected = np.bincount(bucket, p, minlength=BUCKETS)
    errors = np.sqrt(np.clip(expected * (1 - expected), 1e-12, None) / DRAWS)
    furthest = float((np.abs(drawn - expected) / (errors + 0.005)).max())  # bfloat16 shifts some
    below(furthest, 4.0, "standard errors between frequency and probability")
    return {"standard_errors": furthest}


def logprobs_are_those_of_the_trainer(running: Running) -> dict[str, float]:
    """At the run's temperature, as the mismatch monitor looks at them."""
    groups = running.draw(8, running.config.sampling.temperature, 16)
    gaps = running.gaps(groups)
    below(float(gaps.mean()), GAP[running.config.engine.dtype], "mean gap of a log-prob")
    return {"mean": float(gaps.mean()), "largest": float(gaps.max())}


def it_can_be_stopped_between_tokens(running: Running) -> dict[str, float]:
    """Nothing of a call that was stopped is in the next ones."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Preempted

    before, running.engine.check = running.engine.check, check
    try:
        running.draw(4, 1.0, 16)
        raise AssertionError("it was not stopped")
    except Preempted:
        pass
    finally:
        running.engine.check = before
    first, second = (running.draw(4, 1.0, 16) for _ in range(2))
    lengths = {len(rollout.completion_ids) for group in first for rollout in group}
    if lengths != {16}:
        raise AssertionError(f"lengths after a call that was stopped: {sorted(lengths)}")
    below(float(running.gaps(first).mean()), GAP[running.config.engine.dtype], "mean gap after it")
    same = [a.completion_ids == b.completion_ids
            for one, other in zip(first, second, strict=True)
            for a, b in zip(one, other, strict=True)]  # fmt: skip
    return {"same_twice": float(np.mean(same))}


def stale_weights_are_refused(running: Running) -> dict[str, float]:
    """A policy that has moved since the last sync is not sampled from."""
    with running.disturbed(1e-3):
        try:
            running.draw(1, 1.0, 2)
        except (RuntimeError, EngineFailed) as error:
            if "has changed since" not in str(error):
                raise
        else:
            raise AssertionError("it generated from stale weights")
    return {}


def a_sync_that_fails_is_noticed(running: Running) -> dict[str, float]:
    """The check at a run's start passes, and sees a sync that does nothing or is not used."""
    engine, prompt = running.engine, running.prompts[0]
    check_weight_sync(running.policy, engine, prompt)
    requests = engine.vllm.input_processor
    real = requests.process_inputs

    def nothing() -> None:
        engine.synced_version = weights_version(running.policy.model)

    def without_adapter(*settings: Any, lora_request: Any, **others: Any) -> Any:
        return real(*settings, **others)

    faults: list[tuple[Any, Callable[..., Any]]] = [(engine, nothing)]
    faults += [(requests, without_adapter)] if engine.adapter is not None else []
    for owner, fault in faults:
        name = "sync" if owner is engine else "process_inputs"
        setattr(owner, name, fault)
        try:
            check_weight_sync(running.policy, engine, prompt)
        except ValueError as error:
            if "weight sync does not work" not in str(error):
                raise
        else:
            raise AssertionError(f"a fault was not noticed: {fault.__name__}")
        finally:
            delattr(owner, name)
            engine.synced_version = -1
            engine.sync()
    return {}


def a_hundred_syncs_leave_all_right(running: Running) -> dict[str, float]:
    """The trainer's weights stay as they are, and the newest adapter is the only one."""
    engine, seconds = running.engine, list[float]()
    wait = torch.cuda.synchronize if running.policy.device.type == "cuda" else lambda: None
    with running.disturbed(1e-3):
        before = [p.detach().clone() for p in running.trained()]
        while len(seconds) < SWAPS and (len(seconds) < 3 or time.monotonic() < running.deadline):
            running.trained()[0].detach().add_(0.0)  # a change, for torch: else nothing is synced
            wait()
            start = time.perf_counter()
            engine.sync()
            wait()
            seconds.append(time.perf_counter() - start)
        if not all(map(torch.equal, before, running.trained())):
            raise AssertionError("a sync changed the trainer's weights")
        adapter = engine.adapter
        if adapter is not None and engine.vllm.list_loras() != {adapter.lora_int_id}:
            raise AssertionError(f"adapters in vLLM: {engine.vllm.list_loras()}")
        gap = float(running.gaps(running.draw(4, 1.0, 16)).mean())
    below(gap, GAP[running.config.engine.dtype], "mean gap after the syncs")
    return {"syncs": len(seconds), "sync_seconds": median(seconds), "mean_gap": gap}


CHECKS: tuple[Callable[[Running], dict[str, float]], ...] = (
    greedy_tokens_are_the_trainers, frequencies_are_the_probabilities,
    logprobs_are_those_of_the_trainer, it_can_be_stopped_between_tokens, stale_weights_are_refused,
    a_sync_that_fails_is_noticed, a_hundred_syncs_leave_all_right,
)  # fmt: skip
