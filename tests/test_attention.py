"""Attention for decoding and the cache that appends in place, compared with transformers'."""

import inspect
from types import SimpleNamespace

import gpu_update_checks as rows
import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pods.engines import transformers_engine
from pods.policy import attention
from pods.policy.attention import attend
from pods.policy.packing import Layout

TAKES = inspect.signature(varlen_attn).parameters
LAYER = SimpleNamespace(num_key_value_groups=3, is_causal=True, training=False)


def as_on_a_card(*states, **settings):
    """Return what torch's function does, as the kernels of a card that take a mask lay it out."""
    output = scaled_dot_product_attention(*states, **settings)
    return output.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("layout", [scaled_dot_product_attention, as_on_a_card])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("tokens", [1, 4])
def test_grouped_attention_equals_repeated_keys(masked, tokens, layout, monkeypatch):
    monkeypatch.setattr(attention, "scaled_dot_product_attention", layout)
    torch.manual_seed(0)
    query = torch.randn(3, 6, tokens, 8, dtype=torch.float64)
    key, value = torch.randn(2, 3, 2, 5, 8, dtype=torch.float64)
    mask = torch.ones(3, 1, tokens, 5, dtype=torch.bool)
    mask[0, :, :, :2] = mask[1, :, :, 0] = False  # padding on the left
    inputs = (LAYER, query, key, value, mask if masked else None)
    mine, theirs = (each(*inputs, scaling=0.3)[0] for each in (attend, sdpa_attention_forward))
    assert mine.shape == theirs.shape == (3, tokens, 6, 8)
    assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("told", {False, "enable_gqa" in TAKES})  # torch 2.11 knows no word for it
@pytest.mark.parametrize("long", [False, True])
def test_one_call_for_sequences_of_unequal_lengths_equals_padded_ones(long, told, monkeypatch):
    batch = rows.row(*rows.LONG) if long else rows.row()
    states = rows.states_of(batch, "cpu", torch.float32)
    expected = rows.output_and_gradients(batch, states)
    kept, calls = [p for name, p in TAKES.items() if told or name != "enable_gqa"], []
    takes = inspect.Signature(kept)

    def twin(*arguments, **settings):
        takes.bind(*arguments, **settings)
        assert settings.get("enable_gqa", False) == told
        calls.append(arguments)
        return rows.twin(*arguments, **settings)

    twin.__signature__ = takes

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", twin)
    monkeypatch.setattr(attention, "takes_unequal_lengths", lambda *_: True)
    found = rows.output_and_gradients(batch, states)
    assert len(calls) == 1
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=0, atol=1e-5 * other.abs().max().item())


def test_the_sequences_of_a_row():
    """Prompts of 2 and 1 tokens at 0 and 5, with completions of 1 and 2, and of 1."""
    spans = rows.row([2, 1], [[1, 2], [1]]).spans
    found = Layout(spans, torch.device("cpu")).sequences
    assert found.query_ends.tolist() == [0, 2, 3, 5, 6, 7]
    assert found.key_ends.tolist() == [0, 2, 5, 9, 10, 12]
    assert found.keys.tolist() == [0, 1, 0, 1, 2, 0, 1, 3, 4, 5, 5, 6]
    assert (found.most_queries, found.most_keys) == (2, 4)
    assert found.query_ends.dtype == found.key_ends.dtype == torch.int32


def test_only_a_card_takes_unequal_lengths():
    takes = attention.takes_unequal_lengths
    assert takes("cuda", torch.bfloat16, 64) and takes("cuda", torch.float16, 128)
    not_taken = [("cpu", torch.bfloat16, 64), ("cuda", torch.float32, 64)]
    not_taken += [("cuda", torch.bfloat16, width) for width in (20, 256)]
    assert not any(takes(*each) for each in not_taken)
    states = torch.arange(6.0, dtype=torch.bfloat16).view(3, 2).requires_grad_()
    taken = attention._Rows.apply(states, torch.tensor([2] + [0] * 300))
    assert taken[:2].tolist() == [[4, 5], [0, 1]]
    taken.sum().backward()
    assert states.grad.tolist() == [[300, 300], [0, 0], [1, 1]]


def test_the_cache_holds_the_same_as_transformers():
    torch.manual_seed(0)
    mine, theirs = transformers_engine.roomy_cache(8), DynamicCache()
    for tokens, keep in ((3, [0, 0, 1]), (1, None), (1, [2, 1]), (1, None), (1, None), (1, [1])):
        rows = 2 if tokens == 3 else theirs.layers[0].keys.shape[0]
        states = torch.randn(2, rows, 2, tokens, 4)
        for layer in (0, 1):
            for cache in (mine, theirs):
                key, _ = cache.update(*states, layer_idx=layer)
        assert torch.equal(key, theirs.layers[1].keys)
        assert mine.get_seq_length() == theirs.get_seq_length()
        if keep is not None:
            for cache in (mine, theirs):
                cache.batch_select_indices(torch.tensor(keep))
        for a, b in zip(mine.layers, theirs.layers, strict=True):
            assert torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)
            assert {buffer.shape[2] for buffer in a.buffers or ()} <= {8}
