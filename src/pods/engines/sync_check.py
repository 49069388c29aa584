"""Check, when a run starts, that a change of the policy's weights reaches its engine.

An engine may silently ignore an adapter, or part of a merge; and while the policy is close to its
start, the gap between engine and trainer log-probs hardly shows it.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from pods.engines.base import Engine
from pods.policy.fsdp import forward_logprobs, local_shard
from pods.policy.packing import pack
from pods.policy.policy import Policy
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.types import GenerationRequest, Prompt, Rollout, Sampling

TOKENS = 8
MIN_CHANGE = 1.0  # mean |change of a log-prob|, far more than rounding makes
MAX_GAP = 0.2  # share of the change that may remain between engine and trainer


@torch.no_grad()
def check_weight_sync(
    policy: Policy, engine: Engine, prompt: Prompt, process_group: ProcessGroup = SINGLE_PROCESS
) -> None:
    """Disturb all trained weights, sync, compare log-probs; then restore weights and engine.

    All processes of a run call this at once. They score the main process's tokens and use the
    largest numbers of all processes, so that they take the same path.

    `ValueError`: the engine's log-probs are not those of the disturbed policy.
    """
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    start = [parameter.detach().clone() for parameter in trained]
    request = GenerationRequest([prompt], 1, Sampling(1.0, TOKENS), [0])
    [[rollout]] = engine.generate(request)
    rollout = process_group.broadcast(rollout)
    original, change, size = _logprobs(policy, rollout), 0.0, 1e-3
    generator = torch.Generator(trained[0].device).manual_seed(process_group.rank)
    try:
        while change < MIN_CHANGE and size < 1:
            size *= 1.25  # by no more: past some size a change of the weights explodes
            for parameter, before in zip(trained, start, strict=True):
                # drawn where it is needed: of 8 processes each its part
                local_shard(noise := torch.empty_like(parameter)).normal_(generator=generator)
                parameter.copy_(before + size * noise)
            change = process_group.all_max(_gap(_logprobs(policy, rollout), original))
        engine.sync()
        [[after]] = engine.generate(request)
        gap = process_group.all_max(_gap(_logprobs(policy, after), after.logprobs))
    finally:
        for parameter, before in zip(trained, start, strict=True):
            parameter.copy_(before)
    engine.sync()
    if not gap <= MAX_GAP * change:
        raise ValueError(
            "weight sync does not work: after a change that moved the policy's log-probs by "
            f"{change:.2g} and a sync, the engine's log-probs are {gap:.2g} from the trainer's"
        )


def _gap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(np.abs(one - other).mean())


def _logprobs(policy: Policy, rollout: Rollout) -> NDArray[np.float32]:
    """Compute the log-probs of the rollout's tokens, (T,), under the policy at temperature 1."""
    batch = pack([rollout], [[0]])
    model, vocabulary = policy.causal_lm, policy.vocabulary
    scores = forward_logprobs(model, batch, temperature=1.0, vocabulary=vocabulary)
    return scores.logprobs.float().cpu().numpy()
