"""The `transformers` engine: Hugging Face modelling code, sampling the training weights.

The loop is ours and not `model.generate` for three reasons: every draw is a function of a prompt's
seed (no global generator), the log-prob of each token comes out of the same pass, and finished
sequences leave the batch. A prompt is encoded once for its n rollouts, and a beginning that all
prompts share once for all of them.

Shapes: R = sequences decoded together, P = prompts among them, V = vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from pods.policy.load import Policy
from pods.policy.merged import Merged, mergeable
from pods.records import Rollout, Sampling
from pods.rollouts.cache import block_cache
from pods.rollouts.engine import Prompt, Ready

SHARED_TOKENS = 32  # a shared beginning is encoded apart if it is at least this long
LEAVE_BELOW = 0.75  # finished sequences leave once fewer than this share of the batch is alive


class TransformersEngine:
    """Samples from the policy's own weights, or from a copy: adapters merged, or parts gathered."""

    def __init__(self, policy: Policy, max_rows: int, check: Callable[[], None]) -> None:
        """Decode at most `max_rows` sequences at a time; `check()` may raise between tokens."""
        self.policy = policy
        self.max_rows = max_rows
        self.check = check
        self.copy = Merged(policy) if mergeable(policy) else policy.gathered
        self.model = policy.causal_lm if self.copy is None else self.copy.model
        self.stop_ids = torch.tensor(policy.stop_ids, device=policy.device)
        self.pad_id = int(policy.tokenizer.pad_token_id or 0)

    def sync(self) -> float | None:
        """Bring a copy up to date, where there is one; other weights are shared."""
        return None if self.copy is None else self.copy.follow()

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        ready: Ready | None = None,
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt; see `Engine.generate`."""
        self.sync()  # costs nothing where it was called; never a token from old weights
        limit = sampling.max_completion_tokens
        uniforms = torch.cat([_uniforms(seed, n, limit) for seed in seeds])  # (prompts * n, T)
        rows = [prompt for prompt in range(len(prompts)) for _ in range(n)]
        flat: list[Rollout] = []
        for start in range(0, len(rows), self.max_rows):
            asked = [prompts[row] for row in rows[start : start + self.max_rows]]
            present = {prompt: place for place, prompt in enumerate(dict.fromkeys(asked))}
            owners = torch.tensor([present[prompt] for prompt in asked], device=self.policy.device)
            chunk = uniforms[start : start + self.max_rows].to(self.policy.device)
            place = rows[start : start + self.max_rows]
            told = None if ready is None else partial(_tell, ready, place, self._text)
            flat += self._decode(list(present), owners, sampling, chunk, told)
        return [flat[i * n : (i + 1) * n] for i in range(len(prompts))]

    @torch.inference_mode()
    def _decode(
        self,
        prompts: Sequence[Prompt],
        owners: Tensor,
        sampling: Sampling,
        uniforms: Tensor,
        told: Callable[[Tensor, Tensor], None] | None,
    ) -> list[Rollout]:
        """Decode one chunk: P prompts, R sequences, `owners` (R,) the prompt of each.

        `told(rows, ids)` hears of the rows that have ended, as soon as they have.
        """
        logits, cache, attention = self._prefill(prompts)
        cache.batch_select_indices(owners)
        logits, attention = logits[owners], attention[owners]
        count, limit = len(owners), sampling.max_completion_tokens
        ids = torch.zeros((count, limit), dtype=torch.long, device=owners.device)
        logprobs = torch.zeros((count, limit), device=owners.device)
        lengths = torch.full((count,), limit, device=owners.device)
        stopped = torch.zeros(count, dtype=torch.bool, device=owners.device)
        rows = torch.arange(count, device=owners.device)  # which sequences are in the batch
        for t in range(limit):
            self.check()
            token, logprob = sample(logits, sampling.temperature, uniforms[rows, t])
            ids[rows, t], logprobs[rows, t] = token, logprob
            ends = torch.isin(token, self.stop_ids) & ~stopped[rows]
            lengths[rows[ends]] = t + 1
            stopped[rows] |= ends
            last = t + 1 == limit
            if told is not None and (last or bool(ends.any())):
                over = rows[ends | (~stopped[rows] & last)]
                told(over, ids[over, : t + 1])
            alive = ~stopped[rows]
            living = int(alive.sum())
            if living == 0 or last:
                break
            if living < LEAVE_BELOW * len(rows):
                keep = alive.nonzero()[:, 0]
                cache.batch_select_indices(keep)
                rows, token, attention = rows[keep], token[keep], attention[keep]
            attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
            logits = self._forward(token[:, None], attention, cache)
        return self._collect(prompts, owners, ids, logprobs, lengths, stopped)

    def _text(self, ids: list[int]) -> str:
        return str(self.policy.tokenizer.decode(ids, skip_special_tokens=True))

    def _prefill(self, prompts: Sequence[Prompt]) -> tuple[Tensor, Cache, Tensor]:
        """Encode P prompts: next-token logits (P, V), cache, mask (P, L).

        What all prompts begin with (a system message, solved examples) is encoded once; the rest
        is padded on the left.
        """
        cache, device = block_cache(), self.policy.device
        shared = shared_prefix(prompts)
        attention = torch.ones((1, shared), dtype=torch.long, device=device)
        if shared:
            self._forward(torch.tensor([prompts[0][:shared]], device=device), attention, cache)
            cache.batch_select_indices(torch.zeros(len(prompts), dtype=torch.long, device=device))
        width = max(map(len, prompts)) - shared
        ids = torch.full((len(prompts), width), self.pad_id)
        real = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            rest = prompt[shared:]
            ids[row, width - len(rest) :] = torch.tensor(rest)
            real[row, width - len(rest) :] = 1
        attention = torch.cat([attention.expand(len(prompts), -1), real.to(device)], dim=1)
        return self._forward(ids.to(device), attention, cache), cache, attention

    def _forward(self, ids: Tensor, attention: Tensor, cache: Cache) -> Tensor:
        positions = (attention.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1, : self.policy.vocabulary].float()  # type: ignore[no-any-return]

    def _collect(
        self,
        prompts: Sequence[Prompt],
        owners: Tensor,
        ids: Tensor,
        logprobs: Tensor,
        lengths: Tensor,
        stopped: Tensor,
    ) -> list[Rollout]:
        all_ids, all_logprobs = ids.tolist(), logprobs.cpu().numpy()
        cut = lengths.tolist()
        completions = [tuple(row[:length]) for row, length in zip(all_ids, cut, strict=True)]
        texts = self.policy.tokenizer.batch_decode(completions, skip_special_tokens=True)
        return [
            Rollout(prompts[owner], completion, all_logprobs[i, : cut[i]], texts[i], finished)
            for i, (owner, completion, finished) in enumerate(
                zip(owners.tolist(), completions, stopped.tolist(), strict=True)
            )
        ]


def _tell(
    ready: Ready, place: Sequence[int], text: Callable[[list[int]], str], rows: Tensor, ids: Tensor
) -> None:
    """Tell of rows that have ended: their place among the prompts, and their text."""
    for row, completion in zip(rows.tolist(), ids.tolist(), strict=True):
        ready(place[row], text(completion))


def sample(logits: Tensor, temperature: float, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution at a given uniform number.

    Args:
        logits: (R, V)
        temperature: 0 takes the likeliest token; its log-prob is then that at temperature 1.
        uniforms: (R,) in [0, 1).

    Returns:
        (R,) ids and (R,) log-probs.
    """
    logprobs = (logits / temperature if temperature > 0 else logits).log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        threshold = uniforms.double() * cumulative[:, -1]  # below the total, as float64 rounds
        token = torch.searchsorted(cumulative, threshold[:, None], right=True)[:, 0]
        token = token.clamp(max=logits.shape[-1] - 1)  # where logits are NaN, so is the log-prob
    return token, logprobs.gather(1, token[:, None])[:, 0]


def _uniforms(seed: int, n: int, limit: int) -> Tensor:
    """(n, limit) numbers in [0, 1), from NumPy: torch on a CPU uses 32 bits of a seed."""
    return torch.from_numpy(np.random.default_rng(seed).random((n, limit)))


def shared_prefix(prompts: Sequence[Prompt]) -> int:
    """How many first tokens all prompts share, at least one being left to each; 0 if too few."""
    first, last = min(prompts), max(prompts)  # in lexicographic order these two differ earliest
    same = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    shared = min(same, min(map(len, prompts)) - 1)
    return shared if shared >= SHARED_TOKENS and len(prompts) > 1 else 0
