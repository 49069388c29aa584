"""Forecast what one process of a run holds at its peak, from the sizes of its model alone.

Each part is one formula, in bytes, and leans to the high side. `training/preflight.py` tries the
real shapes when a run starts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.config.schema import Config, ModelConfig, SizesConfig
from pods.runs.paths import weights_source
from pods.system.machine import free_memory

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LIBRARIES = {"cpu": 0.42 * GIB, "cuda": 1.25 * GIB}  # torch and transformers, as measured
LOGITS = {"cpu": 2**24, "cuda": 2**27}  # numbers in a chunk, as in `policy.logprobs`
HEAP = 1.75  # glibc's heap held 1.45 to 1.75 times the activations on the CPUs that were tried
VLLM_GIB = 1.0  # vLLM's libraries and activations
CURE = "to fit, lower update.micro_batch_tokens or engine.max_rows, or choose a smaller model"
Parts = dict[str, float]  # bytes of each part, by its name


def describe(configs: Sequence[Config], at_once: int | None) -> str:
    """Say what a process of the largest of some jobs needs, and what this machine has.

    `at_once` jobs share the machine's memory; None: they run on another machine.
    """
    largest = max(configs, key=lambda config: sum(forecast(config).values()))
    parts = forecast(largest)
    if not parts:
        return f"unknown: model={largest.model.name} has neither model.sizes nor a config.json here"
    peak = sum(parts.values())
    listed = " + ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
    text = f"at most {peak / GIB:.2f} GiB ({listed})"

    memory = None if at_once is None else free_memory(largest.hardware.device)
    if at_once is None or memory is None:
        return text
    sharing = at_once * largest.hardware.processes if largest.hardware.device == "cpu" else 1
    free, total = (size / sharing for size in memory)
    text += f"; {free / GIB:.2f} of {total / GIB:.2f} GiB are free"
    if sharing > 1:
        text += f" for each of {sharing} processes"
    return text if peak <= free else f"{text}; {CURE}"


def forecast(config: Config) -> Parts:
    """Return what a process holds, with what updating or generating adds; empty if unknown."""
    sizes = read_sizes(config.model)
    if sizes is None:
        return {}

    held = {"libraries": LIBRARIES[config.hardware.device], "engine": _engine(config, sizes)}
    held |= _weights(config, sizes)
    updating = {"activations": _activations(config, sizes), "logits": _scored(config, sizes)}
    if config.hardware.device == "cpu":  # the heap keeps what an update once took
        held["activations"] = HEAP * updating.pop("activations")
    generating = _generating(config, sizes)

    more = max(updating, generating, key=lambda parts: sum(parts.values()))
    return {name: size for name, size in (held | more).items() if size}


def _weights(config: Config, sizes: SizesConfig) -> Parts:
    """Return the policy, and in float32 a gradient and Adam's two moments per trained number.

    A step of several updates keeps one more copy of each, to take it back. Adapters are no part of
    the weights, and cast once more. A KL divergence needs the initial weights.
    """
    full = config.model.tuning == "full"
    restorable = config.update.epochs * config.update.minibatches > 1
    copies = (6 if restorable else 3) + (0 if full else 2)
    reference = sizes.parameters if full and config.update.kl_beta > 0 else 0
    training = 4 * (copies * trained_numbers(config.model, sizes) + reference)
    size = BYTES[config.model.dtype]
    processes = config.hardware.processes
    if not config.uses_fsdp(processes):
        return {"weights": size * sizes.parameters, "training": training}

    # under FSDP two layers and the embeddings are whole at a time
    layer = _layer(sizes)
    edges = sizes.parameters - (sizes.layers - 1) * layer
    gathered = BYTES[config.computed_in()] * (layer + 2 * edges) + size * edges
    weights = size * sizes.parameters / processes
    return {"weights": weights, "training": training / processes, "gathered": gathered}


def _engine(config: Config, sizes: SizesConfig) -> float:
    """Return the engine's weights: vLLM's own, or copies that the transformers engine makes.

    On a CPU they exist once more, in the layout that matrix products read.
    """
    whole = BYTES[config.decoded_in()] * sizes.parameters
    if config.engine.name == "vllm":
        return whole + (config.engine.kv_gb + VLLM_GIB) * GIB
    packed = whole if config.hardware.device == "cpu" else 0
    sharded = config.uses_fsdp(config.hardware.processes)
    if sharded or config.decoded_in() != config.model.dtype:
        return whole + packed
    if config.model.tuning == "lora" and config.model.dtype == "float32":
        return 4 * sizes.layers * _layer(sizes) + packed  # adapters are merged into a copy
    return 0.0


def _activations(config: Config, sizes: SizesConfig) -> float:
    """Return what the layers keep of a micro-batch for the backward pass.

    Per token: the inputs of both norms and of the linear layers, three arrays of the gated part,
    queries twice, keys, values and attention's output; per completion the keys and values of its
    prompt once more. With checkpointing a layer keeps its input alone.
    """
    prompt = config.sampling.max_prompt_tokens
    rows, scored = _micro_batch(config)
    tokens = prompt + scored
    queries = sizes.heads * sizes.head_size
    keys = sizes.kv_heads * sizes.head_size
    size = BYTES[config.computed_in()]

    norms = 16 * sizes.hidden if config.model.tuning == "full" else 8 * sizes.hidden  # in float32
    numbers = 2 * sizes.hidden + 4 * queries + 4 * sizes.intermediate + 2 * keys
    if config.model.tuning == "lora":
        numbers += 7 * config.model.lora.r  # of the seven adapted linear layers
    attended = (scored + min(rows, scored) * prompt) * 2 * keys
    layer = tokens * (norms + numbers * size) + attended * size

    kept = sizes.layers * layer + tokens * 3 * sizes.hidden * 4
    if config.update.activation_checkpointing:
        kept = layer + sizes.layers * tokens * sizes.hidden * size
    if config.hardware.device == "cuda":
        kept += layer  # the gradients of one layer; on a CPU they are part of HEAP
    return kept


def _scored(config: Config, sizes: SizesConfig) -> float:
    """Return a chunk of the update's logits in float32, with exponentials and gradient."""
    _, scored = _micro_batch(config)
    return 3 * 4 * min(LOGITS[config.hardware.device], scored * sizes.vocabulary)


