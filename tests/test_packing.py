"""Packed micro-batches and their log-probs, compared with one sequence at a time."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from policies import plain_logits, to_double
from transformers import LlamaConfig, LlamaForCausalLM

from pods.policy import attention, logprobs, packing
from pods.policy.packing import PromptSpan, pack, plan_micro_batches
from pods.types import Rollout

VOCABULARY = 45  # of the 50 ids that the output layer has
PROMPTS = [(3, 1, 4, 1, 5), (9, 2, 6), (5,)]
LENGTHS = [[4, 1, 7], [2, 2], [3]]


def model(dtype, frozen):
    """Six query heads on two key heads; the head's weight is trained or frozen."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, attn_implementation=attention.NAME,
    )  # fmt: skip
    llama = LlamaForCausalLM(config).eval()
    if dtype == torch.float64:
        to_double(llama)
    with torch.no_grad():
        for parameter in llama.parameters():
            parameter.mul_(4)  # far from uniform
    llama.get_output_embeddings().weight.requires_grad_(not frozen)
    return llama


def rollouts():
    rng = np.random.default_rng(0)
    return [
        Rollout(prompt, tuple(rng.integers(VOCABULARY, size=n).tolist()), np.zeros(n), "", True)
        for prompt, lengths in zip(PROMPTS, LENGTHS, strict=True)
        for n in lengths
    ]


def micro_batches(indices, tokens):
    planned = plan_micro_batches(rollouts(), indices, tokens)
    return [pack(rollouts(), batch) for batch in planned]


BY_PROMPT = [[0, 1, 2], [3, 4], [5]]


def plain(policy, rollout, temperature):
    """Log-probs and entropies of one sequence by transformers' attention and torch's softmax."""
    logits = plain_logits(policy, rollout, temperature)[:, :VOCABULARY]
    softmax = torch.distributions.Categorical(logits=logits)
    return softmax.log_prob(torch.tensor(rollout.completion_ids)), softmax.entropy()


