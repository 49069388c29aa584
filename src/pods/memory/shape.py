"""Read what decides a model's memory from its config.json and its weights' headers.

A public model whose files are not on this machine is taken from `architecture.py`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pods.config.schema import Config, ModelConfig
from pods.memory import architecture
from pods.runs.paths import weights_source


class NotPlanned(Exception):
    """The files that a plan needs are not on this machine; the message names them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a causal language model with attention and gated layers."""

    parameters: int
    """Numbers in the weights' files; an output layer tied to the embedding counts once."""
    trained: int
    """Numbers that training changes: all, or those of the adapters."""
    adapted: int
    """Linear layers with an adapter; 0 if all weights are trained."""
    adapted_weights: int
    """Numbers in the own weights of the layers with an adapter."""
    embedded: int
    """Numbers outside the layers: embedding, last norm, and an output layer that is not tied."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    """Heads of keys and values; fewer than `heads` if several query heads share them."""
    head_width: int
    vocabulary: int


def read_shape(model: ModelConfig) -> Shape:
    """Read a model's sizes from its files, or take them from the known models.

    Raises:
        NotPlanned: its files are not on this machine and it is not a known model, or its config
            lacks a size.
    """
    config, tensors, source = _describe(model)
    adapted = list(_adapted(tensors, model))
    outside = [math.prod(shape) for name, shape in tensors.items() if ".layers." not in name]
    try:
        heads = config["num_attention_heads"]
        return Shape(
            parameters=sum(map(math.prod, tensors.values())),
            trained=_trained(tensors, model),
            adapted=len(adapted),
            adapted_weights=sum(map(math.prod, adapted)),
            embedded=sum(outside),
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            key_heads=config.get("num_key_value_heads") or heads,
            head_width=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
        )
    except KeyError as error:
        raise NotPlanned(f"{source} has no {error.args[0]}") from error


def trained_parameters(model: ModelConfig) -> int:
    """Count the numbers that are trained; 0 if nothing is known of the model."""
    try:
        return _trained(_describe(model)[1], model)
    except NotPlanned:
        return 0


def _describe(model: ModelConfig) -> tuple[Mapping[str, Any], dict[str, tuple[int, ...]], str]:
    """Return a model's config, its weights' shapes by name, and where both are from."""
    try:
        folder = _folder(model)
    except NotPlanned:
        known = architecture.KNOWN.get(model.hub or "")
        if known is None or model.path is not None:
            raise
        return known, dict(architecture.weight_shapes(known)), str(model.hub)
    tensors = dict(_tensors(folder))
    if not tensors:
        raise NotPlanned(f"{folder} has no safetensors to read sizes from")
    path = folder / "config.json"
    return json.loads(path.read_text()), tensors, str(path)


def _trained(tensors: Mapping[str, tuple[int, ...]], model: ModelConfig) -> int:
    if model.tuning == "full":
        return sum(map(math.prod, tensors.values()))
    return model.lora.r * sum(map(sum, _adapted(tensors, model)))


def _folder(model: ModelConfig) -> Path:
    """Find the folder of the model's files, which may be in the hub's cache."""
    source = weights_source(model)
    if (Path(source) / "config.json").is_file():
        return Path(source)
    if model.path is None and model.hub is not None:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(source, "config.json")
        if isinstance(cached, str):
            return Path(cached).parent
    raise NotPlanned(f"{source} is not on this machine yet")


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each weight in the files that transformers would load."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    names = {single.name} if single.is_file() else set()
    if index.is_file() and not names:
        names = set(json.loads(index.read_text())["weight_map"].values())
    for path in (folder / name for name in sorted(names)):
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                yield name, tuple(file.get_slice(name).get_shape())


def _adapted(
    tensors: Mapping[str, tuple[int, ...]], model: ModelConfig
) -> Iterator[tuple[int, ...]]:
    """Yield (outputs, inputs) of the linear layers that get an adapter."""
    if model.tuning == "lora":
        for name, shape in tensors.items():
            layer = name.removesuffix(".weight").rpartition(".")[2]
            if layer in model.lora.targets and len(shape) == 2:
                yield shape


GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
VLLM = int(1.0 * GIB)  # its libraries and own activations
GATHERED_LAYERS = 2  # at one time: the one at work, and the next
MOMENTS = 2  # of Adam
MOMENT_BYTES = {"adamw": 4, "adamw_8bit": 1 + 4 / 256}  # with one float32 scale per 256 numbers


def held_weights(config: Config, shape: Shape, device_memory: int) -> dict[str, int]:
    """Count bytes by part; vLLM takes a share of `device_memory` if engine.kv_gb is null."""
    size = BYTES[config.model.dtype]
    processes = config.hardware.processes if config.sharded() else 1
    gathered = config.uses_fsdp(config.hardware.processes)
    held = {
        "weights": -(-shape.parameters * size // processes),
        "trained state": -(-_trained_state(config, shape) // processes),
    }
    if gathered:
        held["gathered"] = _gathered(config, shape)
    if config.engine.name == "vllm":
        held["vLLM"] = _vllm(config, shape, device_memory)
    elif gathered or (config.sharded() and config.engine.dtype != config.model.dtype):
        held["engine's copy"] = shape.parameters * BYTES[config.decoded_in()]
    elif config.model.tuning == "lora" and config.model.dtype == "float32":
        held["merged copy"] = 4 * shape.adapted_weights
    return held


def _gathered(config: Config, shape: Shape) -> int:
    """Count weights that are whole for the computation, and the gradients on their way back.

    Of a layer in its backward pass there is also the gradient, and that once more where it is laid
    out in model.dtype to be added up over the processes; the same three of the embeddings.
    """
    size, computed = BYTES[config.model.dtype], BYTES[config.computed_in()]
    layer = (shape.parameters - shape.embedded) // shape.layers
    whole = GATHERED_LAYERS * layer + shape.embedded
    sums = 0
    if config.hardware.keep_gathered:
        whole, sums = shape.parameters, size * shape.parameters
    return computed * (whole + layer + shape.embedded) + size * (layer + shape.embedded) + sums


def host_memory(config: Config, shape: Shape) -> tuple[int, int]:
    """Return the least bytes of the machine's own memory at the start and at a checkpoint.

    In a run with shared weights each process first loads the whole model, and the copy that a KL
    term needs. At a checkpoint the leading process gathers the weights, then both moments.
    """
    size = BYTES[config.model.dtype]
    copies = 2 if config.update.kl_beta > 0 else 1
    start = config.hardware.processes * copies * size * shape.parameters
    return start, MOMENTS * size * shape.trained


def _trained_state(config: Config, shape: Shape) -> int:
    """Count float32 adapters, gradients, both moments, and the copies that a step can restore.

    Of adapters of a bfloat16 model there are three halves more: A, B and s B in its dtype.
    """
    update, full = config.update, config.model.tuning == "full"
    several = update.epochs * update.minibatches > 1  # then weights and moments are copied
    moments = int(MOMENTS * MOMENT_BYTES[update.optimizer] * shape.trained)
    copies = (0 if full else 1) + 1 + (1 if several else 0)
    reference = shape.parameters if full and update.kl_beta > 0 else 0
    if not full and config.model.dtype == "bfloat16":
        copies += 1  # at most: three halves of 2 bytes for each trained number
    return 4 * (shape.trained * copies + reference) + moments * (2 if several else 1)


def _vllm(config: Config, shape: Shape, device_memory: int) -> int:
    """Count the engine's own weights, its keys and values, and its libraries."""
    engine = config.engine
    kept = 0  # this process's part of the weights of the start, if merging rounds
    if config.model.tuning == "full" and engine.dtype != config.model.dtype:
        kept = 4 * shape.parameters // (config.hardware.processes if config.sharded() else 1)
    if engine.kv_gb is None:
        return kept + int(engine.gpu_memory_utilization * device_memory)
    return kept + BYTES[engine.dtype] * shape.parameters + int(engine.kv_gb * GIB) + VLLM
