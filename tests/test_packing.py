"""Packed micro-batches and their log-probs, against the plain form of one sequence at a time."""

import numpy as np
import pytest
import torch
from precision import to_double
from transformers import LlamaConfig, LlamaForCausalLM

from pods.policy import attention, logprobs
from pods.policy.packing import Family, micro_batches, pack
from pods.records import Rollout

VOCABULARY = 45  # of the 50 ids that the output layer has
PROMPTS = [(3, 1, 4, 1, 5), (9, 2, 6), (5,)]
LENGTHS = [[4, 1, 7], [2, 2], [3]]


def model(dtype, frozen):
    """Six query heads on two key heads; the head's weight is trained or frozen."""
    attention.register()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, attn_implementation=attention.NAME,
    )  # fmt: skip
    made = LlamaForCausalLM(config).eval()
    if dtype == torch.float64:
        to_double(made)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(4)  # far from uniform
    made.get_output_embeddings().weight.requires_grad_(not frozen)
    return made


def drawn():
    rng = np.random.default_rng(0)
    return [
        Rollout(
            prompt, tuple(rng.integers(VOCABULARY, size=n).tolist()), np.zeros(n), "", True
        )
        for prompt, lengths in zip(PROMPTS, LENGTHS, strict=True)
        for n in lengths
    ]  # fmt: skip


FAMILIES = [[0, 1, 2], [3, 4], [5]]


def plain(policy, rollout, temperature):
    """The log-probs of one sequence by transformers' own attention and a softmax of all logits."""
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
    scores = (policy(ids).logits[0, :, :VOCABULARY] / temperature).log_softmax(-1)
    start = len(rollout.prompt_ids)
    return torch.stack([scores[t - 1, ids[0, t]] for t in range(start, ids.shape[1])])


def slopes(policy, value):
    """The gradient of some function of the log-probs that has another slope at each."""
    policy.zero_grad()
    (value * torch.linspace(-1, 2, len(value))).sum().backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("padding", [attention.PADDING, 0])
@pytest.mark.parametrize("chunk", [logprobs.CHUNK_ELEMENTS, VOCABULARY * 3])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_packed_and_chunked_equals_each_sequence_alone(
    dtype, bound, frozen, chunk, padding, monkeypatch
):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(attention, "PADDING", padding)
    policy, made = model(dtype, frozen), drawn()
    found = logprobs.token_logprobs(
        policy, pack(made, FAMILIES), temperature=0.7, vocabulary=VOCABULARY
    )
    policy.config._attn_implementation = "sdpa"
    expected = torch.cat([plain(policy, rollout, 0.7) for rollout in made])
    assert found.dtype == dtype
    assert torch.allclose(
        found, expected, rtol=0, atol=bound * expected.detach().abs().max().item()
    )
    mine, theirs = slopes(policy, found), slopes(policy, expected)
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert largest > 1
    for name, gradient in theirs.items():
        assert torch.allclose(mine[name], gradient, rtol=0, atol=bound * largest), name
    assert ("lm_head.weight" in mine) != frozen


@pytest.mark.parametrize("frozen", [True, False])
def test_no_array_of_all_tokens_and_all_ids_is_made(frozen, monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", VOCABULARY * 2)
    rows = []
    real = logprobs._logits
    monkeypatch.setattr(
        logprobs, "_logits", lambda states, *rest: rows.append(len(states)) or real(states, *rest)
    )
    policy, batch = model(torch.float32, frozen), pack(drawn(), FAMILIES)
    logprobs.token_logprobs(
        policy, batch, temperature=1.0, vocabulary=VOCABULARY
    ).sum().backward()  # fmt: skip
    assert max(rows) == 2
    assert sum(rows) == len(batch.targets) * (1 if frozen else 2)  # frozen: logits made only once


def test_a_prompt_goes_through_the_model_once_for_all_of_its_completions():
    made = drawn()
    (batch,) = micro_batches(made, range(6), tokens=100)
    assert len(batch.ids) == sum(map(len, PROMPTS)) + sum(map(sum, LENGTHS))
    assert [(one.prompt, one.lengths) for one in batch.families] == [
        (5, [1, 4, 7]), (3, [2, 2]), (1, [3])
    ]  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 8, 9, 12, 19, 100])
def test_micro_batches_hold_every_sequence_once_within_the_budget(tokens):
    made = drawn()
    batches = list(micro_batches(made, [4, 0, 5, 2, 1], tokens))
    assert sorted(i for batch in batches for i in batch.members) == [0, 1, 2, 4, 5]
    for batch in batches:
        padded = sum(one.prompt + len(one.lengths) * max(one.lengths) for one in batch.families)
        assert padded <= tokens or len(batch.members) == 1
        assert len(batch.ids) <= padded
        assert batch.lengths == [len(made[i].completion_ids) for i in batch.members]
        pieces = batch.targets.split(batch.lengths)
        for i, targets, before in zip(
            batch.members, pieces, batch.before.split(batch.lengths), strict=True
        ):
            rollout = made[i]
            assert targets.tolist() == list(rollout.completion_ids)
            assert batch.positions[before].tolist() == [
                len(rollout.prompt_ids) - 1 + t for t in range(len(targets))
            ]
            assert batch.ids[before].tolist() == [
                rollout.prompt_ids[-1], *rollout.completion_ids[:-1]
            ]  # fmt: skip


def test_a_micro_batch_may_fill_its_budget():
    """Prompts once, completions as long as their longest: 5 + 3 * 7, 3 + 2 * 2 and 1 + 3 are 37."""
    made = drawn()
    for tokens, members in ((37, [6]), (36, [5, 1]), (33, [5, 1]), (32, [4, 2])):
        batches = micro_batches(made, range(6), tokens)
        assert [len(batch.members) for batch in batches] == members


def test_rows_of_attention_are_alike_in_length(monkeypatch):
    def cuts(lengths):
        found = list(attention._rows_of(Family(0, 2, lengths), torch.device("cpu")))
        taken = torch.cat([one.padded.flatten()[one.real] for one in found])
        assert taken.tolist() == list(range(sum(lengths)))  # each token once, in order
        return [tuple(one.padded.shape) for one in found]

    assert cuts([3, 20, 30]) == [(3, 30)]
    monkeypatch.setattr(attention, "PADDING", 0)
    assert cuts([3, 20, 30]) == [(1, 3), (2, 30)]  # 17 beside 23 are over a quarter, 10 of 50 not
    assert cuts([20, 21, 22, 30, 31]) == [(3, 22), (2, 31)]
    assert cuts([20, 21, 22, 26]) == [(4, 26)]
    assert cuts([7, 7, 7]) == [(3, 7)]
