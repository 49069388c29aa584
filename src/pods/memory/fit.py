"""Estimate what one process of a run holds at its peak, and compare it with the machine.

Each part is one formula of the sizes in the model's config.json, in bytes, and leans to the high
side. Preflight (`training/preflight.py`) tries the real shapes afterwards.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pods.config.schema import LORA_TARGETS, Config, ModelConfig
from pods.runs.paths import weights_source
from pods.system.machine import free_memory

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LOGITS = {"cpu": 2**24, "cuda": 2**27}  # of a chunk, as in `policy.logprobs`
LIBRARIES = {"cpu": int(0.42 * GIB), "cuda": int(1.25 * GIB)}
HEAP = 1.75  # resident bytes of glibc's heap per byte of activations: 1.45 to 1.75 were seen
CURE = "to fit, lower update.micro_batch_tokens or engine.max_rows, or choose a smaller model"
Lengths = tuple[int, int]  # tokens of a run's longest prompt, and of the beginning that all share


class Sizes(NamedTuple):
    """The sizes of a causal language model with attention and gated layers."""

    layers: int
    hidden: int
    intermediate: int
    queries: int  # width of all heads of queries; there may be fewer heads of keys and values
    keys: int
    vocabulary: int
    layer: int  # numbers in the weights of a layer
    parameters: int  # in all weights but adapters; a tied output layer counts once
    trained: int  # numbers that training changes: all, or those of the adapters


class Fit(NamedTuple):
    """What a run needs of a machine's memory."""

    text: str
    fits: bool  # it would fit if all memory were free, or too little is known
    roomy: bool  # it needs at most half of what is free, so that nobody has to read the text