def _micro_batch(config: Config) -> tuple[int, int]:
    """Return the most completions of one update, and the most of their tokens in a micro-batch."""
    longest = config.sampling.max_completion_tokens
    rows = config.prompts_per_step * config.nm.groups * config.nm.m // config.update.minibatches
    room = config.update.micro_batch_tokens - config.sampling.max_prompt_tokens
    return rows, max(longest, min(room, rows * longest))


def _generating(config: Config, sizes: SizesConfig) -> Parts:
    """Return keys, values and logits of the most rows at once; vLLM has them in its own share."""
    if config.engine.name == "vllm":
        return {}
    rows = config.engine.max_rows
    prompt = config.sampling.max_prompt_tokens
    tokens = prompt + config.sampling.max_completion_tokens
    size = BYTES[config.decoded_in()]
    per_token = 2 * sizes.layers * sizes.kv_heads * sizes.head_size * size
    encoded = 4 * (sizes.hidden + sizes.intermediate) * size + 5 * prompt  # with the mask
    return {
        "keys and values": rows * tokens * per_token,
        "logits": rows * sizes.vocabulary * 24,  # four arrays of float32, and a sum of float64
        "prompts": rows * prompt * encoded,
    }


def trained_numbers(model: ModelConfig, sizes: SizesConfig) -> int:
    """Return how many numbers training changes: all, or two factors for each linear layer."""
    if model.tuning == "full":
        return sizes.parameters
    queries = sizes.heads * sizes.head_size
    keys = sizes.kv_heads * sizes.head_size
    attention = 2 * (sizes.hidden + queries) + 2 * (sizes.hidden + keys)
    gated = 3 * (sizes.hidden + sizes.intermediate)
    return sizes.layers * model.lora.r * (attention + gated)


def _layer(sizes: SizesConfig) -> int:
    """Return the numbers in the weights of one layer, with two norms and without biases."""
    attention = 2 * (sizes.heads + sizes.kv_heads) * sizes.head_size
    return sizes.hidden * (attention + 3 * sizes.intermediate + 2)


def read_sizes(model: ModelConfig) -> SizesConfig | None:
    """Read a model's sizes from its config.json if it is here, else from `model.sizes`."""
    source = weights_source(model)
    path = Path(source) / "config.json"
    if source == model.hub:
        from huggingface_hub import try_to_load_from_cache

        path = Path(str(try_to_load_from_cache(source, "config.json")))
    found = _from_json(json.loads(path.read_text())) if path.is_file() else None
    if found is None and model.sizes.parameters and model.path is None:
        return model.sizes
    return found


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
    sizes.parameters = sizes.layers * _layer(sizes) + outside
    return sizes
