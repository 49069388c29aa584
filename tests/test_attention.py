"""Attention for decoding and the cache that appends in place, compared with transformers'."""

from types import SimpleNamespace

import pytest
import torch
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pods.engines import transformers_engine
from pods.policy.attention import attend

LAYER = SimpleNamespace(num_key_value_groups=3, is_causal=True, training=False)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("tokens", [1, 4])
def test_grouped_attention_equals_repeated_keys(masked, tokens):
    torch.manual_seed(0)
    query = torch.randn(3, 6, tokens, 8, dtype=torch.float64)
    key, value = torch.randn(2, 3, 2, 5, 8, dtype=torch.float64)
    mask = torch.ones(3, 1, tokens, 5, dtype=torch.bool)
    mask[0, :, :, :2] = mask[1, :, :, 0] = False  # padding on the left
    mine, theirs = (
        function(LAYER, query, key, value, mask if masked else None, scaling=0.3)[0]
        for function in (attend, sdpa_attention_forward)
    )
    assert mine.shape == theirs.shape == (3, tokens, 6, 8)
    assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tokens_in_all", [0, 8])
def test_the_cache_holds_the_same_as_transformers(tokens_in_all, monkeypatch):
    monkeypatch.setattr(transformers_engine, "BLOCK", 2)  # so that it grows several times
    torch.manual_seed(0)
    mine, theirs = transformers_engine.block_cache(tokens_in_all), DynamicCache()
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
            room = {buffer.shape[2] for buffer in a.buffers or ()}
            assert not tokens_in_all or room <= {8}  # made once for all tokens
