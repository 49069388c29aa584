"""Public models by the keys of their config.json that decide sizes, and the weights these make.

So that a run can be planned where no file of its model is; a test holds the totals to those that
transformers counts, and to the published ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_QWEN: dict[str, Any] = {"model_type": "qwen2", "tie_word_embeddings": True}
_QWEN_1_5B = _QWEN | {
    "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151_936,
}  # fmt: skip
_QWEN_7B = _QWEN | {
    "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18_944, "vocab_size": 152_064,
    "tie_word_embeddings": False,
}  # fmt: skip
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN | {
        "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151_936,
    },
    "Qwen/Qwen2.5-3B-Instruct": _QWEN | {
        "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
        "num_key_value_heads": 2, "intermediate_size": 11_008, "vocab_size": 151_936,
    },
    "Qwen/Qwen2.5-7B-Instruct": _QWEN_7B,
    "Qwen/Qwen2.5-Math-1.5B": _QWEN_1_5B,
    "Qwen/Qwen2.5-Math-7B": _QWEN_7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _QWEN_1_5B | {"tie_word_embeddings": False},
    "meta-llama/Llama-3.2-3B-Instruct": {
        "model_type": "llama", "hidden_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 8192, "vocab_size": 128_256, "tie_word_embeddings": True,
    },
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "vocab_size": 49_152, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""By the name on the hub."""


def tensors(known: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and sizes of each weight that the files of such a model hold."""
    hidden, vocabulary = known["hidden_size"], known["vocab_size"]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    if not known["tie_word_embeddings"]:
        yield "lm_head.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    for index in range(known["num_hidden_layers"]):
        for name, sizes in _layer(known):
            yield f"model.layers.{index}.{name}", sizes


def _layer(known: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = known["hidden_size"], known["intermediate_size"]
    heads = known["num_attention_heads"]
    width = known.get("head_dim") or hidden // heads
    attended, keys = heads * width, known["num_key_value_heads"] * width
    for name, outputs in (("q_proj", attended), ("k_proj", keys), ("v_proj", keys)):
        yield f"self_attn.{name}.weight", (outputs, hidden)
        if known["model_type"] == "qwen2":
            yield f"self_attn.{name}.bias", (outputs,)
    yield "self_attn.o_proj.weight", (hidden, attended)
    for name in ("gate_proj", "up_proj"):
        yield f"mlp.{name}.weight", (inner, hidden)
    yield "mlp.down_proj.weight", (hidden, inner)
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{name}.weight", (hidden,)