def gradients(policy, value):
    """The gradient of a function of the log-probs that has a different slope at each."""
    policy.zero_grad()
    (value * torch.linspace(-1, 2, len(value))).sum().backward(retain_graph=True)
    return {name: p.grad for name, p in policy.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("padding", [packing.PADDING, 0])
@pytest.mark.parametrize("chunk", [2**24, VOCABULARY * 3])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_packed_and_chunked_equals_each_sequence_alone(
    dtype, bound, frozen, padded, chunk, padding, monkeypatch
):
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", chunk)
    if padded:  # as on a card
        monkeypatch.setattr(logprobs, "scored_rows", lambda head, vocabulary: len(head))
    monkeypatch.setattr(packing, "PADDING", padding)
    policy, batch = model(dtype, frozen), pack(rollouts(), BY_PROMPT)
    settings = {"temperature": 0.7, "vocabulary": VOCABULARY, "entropy_gradient": True}
    packed, entropy = logprobs.token_logprobs(policy, batch, **settings)
    policy.config._attn_implementation = "sdpa"
    alone = [plain(policy, rollout, 0.7) for rollout in rollouts()]
    expected, entropies = map(torch.cat, zip(*alone, strict=True))
    assert packed.dtype == dtype
    largest = expected.detach().abs().max().item()
    assert torch.allclose(packed, expected, rtol=0, atol=bound * largest)
    assert torch.allclose(entropy, entropies, rtol=0, atol=10 * bound)
    factor = torch.linspace(0.5, 2, len(entropy), dtype=dtype)
    both = packed + factor * entropy, expected + factor * entropies
    for one, other in ((packed, expected), (factor * entropy, factor * entropies), both):
        mine, theirs = gradients(policy, one), gradients(policy, other)
        largest = max(float(gradient.abs().max()) for gradient in theirs.values())
        assert largest > 1
        for name, gradient in theirs.items():
            assert torch.allclose(mine[name], gradient, rtol=0, atol=bound * largest), name
        assert ("lm_head.weight" in mine) != frozen


@pytest.mark.parametrize("frozen", [True, False])
def test_no_array_of_all_tokens_and_all_ids_is_made(frozen, monkeypatch):
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", VOCABULARY * 2)
    spy = Mock(wraps=logprobs._log_softmax)
    monkeypatch.setattr(logprobs, "_log_softmax", spy)
    policy, batch = model(torch.float32, frozen), pack(rollouts(), BY_PROMPT)
    found = logprobs.token_logprobs(policy, batch, temperature=1.0, vocabulary=VOCABULARY)
    found.logprobs.sum().backward()
    rows = [len(call.args[0]) for call in spy.call_args_list]
    assert max(rows) == 2
    assert sum(rows) == len(batch.targets) * (1 if frozen else 2)  # frozen: logits made only once


@pytest.mark.parametrize("tokens", [1, 8, 9, 12, 19, 100])
def test_micro_batches_hold_every_sequence_once_within_the_budget(tokens):
    batches = micro_batches([4, 0, 5, 2, 1], tokens)
    assert sorted(i for batch in batches for i in batch.indices) == [0, 1, 2, 4, 5]
    for batch in batches:
        padded = sum(s.prompt_length + len(s.lengths) * max(s.lengths) for s in batch.spans)
        assert padded <= tokens or len(batch.indices) == 1
        assert len(batch.ids) <= padded
        assert batch.lengths == [len(rollouts()[i].completion_ids) for i in batch.indices]
        pieces = [tensor.split(batch.lengths) for tensor in (batch.targets, batch.previous)]
        for i, targets, previous in zip(batch.indices, *pieces, strict=True):
            rollout = rollouts()[i]
            assert targets.tolist() == list(rollout.completion_ids)
            first = len(rollout.prompt_ids) - 1
            assert batch.positions[previous].tolist() == [first + t for t in range(len(targets))]
            before = [rollout.prompt_ids[-1], *rollout.completion_ids[:-1]]
            assert batch.ids[previous].tolist() == before


def test_a_micro_batch_may_fill_its_budget_and_has_each_prompt_once():
    """Prompts once, completions as long as their longest: 5 + 3 * 7, 3 + 2 * 2 and 1 + 3 are 37."""
    for tokens, counts in ((37, [6]), (36, [2, 4]), (23, [2, 4]), (22, [2, 1, 3])):  # even: 13, 23
        assert [len(batch.indices) for batch in micro_batches(range(6), tokens)] == counts
    long = [Rollout((1,) * 130, (2,) * 512, np.zeros(512), "", True)] * 16
    for tokens, counts in ((8322, [16]), (8192, [8, 8]), (2048, [3, 3, 3, 3, 3, 1])):
        assert [len(group) for [group] in plan_micro_batches(long, range(16), tokens)] == counts
    [batch] = micro_batches(range(6), tokens=100)
    assert len(batch.ids) == sum(map(len, PROMPTS)) + sum(map(sum, LENGTHS))
    spans = [(span.prompt_length, span.lengths) for span in batch.spans]
    assert spans == [(5, [1, 4, 7]), (3, [2, 2]), (1, [3])]


def test_rows_of_attention_are_of_similar_length(monkeypatch):
    def shapes(lengths):
        span = PromptSpan(0, 2, lengths)
        rows = list(packing._completion_rows(span, torch.device("cpu")))
        tokens = torch.cat([each.padded.flatten()[each.real] for each in rows])
        assert tokens.tolist() == list(range(sum(lengths)))  # each token once, in order
        return [tuple(each.padded.shape) for each in rows]

    assert shapes([3, 20, 30]) == [(3, 30)]
    monkeypatch.setattr(packing, "PADDING", 0)
    assert shapes([3, 20, 30]) == [(1, 3), (2, 30)]  # 17 beside 23 are over a quarter, 10 of 50 not
    assert shapes([20, 21, 22, 30, 31]) == [(3, 22), (2, 31)]
    assert shapes([20, 21, 22, 26]) == [(4, 26)]
    assert shapes([7, 7, 7]) == [(3, 7)]
