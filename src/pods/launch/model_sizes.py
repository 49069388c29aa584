"""The sizes of a model, from its config.json or its preset, without its weights."""

import json
from pathlib import Path
from typing import Any

from pods.config.schema import ModelConfig, SizesConfig
from pods.runs.paths import weights_source
from pods.system.text import gigabytes

DOWNLOADED = 2  # bytes of a weight on the hub, where these models are in 16 bits


def describe_model(model: ModelConfig) -> str:
    """Say where a model comes from, how large it is and how much of it is trained."""
    sizes = read_sizes(model)
    text = f"{model.name}, {_source(model, sizes)}"
    if sizes is None:
        return text

    text += f", {_count(sizes.parameters)} parameters"
    if model.tuning == "full":
        return f"{text}, all trained"
    adapters = _count(trained_numbers(model, sizes))
    return f"{text}, and {adapters} in the LoRA adapters, which alone are trained"


def _source(model: ModelConfig, sizes: SizesConfig | None) -> str:
    """Return the folder of the weights, or their name on the hub and what is to be downloaded."""
    source = weights_source(model)
    if source != model.hub:
        return source
    text = f"{source} on the hub"
    if sizes is not None and _config_json(model) is None:
        text += f" ({gigabytes(DOWNLOADED * sizes.parameters)} to download)"
    return text


def _count(numbers: int) -> str:
    if numbers >= 1e9:
        return f"{numbers / 1e9:.2f} billion"
    if numbers >= 1e6:
        return f"{numbers / 1e6:.3g} million"
    return f"{numbers:,}"


def trained_numbers(model: ModelConfig, sizes: SizesConfig) -> int:
    """Return how many numbers training changes: all, or two factors for each linear layer."""
    if model.tuning == "full":
        return sizes.parameters
    queries = sizes.heads * sizes.head_size
    keys = sizes.kv_heads * sizes.head_size
    attention = 2 * (sizes.hidden + queries) + 2 * (sizes.hidden + keys)
    gated = 3 * (sizes.hidden + sizes.intermediate)
    return sizes.layers * model.lora.r * (attention + gated)


def layer_numbers(sizes: SizesConfig) -> int:
    """Return the numbers in the weights of one layer, with two norms and without biases."""
    attention = 2 * (sizes.heads + sizes.kv_heads) * sizes.head_size
    return sizes.hidden * (attention + 3 * sizes.intermediate + 2)


def read_sizes(model: ModelConfig) -> SizesConfig | None:
    """Read a model's sizes from its config.json if it is here, else from `model.sizes`."""
    path = _config_json(model)
    found = None if path is None else _from_json(json.loads(path.read_text()))
    if found is None and model.sizes.parameters and model.path is None:
        return model.sizes
    return found


def _config_json(model: ModelConfig) -> Path | None:
    """Return where the config.json of the weights is; None if it is not on this machine."""
    source = weights_source(model)
    path = Path(source) / "config.json"
    if source == model.hub:
        from huggingface_hub import try_to_load_from_cache

        path = Path(str(try_to_load_from_cache(source, "config.json")))
    return path if path.is_file() else None


def _from_json(content: dict[str, Any]) -> SizesConfig | None:
    """Return the sizes in a config.json; None if it is of another kind of model."""
    try:
        heads = content["num_attention_heads"]
        sizes = SizesConfig(
            parameters=0,
            layers=content["num_hidden_layers"],
            hidden=content["hidden_size"],
            intermediate=content["intermediate_size"],
            heads=heads,
            kv_heads=content.get("num_key_value_heads") or heads,
            head_size=content.get("head_dim") or content["hidden_size"] // heads,
            vocabulary=content["vocab_size"],
        )
    except KeyError:
        return None
    embeddings = 1 if content.get("tie_word_embeddings") else 2
    outside = (embeddings * sizes.vocabulary + 1) * sizes.hidden  # with the last norm
    sizes.parameters = sizes.layers * layer_numbers(sizes) + outside
    return sizes
