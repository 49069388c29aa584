"""Advantages and the clipped policy-gradient loss of GRPO, on the rollouts that were kept.

Sources: PODS, arXiv:2504.13818 (Algorithm 1, its loss L_PODS); clip-higher and the token mean are
DAPO's (arXiv:2503.14476); the constant denominator is Dr. GRPO's (arXiv:2503.20783); truncated
importance sampling is Yao et al.'s (2025, fengyao.notion.site/off-policy-rl).

Shapes: n = rollouts of one prompt, m = kept of them, M = sequences of one optimizer update,
R = sequences of one micro-batch, N = their completion tokens, end to end.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pods.method.rules import all_equal, rounding


def advantages(
    rewards: NDArray[np.float64], kept: NDArray[np.intp], *, baseline: str, scale: str, eps: float
) -> NDArray[np.float64]:
    """Return the advantages of the kept rewards, (m,): (r - baseline) / (std + eps), or as scaled.

    `kept` are (m,) indices into the (n,) rewards of a group. The `baseline` is the mean of the kept
    rewards (`selected`), of the whole group's (`full`), of the other m - 1 kept ones
    (`leave_one_out`), or 0 (`none`). The `scale` divides by eps plus the `std` (ddof 1, torch's
    default) or `mean` of the whole group for the baseline `full`, else of the kept, or by nothing
    (`none`). They are exactly 0 if those rewards are `all_equal`, or such a mean is not positive.

    - (selected, std): PODS, Algorithm 1 step 4 (eps 1e-4); GRPO if n = m (arXiv:2402.03300);
    - (full, std): CPPO (arXiv:2503.22342, grpo_trainer_gsm.py:870-930);
    - (full, none): Reinforce-Ada (arXiv:2510.04996; its run_reinforce_ada.sh@05be605);
    - (selected, none): Dr. GRPO if n = m (arXiv:2503.20783; its train_zero_math.py:293@dfca49d);
    - (leave_one_out, none): RLOO if n = m (arXiv:2402.14740), m / (m - 1) times Dr. GRPO's;
    - (selected, mean): MaxRL if n = m (arXiv:2602.02710, Algorithm 1; its core_algos.py@7db6bb9,
      p_normalization, eps 1e-6), in expectation (1 - (1 - p)^(n - 1)) / p grad p;
    - (full, stratified), ours: (r - mean) (N_c / n) / (m_c / m), N_c of the n and m_c of the m with
      that reward. With these weights the expected update is (n - 1) / n times the gradient of p,
      if at least one rollout of each reward is kept.

    >>> rewards, kept = np.array([3.0, 1.0, 2.0]), np.arange(3)
    >>> advantages(rewards, kept, baseline="selected", scale="std", eps=0.0)
    array([ 1., -1.,  0.])
    """
    kept_rewards = rewards[kept]
    if baseline == scale == "none":
        return kept_rewards
    pool = rewards if baseline == "full" else kept_rewards
    mean = pool.mean()  # which can differ from equal rewards
    if all_equal(pool) or (scale == "mean" and mean <= 0):
        return np.zeros(len(kept))

    if baseline == "leave_one_out":
        centred = kept_rewards - (pool.sum() - kept_rewards) / (len(pool) - 1)
    elif baseline == "none":
        centred = kept_rewards
    else:
        centred = kept_rewards - mean

    if scale == "std":
        return np.asarray(centred / (pool.std(ddof=1) + eps))
    if scale == "mean":
        return np.asarray(centred / (mean + eps))
    if scale == "stratified":
        same = np.abs(kept_rewards[:, None] - rewards) <= rounding(rewards)
        return np.asarray(centred * same.mean(1) / same[:, kept].mean(1))

    return np.asarray(centred)


def token_weights(
    lengths: Tensor, groups: Tensor, aggregation: str, max_completion_tokens: int
) -> Tensor:
    """Return the weight of each token of sequence i in the loss, (M,).

    They are fixed before the step is cut into micro-batches, so that no way of cutting changes the
    gradient. With the (M,) `lengths` |o_i| in G `groups`,

    - `sequence_mean` is 1/(M |o_i|) (PODS, L_PODS);
    - `token_mean` is 1/sum |o_i| (DAPO);
    - `group_token_mean` is 1/(G sum |o_j|), j in the group (the PODS authors' code for 8 GPUs:
      loss_type bnpo on micro-batches of one group each, which are averaged);
    - `dr_grpo` is 1/(M max_completion_tokens), which goes with `advantage.scale=none`.

    >>> token_weights(torch.tensor([1, 3]), torch.tensor([0, 0]), "sequence_mean", 8)
    tensor([0.5000, 0.1667])
    """
    lengths = lengths.to(torch.float32)
    if aggregation == "group_token_mean":
        names, members = torch.unique(groups, return_inverse=True)
        tokens = torch.zeros(len(names)).index_add_(0, members, lengths)
        return 1.0 / (len(names) * tokens[members])
    if aggregation == "sequence_mean":
        return 1.0 / (len(lengths) * lengths)
    if aggregation == "token_mean":
        return torch.ones_like(lengths) / lengths.sum()
    return torch.ones_like(lengths) / (len(lengths) * max_completion_tokens)


def importance_weights(
    old: Tensor, engine: Tensor, lengths: Tensor, *, kind: str, cap: float
) -> tuple[Tensor, Tensor]:
    """Weigh each token by rho = p_trainer / p_engine, bounded by a cap, if the engine differs.

    Returned are the (N,) factors of the surrogates, and (N,) true if a ratio was over the cap.
    The kinds are TRL's (grpo_trainer.py, vllm_importance_sampling_mode; huggingface/trl#4530):
    `off` 1; `token_truncate` min(rho_t, cap), truncated importance sampling; `token_mask` rho_t, or
    0 over the cap; `sequence_mask` the product of rho_t over the sequence for each token of it, or
    0 over the cap. NaN stays NaN, so that the loss shows it. `old` and `engine` are (N,) log-probs,
    detached, under the trainer before the first update of the step and under what sampled the
    tokens. `lengths` are the (R,) completion tokens of each sequence.

    >>> old, engine = torch.tensor([0.5, 1.0]).log(), torch.tensor([0.5, 0.25]).log()
    >>> importance_weights(old, engine, torch.tensor([2]), kind="token_truncate", cap=3.0)[0]
    tensor([1., 3.])
    """
    if kind == "off":
        return torch.ones_like(old), torch.zeros_like(old, dtype=torch.bool)
    log_ratio = old.to(torch.promote_types(old.dtype, torch.float32)) - engine
    if kind == "sequence_mask":
        sequences = torch.split(log_ratio, lengths.tolist())
        log_ratio = torch.cat([part.sum().expand(len(part)) for part in sequences])
    ratio = log_ratio.exp()  # infinite if it overflows: over any cap
    cut = ratio > cap
    if kind == "token_truncate":
        return ratio.clamp(max=cap), cut
    return ratio.masked_fill(cut, 0.0), cut


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one micro-batch: a sum, to be added to those of the other micro-batches."""

    total: Tensor  # () the objective, negated, with the KL term; carries the gradient
    clipped: Tensor  # () number of tokens whose gradient the clip takes away
    kl: Tensor  # () weighted KL estimate; 0 without a reference


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    kl_beta: float = 0.0,
    reference_logprobs: Tensor | None = None,
    importance: Tensor | float = 1.0,
    entropy_beta: float = 0.0,
    entropy: Tensor | float = 0.0,
) -> Loss:
    """Return PPO's clipped surrogate, L_PODS, with an optional KL penalty and entropy bonus.

    Per token min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A), rho = exp(logp - old), less
    kl_beta * (exp(ref - logp) - (ref - logp) - 1), the low-variance KL estimate that GRPO uses
    (PODS code, trainer/maxvargrpo_trainer.py:584-588 at 187f43b, which has no clip: deviation 2),
    plus entropy_beta times the entropy (verl, workers/actor/dp_actor.py, entropy_coeff). All
    tensors are (N,): log-probs under the policy, under the policy before the first update of the
    step, and under the reference; each token's advantage and its weight from `token_weights`; its
    factor from `importance_weights`, which the KL term does not have; its entropy in nats.
    """
    ratio = (logprobs - old_logprobs).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    surrogate = importance * torch.minimum(unclipped, clipped)

    kl = torch.zeros((), device=logprobs.device)
    if reference_logprobs is not None:
        gap = reference_logprobs - logprobs
        kl = (weights * (gap.exp() - gap - 1)).sum()
    total = kl_beta * kl - (weights * surrogate).sum()
    if entropy_beta > 0:
        total = total - entropy_beta * (weights * entropy).sum()

    return Loss(total=total, clipped=(clipped < unclipped).sum(), kl=kl.detach())
