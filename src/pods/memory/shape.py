"""What decides a model's memory, from its config.json and its weights' headers: no loading."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from pods.config import ModelConfig
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
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    """Fewer than `heads` where several query heads share keys and values."""
    head_width: int
    vocabulary: int


def read_shape(model: ModelConfig) -> Shape:
    """Read a model's sizes from its files.

    Raises:
        NotPlanned: they are not on this machine, or are of a kind that is not known here.
    """
    folder = _folder(model)
    tensors = dict(_tensors(folder))
    if not tensors:
        raise NotPlanned(f"{folder} has no safetensors to read sizes from")
    known = json.loads((folder / "config.json").read_text())
    parameters = sum(map(math.prod, tensors.values()))
    adapted = list(_adapted(tensors, model))
    try:
        heads = known["num_attention_heads"]
        return Shape(
            parameters=parameters,
            trained=_trained(parameters, adapted, model),
            adapted=len(adapted),
            adapted_weights=sum(map(math.prod, adapted)),
            hidden=known["hidden_size"],
            intermediate=known["intermediate_size"],
            layers=known["num_hidden_layers"],
            heads=heads,
            key_heads=known.get("num_key_value_heads") or heads,
            head_width=known.get("head_dim") or known["hidden_size"] // heads,
            vocabulary=known["vocab_size"],
        )
    except KeyError as missing:
        raise NotPlanned(f"{folder / 'config.json'} has no {missing.args[0]}") from missing


def trained_parameters(model: ModelConfig) -> int:
    """How many numbers are trained; 0 where the weights are not here."""
    try:
        tensors = dict(_tensors(_folder(model)))
    except NotPlanned:
        return 0
    return _trained(sum(map(math.prod, tensors.values())), list(_adapted(tensors, model)), model)


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
