"""Forecast what one process of a run holds at its peak, from the sizes of its model alone.

Each part is one formula, in bytes, and leans to the high side. `training/preflight.py` tries the
real shapes when a run starts.
"""

from collections.abc import Sequence

from pods.config.schema import Config, SizesConfig
from pods.launch.model_sizes import layer_numbers, read_sizes, trained_numbers
from pods.system.machine import free_memory
from pods.system.text import gigabytes
from pods.training.shapes import prompts_at_once, rows_at_once, updated_rows

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LIBRARIES = {"cpu": 0.42 * GIB, "cuda": 1.25 * GIB}  # torch and transformers, as measured
LOGITS = {"cpu": 2**24, "cuda": 2**27}  # numbers in a chunk, as in `policy.logprobs`
HEAP = 1.75  # glibc's heap held 1.45 to 1.75 times the activations on the CPUs that were tried
VLLM_GIB = 1.0  # vLLM's libraries and activations
CURE = "to fit, lower update.micro_batch_tokens or engine.max_rows, or choose a smaller model"
PLACES = {"cpu": "in each process", "cuda": "of each GPU"}
Parts = dict[str, float]  # bytes of each part, by its name


def describe(
    configs: Sequence[Config], questions: Sequence[int | None], at_once: int | None
) -> str:
    """Say what a process of the largest of some jobs needs, and what this machine has.

    `questions` has the number of test questions of each job, as `forecast` takes it. `at_once` jobs
    share the machine's memory; None: they run on another machine.
    """
    all_parts = [forecast(*job) for job in zip(configs, questions, strict=True)]
    peaks = [sum(parts.values()) for parts in all_parts]
    peak = max(peaks)
    largest = configs[peaks.index(peak)]
    if peak == 0:
        return f"unknown: model={largest.model.name} has neither model.sizes nor a config.json here"

    hardware = largest.hardware
    listed = _list(all_parts[peaks.index(peak)], peak)
    text = f"at most {gigabytes(peak)} {PLACES[hardware.device]} ({listed})"

    memory = None if at_once is None else free_memory(hardware.device)
    if at_once is None or memory is None:
        return text
    sharing = at_once * hardware.processes if hardware.device == "cpu" else 1
    free, total = (size / sharing for size in memory)
    text += f"; {gigabytes(free)} of {gigabytes(total)} are free"
    if sharing > 1:
        text += f" for each of {sharing} processes"
    return text if peak <= free else f"{text}; {CURE}"


def _list(parts: Parts, peak: float) -> str:
    """List the parts in the unit of their sum, without those too small to show in it."""
    unit = 1e9 if peak >= 1e9 else 1e6
    sizes = {name: f"{size / unit:.1f}" for name, size in parts.items()}
    return " + ".join(f"{name} {size}" for name, size in sizes.items() if size != "0.0")


def forecast(config: Config, questions: int | None) -> Parts:
    """Return what a process holds, with what updating or generating adds; empty if unknown.

    An evaluation asks so many `questions`; None: they are not known yet.
    """
    sizes = read_sizes(config.model)
    if sizes is None:
        return {}

    held = {"libraries": LIBRARIES[config.hardware.device], "engine": _engine(config, sizes)}
    held |= _weights(config, sizes)
    updating = {"activations": _activations(config, sizes), "logits": _scored(config, sizes)}
    if config.hardware.device == "cpu":  # the heap keeps what an update once took
        held["activations"] = HEAP * updating.pop("activations")
    generating = _generating(config, sizes, questions)

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
    layer = layer_numbers(sizes)
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
        return 4 * sizes.layers * layer_numbers(sizes) + packed  # adapters are merged into a copy
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
    rows = updated_rows(config)
    room = config.update.micro_batch_tokens - config.sampling.max_prompt_tokens
    return rows, max(longest, min(room, rows * longest))


def _generating(config: Config, sizes: SizesConfig, questions: int | None) -> Parts:
    """Return keys, values and logits of the most rows at once; vLLM has them in its own share."""
    if config.engine.name == "vllm":
        return {}
    rows = rows_at_once(config, questions)
    prompt = config.sampling.max_prompt_tokens
    tokens = prompt + config.sampling.max_completion_tokens
    size = BYTES[config.decoded_in()]
    per_token = 2 * sizes.layers * sizes.kv_heads * sizes.head_size * size
    encoded = 4 * (sizes.hidden + sizes.intermediate) * size + 5 * prompt  # with the mask
    return {
        "keys and values": rows * tokens * per_token,
        "logits": rows * sizes.vocabulary * 24,  # four arrays of float32, and a sum of float64
        "prompts": prompts_at_once(config, questions) * prompt * encoded,
    }
