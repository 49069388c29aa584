"""Log-probs of rollouts: of a micro-batch under the policy or its reference, or of a whole step.

Shapes: C = completion tokens of a micro-batch, end to end; T = completion tokens of one rollout.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pods.config import Config
from pods.policy.load import Policy
from pods.policy.logprobs import token_logprobs
from pods.policy.packing import MicroBatch, micro_batches
from pods.records import Rollout


def score(
    policy: Policy, config: Config, batch: MicroBatch, model: PreTrainedModel | None = None
) -> Tensor:
    """Compute the log-probs of a micro-batch, (C,), under the policy or another model."""
    with policy.recomputing():
        return token_logprobs(
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
    policy: Policy, config: Config, check: Callable[[], None], rollouts: Sequence[Rollout]
) -> list[Tensor]:
    """Compute the log-probs of every rollout, (T,) each, without gradients."""
    found: list[Tensor] = [torch.empty(0)] * len(rollouts)
    with torch.no_grad():
        limit = config.update.micro_batch_tokens
        for batch in micro_batches(rollouts, range(len(rollouts)), limit):
            check()
            pieces = score(policy, config, batch).split(batch.lengths)
            for i, piece in zip(batch.members, pieces, strict=True):
                found[i] = piece
    return found