def assess_fit(config: Config, lengths: Lengths | None = None, jobs: int | None = 1) -> Fit:
    """Compare what a run needs with this machine's memory, free now and in all.

    Args:
        config: the run's config.
        lengths: the lengths of its prompts; None: the longest that the config allows.
        jobs: how many share this machine's memory; None: they run on another machine.
    """
    on_cpu = config.hardware.device == "cpu"
    sharing = (jobs or 1) * config.hardware.in_all() if on_cpu else 1
    memory = None if jobs is None else free_memory(config.hardware.device)
    free, total = (0, 0) if memory is None else (size // sharing for size in memory)
    parts = peak_parts(config, lengths)
    if not parts:
        return Fit(f"unknown: no sizes of model={config.model.name} on this machine", True, False)
    peak = sum(parts.values())
    listed = " + ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
    text = f"at most {peak / GIB:.2f} GiB ({listed})"
    if memory is None:
        return Fit(text, True, False)
    each = f" for each of {sharing} processes" if sharing > 1 else ""
    text += f"; {free / GIB:.2f} of {total / GIB:.2f} GiB are free{each}"
    return Fit(text if peak <= free else f"{text}; {CURE}", peak <= total, peak <= free / 2)


def describe_largest(configs: Sequence[Config], at_once: int | None) -> Fit:
    """Say how the largest of some jobs fits, `at_once` at a time; None: on another machine."""
    return assess_fit(max(configs, key=lambda c: sum(peak_parts(c).values())), jobs=at_once)


def peak_parts(config: Config, lengths: Lengths | None = None) -> dict[str, int]:
    """Return what the fuller process of a run holds, with what generating or updating adds.

    Empty for an unknown model.
    """
    sizes, engine = read_sizes(config.model), config.engine
    if sizes is None:
        return {}
    prompt, shared = lengths or (config.sampling.max_prompt_tokens, 0)
    held = {"libraries": LIBRARIES[config.hardware.device], **_weights(config, sizes)}
    update, generate = _update(config, sizes, prompt), dict[str, int]()
    if config.hardware.device == "cpu":  # the heap keeps what an update once took
        held["activations"] = int(HEAP * update.pop("activations"))
    if engine.name == "transformers":
        rows, size = engine.max_rows, BYTES[config.decoded_in()]
        tokens = prompt + config.sampling.max_completion_tokens
        generate["keys and values"] = rows * tokens * 2 * sizes.layers * sizes.keys * size
        generate["logits"] = rows * sizes.vocabulary * 24  # 4 of float32, a sum of float64
        encoded = 4 * (sizes.hidden + sizes.intermediate) * size + 5 * prompt  # and the mask
        generate["prompts"] = rows * (prompt - shared) * encoded
    else:  # its weights, keys and values, libraries and own activations
        held["vLLM"] = BYTES[engine.dtype] * sizes.parameters + int((engine.kv_gb + 1) * GIB)
    return max(held | update, held | generate, key=lambda parts: sum(parts.values()))


def _weights(config: Config, sizes: Sizes) -> dict[str, int]:
    model, update, full = config.model, config.update, config.model.tuning == "full"
    size, parameters = BYTES[model.dtype], sizes.parameters
    processes = config.hardware.processes if config.sharded() else 1
    gathered = config.uses_fsdp(config.hardware.processes)
    # gradient and two moments, twice where a step can restore them; adapters, cast ones too
    copies = (6 if update.epochs * update.minibatches > 1 else 3) + (0 if full else 2)
    reference = parameters if full and update.kl_beta > 0 else 0
    training = 4 * (copies * sizes.trained + reference)
    held = {"weights": -(-parameters * size // processes), "training": -(-training // processes)}
    if gathered:  # two layers and the embeddings are whole
        edges = parameters - (sizes.layers - 1) * sizes.layer
        held["gathered"] = BYTES[config.computed_in()] * (sizes.layer + 2 * edges) + size * edges
    if config.engine.name == "transformers":
        whole = BYTES[config.decoded_in()] * parameters
        packed = whole * (config.hardware.device == "cpu")  # once more, as products read them
        if gathered or config.decoded_in() != model.dtype:
            held["engine's copy"] = whole + packed
        elif not full and model.dtype == "float32":
            held["engine's copy"] = 4 * sizes.layers * sizes.layer + packed
    return held


def _update(config: Config, sizes: Sizes, prompt: int) -> dict[str, int]:
    """Return the activations of a micro-batch with one layer's gradients, and a chunk's logits.

    Per token and layer: the inputs of both norms and of the linear layers, three arrays of the
    gated layer, queries twice, keys, values, and attention's output; per completion the keys and
    values of its prompt once more. A checkpointed layer keeps its input alone.
    """
    hidden, size, device = sizes.hidden, BYTES[config.computed_in()], config.hardware.device
    longest, adapters = config.sampling.max_completion_tokens, config.model.lora
    rows = config.prompts_per_step * config.nm.groups * config.nm.m // config.update.minibatches
    scored = max(longest, min(config.update.micro_batch_tokens - prompt, rows * longest))
    tokens, spread = prompt + scored, scored + min(rows, scored) * prompt
    norms = 2 * hidden * 4 * (2 if config.model.tuning == "full" else 1)
    inner = 2 * hidden + 4 * sizes.queries + 4 * sizes.intermediate + 2 * sizes.keys
    inner += adapters.r * len(LORA_TARGETS) if config.model.tuning == "lora" else 0
    layer = tokens * (norms + inner * size) + spread * 2 * sizes.keys * size
    kept = sizes.layers * layer + tokens * 3 * hidden * 4
    if config.update.activation_checkpointing:
        kept = layer + sizes.layers * tokens * hidden * size
    kept += layer if device == "cuda" else 0  # a layer's gradients, on a CPU part of HEAP
    logits = min(LOGITS[device], scored * sizes.vocabulary)  # with exponentials and gradient
    return {"logits": 3 * 4 * logits, "activations": kept}


def read_sizes(model: ModelConfig) -> Sizes | None:
    """Read a model's sizes from its folder or the hub's cache; None if they are not known here."""
    source = weights_source(model)
    path = Path(source) / "config.json"
    if source == model.hub:
        from huggingface_hub import try_to_load_from_cache

        path = Path(str(try_to_load_from_cache(source, "config.json")))
    config = json.loads(path.read_text()) if path.is_file() else {}
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size",
             "vocab_size")  # fmt: skip
    if not config.keys() >= {*names}:
        return None
    layers, heads, hidden, inner, vocabulary = (config[name] for name in names)
    width = config.get("head_dim") or hidden // heads
    queries, keys = heads * width, (config.get("num_key_value_heads") or heads) * width
    widths = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": queries}  # by hidden
    widths |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), inner)
    layer = hidden * (sum(widths.values()) + 2)  # with two norms; biases are few
    embeddings = 1 if config.get("tie_word_embeddings") else 2
    trained = parameters = layers * layer + (embeddings * vocabulary + 1) * hidden
    if model.tuning == "lora":
        adapted = [widths[name] for name in LORA_TARGETS]
        trained = layers * model.lora.r * sum(hidden + width for width in adapted)
    return Sizes(layers, hidden, inner, queries, keys, vocabulary, layer, parameters, trained)
