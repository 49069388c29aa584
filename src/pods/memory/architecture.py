"""The sizes of public models, from which the shapes of their weights follow.

With these a run can be planned on a machine that has no file of its model. A test compares the
shapes with those that transformers makes, and the totals with the published ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_KEYS = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
)
_SIZES = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", 896, 24, 14, 2, 4864, 151_936, True),
    "Qwen/Qwen2.5-3B-Instruct": ("qwen2", 2048, 36, 16, 2, 11_008, 151_936, True),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", 3584, 28, 28, 4, 18_944, 152_064, False),
    "Qwen/Qwen2.5-Math-1.5B": ("qwen2", 1536, 28, 12, 2, 8960, 151_936, True),
    "Qwen/Qwen2.5-Math-7B": ("qwen2", 3584, 28, 28, 4, 18_944, 152_064, False),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ("qwen2", 1536, 28, 12, 2, 8960, 151_936, False),
    "meta-llama/Llama-3.2-3B-Instruct": ("llama", 3072, 28, 24, 8, 8192, 128_256, True),
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("llama", 576, 30, 9, 3, 1536, 49_152, True),
}
KNOWN: dict[str, dict[str, Any]] = {
    name: dict(zip(_KEYS, sizes, strict=True)) for name, sizes in _SIZES.items()
}
"""By the name on the hub, the keys of a model's config.json that decide its sizes."""


def weight_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each weight in the files of a model with this config.json."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    for index in range(config["num_hidden_layers"]):
        for name, shape in _layer_shapes(config):
            yield f"model.layers.{index}.{name}", shape


def _layer_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    for name, outputs in (("q_proj", hidden), ("k_proj", keys), ("v_proj", keys)):
        yield f"self_attn.{name}.weight", (outputs, hidden)
        if config["model_type"] == "qwen2":
            yield f"self_attn.{name}.bias", (outputs,)
    yield "self_attn.o_proj.weight", (hidden, hidden)
    for name in ("gate_proj", "up_proj"):
        yield f"mlp.{name}.weight", (inner, hidden)
    yield "mlp.down_proj.weight", (hidden, inner)
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{name}.weight", (hidden,)
