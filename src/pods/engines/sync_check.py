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
FIRST_SIZE = 1e-3  # of the noise on the weights
GROWTH = 1.25  # of the noise from try to try: past some size a change of the weights explodes


@torch.no_grad()
def check_weight_sync(
    policy: Policy, engine: Engine, prompt: Prompt, process_group: ProcessGroup = SINGLE_PROCESS
) -> None:
    """Disturb all trained weights, sync, compare log-probs; then restore weights and engine.

    All processes of a run call this at once. They score the main process's tokens and use the
    largest numbers of all processes, so that they take the same path.

    Raises:
        ValueError: the engine's log-probs are not those of the disturbed policy.
    """
    trained = [weight for weight in policy.model.parameters() if weight.requires_grad]
    start = [weight.detach().clone() for weight in trained]
    request = GenerationRequest(
        prompts=[prompt],
        n=1,
        sampling=Sampling(temperature=1.0, max_completion_tokens=TOKENS),
        seeds=[0],
    )
    [[rollout]] = engine.generate(request)
    rollout = process_group.broadcast(rollout)
    original = _logprobs(policy, rollout)

    change = 0.0
    size = FIRST_SIZE
    generator = torch.Generator(trained[0].device).manual_seed(process_group.rank)
    try:
        while change < MIN_CHANGE and size < 1:
            size *= GROWTH
            for weight, before in zip(trained, start, strict=True):
                noise = torch.empty_like(weight)
                # each process draws its own part
                local_shard(noise).normal_(generator=generator)
                weight.copy_(before + size * noise)
            change = process_group.all_max(_gap(_logprobs(policy, rollout), original))
        engine.sync()
        [[after]] = engine.generate(request)
        gap = process_group.all_max(_gap(_logprobs(policy, after), after.logprobs))
    finally:
        for weight, before in zip(trained, start, strict=True):
            weight.copy_(before)

    engine.sync()

    if not gap <= MAX_GAP * change:  # also if one of them is NaN
        raise ValueError(
            "weight sync does not work: after a change that moved the policy's log-probs by "
            f"{change:.2g} and a sync, the engine's log-probs are {gap:.2g} from the trainer's"
        )


def _gap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(np.abs(one - other).mean())


def _logprobs(policy: Policy, rollout: Rollout) -> NDArray[np.float32]:
    """Compute the log-probs of the rollout's tokens, (T,), under the policy at temperature 1."""
    scores = forward_logprobs(
        policy.causal_lm,
        pack([rollout], [[0]]),
        temperature=1.0,
        vocabulary=policy.vocabulary,
    )
    return scores.logprobs.float().cpu().numpy()
