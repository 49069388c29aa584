"""Log-probs of rollouts: of a micro-batch under the policy or its reference, or of a whole step.

Shapes: C = completion tokens of a micro-batch, end to end; T = completion tokens of one rollout.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pods.config import Config
from pods.policy.load import Policy
from pods.policy.packing import MicroBatch, cuts, divide, micro_batches, pack
from pods.policy.sharding import logprobs, sharded
from pods.policy.team import ALONE, Team
from pods.records import Rollout


def score(
    policy: Policy, config: Config, batch: MicroBatch, model: PreTrainedModel | None = None
) -> Tensor:
    """Compute the log-probs of a micro-batch, (C,), under the policy or another model."""
    with policy.recomputing():
        return logprobs(
            policy.causal_lm if model is None else model,
            batch,
            temperature=config.sampling.temperature,
            vocabulary=policy.vocabulary,
        )


def score_by_reference(policy: Policy, config: Config, batch: MicroBatch) -> Tensor | None:
    """Compute the log-probs of a micro-batch, (C,), under the policy as it was before training.

    None where no KL term asks for them.
    """
    if config.update.kl_beta == 0:
        return None
    with torch.no_grad(), policy.reference() as model:
        return score(policy, config, batch, model)


def score_all(
    policy: Policy,
    config: Config,
    check: Callable[[], None],
    rollouts: Sequence[Rollout],
    team: Team = ALONE,
) -> list[Tensor]:
    """Compute the log-probs of every rollout, (T,) each, without gradients.

    Each process scores a part, and all get all: which rollouts a process will need differs from
    one optimizer update to the next.
    """
    found = dict[int, Tensor]()
    with torch.no_grad():
        for batch, counts in rounds(policy, config, team, rollouts, range(len(rollouts))):
            team.check(check)
            if batch is not None:
                pieces = score(policy, config, batch).split(batch.lengths)
                if counts:
                    found |= zip(batch.members, pieces, strict=True)
    found = team.exchange(found)
    return [found[i].to(policy.device) for i in range(len(rollouts))]


def rounds(
    policy: Policy, config: Config, team: Team, rollouts: Sequence[Rollout], members: Sequence[int]
) -> Iterator[tuple[MicroBatch | None, bool]]:
    """This process's micro-batches of some rollouts, in as many rounds as the busiest one needs.

    Yields:
        A micro-batch, and whether it counts. In the rounds that are left over there is none; where
        weights are spread all processes must compute in each round, so there it is one sequence
        that does not count.
    """
    limit, dealt = config.update.micro_batch_tokens, divide(rollouts, members, team.size)
    count = max(sum(1 for _ in cuts(rollouts, each, limit)) for each in dealt)
    mine = micro_batches(rollouts, dealt[team.rank], limit)
    spare = None
    if sharded(policy.model):
        shortest = min(members, key=lambda i: len(rollouts[i].completion_ids))
        spare = pack(rollouts, [[shortest]])
    for _ in range(count):
        batch = next(mine, None)
        yield (spare, False) if batch is None else (batch, True)
