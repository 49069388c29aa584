"""The `transformers` engine: Hugging Face modelling code, sampling from the training weights.

Unlike in `model.generate`, every draw is a function of a prompt's seed (no global generator), the
log-prob of each token comes out of the same pass, and finished sequences leave the batch. A prompt
is encoded once for its n rollouts, and a beginning that all prompts share once for all of them.

Shapes: R = sequences decoded together, P = distinct prompts among them, V = vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from pods.engines.decoding import StaticPass, roomy_cache
from pods.policy.policy import Policy
from pods.types import GenerationRequest, OnCompletion, Prompt, Rollout, Sampling

MIN_SHARED_TOKENS = 32  # a shared beginning is encoded separately if it is at least this long
SHRINK_BELOW = {False: 0.75, True: 0.25}  # share of active rows; True: of a static pass, made anew
HOST_ROPES = ("dynamic", "longrope")  # read the positions on the host, which no graph can


class TransformersEngine:
    """Samples from the policy's own weights, or from its mirror if it has one."""

    facts: Mapping[str, Any] = {}

    def __init__(
        self, policy: Policy, max_rows: int, check: Callable[[], None], graphs: str = "full"
    ) -> None:
        """Decode at most `max_rows` sequences at a time; `check()` may raise between tokens.

        On a CUDA device, unless `graphs` is "none", the pass for a token is captured and replayed.
        """
        self.policy = policy
        self.max_rows = max_rows
        self.check = check
        self.model = policy.causal_lm if policy.mirror is None else policy.mirror.model
        rope = (getattr(self.model.config, "rope_parameters", None) or {}).get("rope_type")
        self.static = graphs != "none" and policy.device.type == "cuda" and rope not in HOST_ROPES
        self.capture = (torch.cuda.MemPool(), torch.cuda.Stream()) if self.static else None
        self.stop_ids = torch.tensor(policy.stop_ids, device=policy.device)
        self.pad_id = int(policy.tokenizer.pad_token_id or 0)

    def sync(self) -> None:
        """Refresh the policy's mirror, if it has one; otherwise the weights are shared."""
        if self.policy.mirror is not None:
            self.policy.mirror.refresh()

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt; see `Engine.generate`."""
        self.sync()  # costs nothing if it was called already; never sample from old weights
        n, limit = request.n, request.sampling.max_completion_tokens
        rows = request.drawn()
        # by NumPy, since torch on a CPU uses 32 bits of a seed
        drawn = [np.random.default_rng(seed).random((n, limit)) for seed in request.seeds]
        uniforms = torch.from_numpy(np.concatenate(drawn)[rows.start : rows.stop])  # (rows, limit)
        groups: list[list[Rollout]] = [[] for _ in request.prompts]
        for start in range(0, len(rows), self.max_rows):
            chunk = slice(start, start + self.max_rows)
            indices = [row // n for row in rows[chunk]]
            decoded = self._decode(request, indices, uniforms[chunk], on_completion)
            for index, rollout in zip(indices, decoded, strict=True):
                groups[index].append(rollout)
        return groups

    @torch.inference_mode()
    def _decode(
        self, request: GenerationRequest, prompt_indices: Sequence[int], uniforms: Tensor,
        on_completion: OnCompletion | None,
    ) -> list[Rollout]:  # fmt: skip
        """Decode R sequences of prompts of the request, with uniform numbers (R, limit)."""
        prompts = [request.prompts[index] for index in prompt_indices]
        logits, cache, attention = self._prefill(prompts, request.sampling.max_completion_tokens)
        (count, limit), device = uniforms.shape, logits.device
        uniforms = uniforms.to(device)
        ids = torch.zeros((count, limit), dtype=torch.long, device=device)
        logprobs = torch.zeros((count, limit), device=device)
        lengths = torch.full((count,), limit, device=device)
        stopped = torch.zeros(count, dtype=torch.bool, device=device)
        rows = torch.arange(count, device=device)  # the sequences that are still in the batch
        one_more, num_active = None, count
        for t in range(limit):
            self.check()
            token, logprob = sample(logits, request.sampling, uniforms[rows, t])
            ids[rows, t], logprobs[rows, t] = token, logprob
            stops = torch.isin(token, self.stop_ids) & ~stopped[rows]
            lengths[rows] = torch.where(stops, t + 1, lengths[rows])  # a mask would wait
            stopped[rows] |= stops
            last, active = t + 1 == limit, ~stopped[rows]
            before, num_active = num_active, int(active.sum())  # waits for a card, once a token
            if on_completion is not None and (last or num_active < before):
                ended = rows[stops | active] if last else rows[stops]
                texts = self._texts(ids[ended, : t + 1].tolist())
                for row, text in zip(ended.tolist(), texts, strict=True):
                    on_completion(prompt_indices[row], text)
            if num_active == 0 or last:
                break
            if num_active < SHRINK_BELOW[self.static] * len(rows):
                keep, one_more = active.nonzero()[:, 0], None
                cache.batch_select_indices(keep)
                rows, token, attention = rows[keep], token[keep], attention[keep]
            attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
            one_more = one_more or self._one_more(attention, cache)
            logits = one_more(token, attention)
        return self._rollouts(prompts, ids, logprobs, lengths, stopped)

    def _prefill(self, prompts: Sequence[Prompt], limit: int) -> tuple[Tensor, Cache, Tensor]:
        """Encode the P distinct prompts; return next-token logits (R, V), cache and mask (R, L).

        What all prompts begin with (a system message, solved examples) is encoded once; the rest
        is padded on the left. At most `limit` tokens will follow.
        """
        distinct, device = list(dict.fromkeys(prompts)), self.policy.device
        cache, shared = roomy_cache(max(map(len, distinct)) + limit), shared_prefix(distinct)
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

    def _one_more(self, attention: Tensor, cache: Cache) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the pass for one more token: of these (R,) tokens and their mask (R, L)."""
        if self.static:
            return StaticPass(self._logits, attention, cache, self.capture)
        return lambda token, attention: self._forward(token[:, None], attention, cache)

    def _forward(self, ids: Tensor, attention: Tensor, cache: Cache) -> Tensor:
        positions = (attention.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return self._logits(ids, attention, positions, cache)

    def _logits(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1, : self.policy.vocabulary].float()  # type: ignore[no-any-return]

    def _texts(self, completions: Sequence[Sequence[int]]) -> list[str]:
        tokenizer = self.policy.tokenizer
        return tokenizer.batch_decode(completions, skip_special_tokens=True)  # type: ignore[no-any-return]

    def _rollouts(
        self, prompts: Sequence[Prompt], ids: Tensor, logs: Tensor, lengths: Tensor, stopped: Tensor
    ) -> list[Rollout]:
        """Cut R rows of ids and log-probs to their lengths, and decode their text."""
        rows = zip(ids.tolist(), lengths.tolist(), strict=True)
        completions = [tuple(row[:length]) for row, length in rows]
        cut = zip(logs.cpu().numpy(), completions, strict=True)
        of_tokens = [row[: len(completion)] for row, completion in cut]
        texts, finished = self._texts(completions), stopped.tolist()
        return [*map(Rollout, prompts, completions, of_tokens, texts, finished)]


def sample(logits: Tensor, sampling: Sampling, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution at a given uniform number.

    Args:
        logits: (R, V)
        sampling: temperature 0 takes the likeliest token; its log-prob is then that at
            temperature 1.
        uniforms: (R,) in [0, 1).

    Returns:
        (R,) ids and their (R,) log-probs among all tokens, also where few are drawn from.
    """
    temperature = sampling.temperature
    logprobs = (logits / temperature if temperature > 0 else logits).log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        chances = logprobs.exp()
        if sampling.top_k is not None:
            least = chances.topk(min(sampling.top_k, logits.shape[-1])).values[:, -1:]
            chances = chances.masked_fill(chances < least, 0.0)
        cumulative = chances.cumsum(-1, dtype=torch.float64)
        threshold = uniforms.double() * cumulative[:, -1]  # below the total, as float64 rounds
        token = torch.searchsorted(cumulative, threshold[:, None], right=True)[:, 0]
        token = token.clamp(max=logits.shape[-1] - 1)  # where logits are NaN, so is the log-prob
    return token, logprobs.gather(1, token[:, None])[:, 0]


def shared_prefix(prompts: Sequence[Prompt]) -> int:
    """Count the first tokens that all prompts share, leaving one to each; 0 if they are too few."""
    pairs = zip(min(prompts), max(prompts), strict=False)  # of all prompts these differ earliest
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shared = min(same, min(map(len, prompts)) - 1)
    return shared if shared >= MIN_SHARED_TOKENS and len(prompts) > 1 else 0
