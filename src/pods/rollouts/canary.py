"""A canary: change the policy, and see the engine's log-probs follow. Tried when a run starts.

An engine may ignore an adapter, or part of a merge, without a word; and while the policy is close
to where it began, the gap of its log-probs hardly shows it.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from pods.policy.load import Policy
from pods.policy.packing import pack
from pods.policy.sharding import logprobs, part
from pods.policy.team import ALONE, Team
from pods.records import Rollout, Sampling
from pods.rollouts.engine import Engine, Prompt

TOKENS = 8
MOVED = 1.0  # mean |change of a log-prob| that no rounding makes
FOLLOWS = 0.2  # share of it that may remain between engine and trainer


def prove_it_follows(policy: Policy, engine: Engine, prompt: Prompt, team: Team = ALONE) -> None:
    """Disturb all trained weights, sync, compare log-probs; leave weights and engine as they were.

    All processes of a run do so at once, on the leader's tokens and by the largest numbers of all,
    so that none is ahead of the others.

    Raises:
        ValueError: the engine's log-probs are not those of the disturbed policy.
    """
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    before = [parameter.detach().clone() for parameter in trained]
    [[own]] = engine.generate([prompt], 1, Sampling(1.0, TOKENS), [0])
    rollout = team.leaders(own)
    original, moved, size = _logprobs(policy, rollout), 0.0, 1e-3
    generator = torch.Generator().manual_seed(0)
    try:
        while moved < MOVED and size < 1:
            size *= 2
            for parameter, start in zip(trained, before, strict=True):
                noise = torch.randn(parameter.shape, generator=generator).to(parameter.device)
                with torch.no_grad():
                    parameter.copy_(start + size * part(noise, parameter))
            moved = team.largest(_gap(_logprobs(policy, rollout), original))
        engine.sync()
        [[follower]] = engine.generate([prompt], 1, Sampling(1.0, TOKENS), [0])
        gap = team.largest(_gap(_logprobs(policy, follower), follower.logprobs))
    finally:
        with torch.no_grad():
            for parameter, start in zip(trained, before, strict=True):
                parameter.copy_(start)
    engine.sync()
    if not gap <= FOLLOWS * moved:
        raise ValueError(
            "the engine does not follow the policy: after a change that moves log-probs by "
            f"{moved:.2g} and a sync, the engine's are {gap:.2g} from the trainer's"
        )


def _gap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(np.abs(one - other).mean())


def _logprobs(policy: Policy, rollout: Rollout) -> NDArray[np.float32]:
    """(T,) of the rollout's tokens under the trainer's policy at temperature 1."""
    with torch.no_grad():
        found = logprobs(
            policy.causal_lm, pack([rollout], [[0]]), temperature=1.0, vocabulary=policy.vocabulary
        )
    return found.float().cpu().numpy()
