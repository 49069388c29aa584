"""The `transformers` engine: Hugging Face modelling code, sampling from the training weights.

Unlike in `model.generate`, every draw is a function of a prompt's seed (no global generator), the
log-prob of each token comes out of the same pass, and finished sequences leave the batch. A prompt
is encoded once for its n rollouts, and a beginning that all prompts share once for all of them.

Shapes: R = sequences decoded together, A = those still in the batch, P = distinct prompts among
them, V = vocabulary, L = tokens so far.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from pods.engines.decoding import roomy_cache
from pods.policy.policy import Policy
from pods.types import GenerationRequest, OnCompletion, Prompt, Rollout, Sampling

MIN_SHARED_TOKENS = 32  # a shared beginning is encoded separately if it is at least this long
SHRINK_BELOW = 0.75  # share of active sequences below which the others leave the batch


@dataclass
class Decoded:
    """The tokens of R sequences so far, and which sequences are still in the batch."""

    ids: Tensor  # (R, limit)
    logprobs: Tensor  # (R, limit)
    lengths: Tensor  # (R,) tokens of each sequence; the limit unless it has stopped
    stopped: Tensor  # (R,) true if a sequence ended by a stop id
    rows: Tensor  # (A,) indices of the sequences in the batch

    def append(self, t: int, token: Tensor, logprob: Tensor, stop_ids: Tensor) -> Tensor:
        """Add token `t`, (A,), to each sequence in the batch; return which ones it ends, (A,)."""
        rows = self.rows
        self.ids[rows, t] = token
        self.logprobs[rows, t] = logprob

        stops = torch.isin(token, stop_ids) & ~self.stopped[rows]
        # `where`, since indexing by a mask would wait for a card
        self.lengths[rows] = torch.where(stops, t + 1, self.lengths[rows])
        self.stopped[rows] |= stops
        return stops


class TransformersEngine:
    """Samples from the policy's own weights, or from its mirror if it has one."""

    facts: Mapping[str, Any] = {}

    def __init__(self, policy: Policy, max_rows: int, check: Callable[[], None]) -> None:
        """Decode at most `max_rows` sequences at a time; `check()` may raise between tokens."""
        self.policy = policy
        self.max_rows = max_rows
        self.check = check
        self.model = policy.causal_lm if policy.mirror is None else policy.mirror.model
        self.stop_ids = torch.tensor(policy.stop_ids, device=policy.device)
        self.pad_id = int(policy.tokenizer.pad_token_id or 0)
        # an index, since of a slice torch multiplies each row by its own copy of the head
        self.last_position = torch.tensor([-1], device=policy.device)

    def sync(self) -> None:
        """Refresh the policy's mirror, if it has one; otherwise the weights are shared."""
        if self.policy.mirror is not None:
            self.policy.mirror.refresh()

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt; see `Engine.generate`."""
        self.sync()  # costs nothing if it was called already; never sample from old weights
        limit = request.sampling.max_completion_tokens
        rows = request.drawn()
        # by NumPy, since torch on a CPU uses 32 bits of a seed
        numbers = [np.random.default_rng(seed).random((request.n, limit)) for seed in request.seeds]
        uniforms = torch.from_numpy(
            np.concatenate(numbers)[rows.start : rows.stop]
        )  # (rows, limit)

        groups: list[list[Rollout]] = [[] for _ in request.prompts]
        for start in range(0, len(rows), self.max_rows):
            chunk = slice(start, start + self.max_rows)
            indices = [row // request.n for row in rows[chunk]]
            rollouts = self._decode(request, indices, uniforms[chunk], on_completion)
            for index, rollout in zip(indices, rollouts, strict=True):
                groups[index].append(rollout)

        return groups

    @torch.inference_mode()
    def _decode(
        self,
        request: GenerationRequest,
        prompt_indices: Sequence[int],
        uniforms: Tensor,
        on_completion: OnCompletion | None,
    ) -> list[Rollout]:
        """Decode R sequences of prompts of the request, with uniform numbers (R, limit)."""
        prompts = [request.prompts[index] for index in prompt_indices]
        logits, cache, attention = self._prefill(prompts, request.sampling.max_completion_tokens)
        uniforms = uniforms.to(logits.device)
        count, limit = uniforms.shape
        decoded = self._empty(count, limit, logits.device)

        num_active = count
        for t in range(limit):
            self.check()
            token, logprob = sample(logits, request.sampling, uniforms[decoded.rows, t])
            stops = decoded.append(t, token, logprob, self.stop_ids)
            active = ~decoded.stopped[decoded.rows]
            is_last = t + 1 == limit

            before = num_active
            num_active = int(active.sum())  # waits for a card, once per token
            if on_completion is not None and (is_last or num_active < before):
                ended = decoded.rows[stops | active] if is_last else decoded.rows[stops]
                texts = self._texts(decoded.ids[ended, : t + 1].tolist())
                for row, text in zip(ended.tolist(), texts, strict=True):
                    on_completion(prompt_indices[row], text)
            if num_active == 0 or is_last:
                break

            if num_active < SHRINK_BELOW * len(decoded.rows):
                keep = active.nonzero()[:, 0]
                cache.batch_select_indices(keep)
                decoded.rows = decoded.rows[keep]
                token = token[keep]
                attention = attention[keep]
            attention = torch.cat([attention, attention.new_ones(len(token), 1)], dim=1)
            logits = self._forward(token[:, None], attention, cache)

        return self._rollouts(prompts, decoded)

    def _empty(self, count: int, limit: int, device: torch.device) -> Decoded:
        return Decoded(
            ids=torch.zeros((count, limit), dtype=torch.long, device=device),
            logprobs=torch.zeros((count, limit), device=device),
            lengths=torch.full((count,), limit, device=device),
            stopped=torch.zeros(count, dtype=torch.bool, device=device),
            rows=torch.arange(count, device=device),
        )

    def _prefill(self, prompts: Sequence[Prompt], limit: int) -> tuple[Tensor, Cache, Tensor]:
        """Encode the P distinct prompts; at most `limit` tokens will follow.

        What all prompts begin with (a system message, solved examples) is encoded once; the rest
        is padded on the left.

        Returns:
            Next-token logits (R, V), the cache, and the attention mask (R, L).
        """
        device = self.policy.device
        distinct = list(dict.fromkeys(prompts))
        cache = roomy_cache(max(map(len, distinct)) + limit)
        shared = shared_prefix(distinct)
        attention = torch.ones((1, shared), dtype=torch.long, device=device)
        if shared:
            self._forward(torch.tensor([distinct[0][:shared]], device=device), attention, cache)
            cache.batch_select_indices(torch.zeros(len(distinct), dtype=torch.long, device=device))

        width = max(map(len, distinct)) - shared
        ids = torch.full((len(distinct), width), self.pad_id)
        real = torch.zeros((len(distinct), width), dtype=torch.long)
        for row, prompt in enumerate(distinct):
            rest = prompt[shared:]
            ids[row, width - len(rest) :] = torch.tensor(rest)
            real[row, width - len(rest) :] = 1

        attention = torch.cat([attention.expand(len(distinct), -1), real.to(device)], dim=1)
        logits = self._forward(ids.to(device), attention, cache)

        row_of = {prompt: row for row, prompt in enumerate(distinct)}
        rows = torch.tensor([row_of[prompt] for prompt in prompts], device=device)
        cache.batch_select_indices(rows)
        return logits[rows], cache, attention[rows]

    def _forward(self, ids: Tensor, attention: Tensor, cache: Cache) -> Tensor:
        """Return the logits, (rows, V), after the last of some more tokens of each row."""
        positions = (attention.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=self.last_position,
        )
        return output.logits[:, -1, : self.policy.vocabulary].float()  # type: ignore[no-any-return]

    def _texts(self, completions: Sequence[Sequence[int]]) -> list[str]:
        tokenizer = self.policy.tokenizer
        return tokenizer.batch_decode(completions, skip_special_tokens=True)  # type: ignore[no-any-return]

    def _rollouts(self, prompts: Sequence[Prompt], decoded: Decoded) -> list[Rollout]:
        """Cut the sequences to their lengths, and decode their text."""
        lengths = decoded.lengths.tolist()
        finished = decoded.stopped.tolist()
        logprobs = decoded.logprobs.cpu().numpy()
        completions = [
            tuple(row[:length]) for row, length in zip(decoded.ids.tolist(), lengths, strict=True)
        ]
        texts = self._texts(completions)
        return [
            Rollout(
                prompt_ids=prompts[i],
                completion_ids=completions[i],
                logprobs=logprobs[i, : lengths[i]],
                text=texts[i],
                finished=finished[i],
            )
            for i in range(len(prompts))
        ]


def sample(logits: Tensor, sampling: Sampling, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution at a given uniform number.

    Args:
        logits: (R, V)
        sampling: temperature 0 takes the likeliest token; its log-prob is then that at
            temperature 1.
        uniforms: (R,) in [0, 1).

    Returns:
        (R,) ids and their (R,) log-probs among all tokens, also if few are drawn from.
    """
    temperature = sampling.temperature
    if temperature == 0:
        logprobs = logits.log_softmax(-1)
        token = logprobs.argmax(-1)
        return token, logprobs.gather(1, token[:, None])[:, 0]

    logprobs = (logits / temperature).log_softmax(-1)
    chances = logprobs.exp()
    if sampling.top_k is not None:
        least = chances.topk(min(sampling.top_k, logits.shape[-1])).values[:, -1:]
        chances = chances.masked_fill(chances < least, 0.0)
    cumulative = chances.cumsum(-1, dtype=torch.float64)
    threshold = uniforms.double() * cumulative[:, -1]  # below the total, as float64 rounds
    token = torch.searchsorted(cumulative, threshold[:, None], right=True)[:, 0]
    token = token.clamp(max=logits.shape[-1] - 1)  # if logits are NaN, so is the log-prob

    return token, logprobs.gather(1, token[:, None])[:, 0]


def shared_prefix(prompts: Sequence[Prompt]) -> int:
    """Count the first tokens that all prompts share, leaving one to each; 0 if they are too few."""
    if len(prompts) < 2:
        return 0
    pairs = zip(min(prompts), max(prompts), strict=False)  # of all prompts these differ earliest
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shared = min(same, min(map(len, prompts)) - 1)
    return shared if shared >= MIN_SHARED_TOKENS else 0
