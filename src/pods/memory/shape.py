"""What decides a model's memory, from its config.json and its weights' headers: no loading.

A public model whose files are not here is taken from `architecture.py`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pods.config import ModelConfig
from pods.memory import architecture
from pods.runs.home import weights


class NotPlanned(Exception):
    """The files that a plan is made of are not here; the message says which."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a causal language model with attention and gated layers."""

    parameters: int
    """Numbers in the weights' files; an output layer tied to the embedding is there once."""
    trained: int
    """Numbers that training moves: all, or those of the adapters."""
    adapted: int
    """Linear layers with an adapter; 0 where all weights are trained."""
    adapted_weights: int
    """Numbers in those layers' own weights."""
    embedded: int
    """Numbers outside of the layers: embedding, last norm, an output layer that is not tied."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    """Fewer than `heads` where several query heads share keys and values."""
    head_width: int
    vocabulary: int


def read_shape(model: ModelConfig) -> Shape:
    """Read a model's sizes from its files, or take them as known.

    Raises:
        NotPlanned: its files are not on this machine and it is not known, or they are of a kind
            that is not known here.
    """
    known, tensors, place = _described(model)
    adapted = list(_adapted(tensors, model))
    parameters = sum(map(math.prod, tensors.values()))
    try:
        heads = known["num_attention_heads"]
        return Shape(
            parameters=parameters,
            trained=_trained(parameters, adapted, model),
            adapted=len(adapted),
            adapted_weights=sum(map(math.prod, adapted)),
            embedded=sum(math.prod(size) for name, size in tensors.items() if not _inside(name)),
            hidden=known["hidden_size"],
            intermediate=known["intermediate_size"],
            layers=known["num_hidden_layers"],
            heads=heads,
            key_heads=known.get("num_key_value_heads") or heads,
            head_width=known.get("head_dim") or known["hidden_size"] // heads,
            vocabulary=known["vocab_size"],
        )
    except KeyError as missing:
        raise NotPlanned(f"{place} has no {missing.args[0]}") from missing


def trained_parameters(model: ModelConfig) -> int:
    """How many numbers are trained; 0 where nothing is known of the model."""
    try:
        _, tensors, _ = _described(model)
    except NotPlanned:
        return 0
    return _trained(sum(map(math.prod, tensors.values())), list(_adapted(tensors, model)), model)


def _described(model: ModelConfig) -> tuple[Mapping[str, Any], dict[str, tuple[int, ...]], str]:
    """A model's config, its weights' sizes by name, and where they are from.

    Raises:
        NotPlanned: there is neither.
    """
    try:
        folder = _folder(model)
    except NotPlanned:
        known = architecture.KNOWN.get(model.hub or "")
        if known is None or model.path is not None:
            raise
        return known, dict(architecture.tensors(known)), str(model.hub)
    tensors = dict(_tensors(folder))
    if not tensors:
        raise NotPlanned(f"{folder} has no safetensors to read sizes from")
    path = folder / "config.json"
    return json.loads(path.read_text()), tensors, str(path)


def _inside(name: str) -> bool:
    """Whether a weight is of one of the layers."""
    return ".layers." in name


def _trained(parameters: int, adapted: list[tuple[int, ...]], model: ModelConfig) -> int:
    return parameters if model.tuning == "full" else model.lora.r * sum(map(sum, adapted))


def _folder(model: ModelConfig) -> Path:
    """Where the model's files are: a folder of the user's or the package's, or the hub's cache."""
    place = weights(model)
    if (Path(place) / "config.json").is_file():
        return Path(place)
    if model.path is None and model.hub is not None:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(place, "config.json")
        if isinstance(cached, str):
            return Path(cached).parent
    raise NotPlanned(f"{place} is not on this machine yet")


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and sizes of each tensor of the weights, as transformers would find them."""
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    names = {whole.name} if whole.is_file() else set()
    if index.is_file() and not names:
        names = set(json.loads(index.read_text())["weight_map"].values())
    for path in (folder / name for name in sorted(names)):
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                yield name, tuple(file.get_slice(name).get_shape())


def _adapted(tensors: dict[str, tuple[int, ...]], model: ModelConfig) -> Iterator[tuple[int, ...]]:
    """(outputs, inputs) of the linear layers that get an adapter."""
    if model.tuning == "lora":
        for name, sizes in tensors.items():
            _, _, layer = name.removesuffix(".weight").rpartition(".")
            if layer in model.lora.targets and len(sizes) == 2:
                yield sizes
