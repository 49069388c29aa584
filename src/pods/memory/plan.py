"""Predict what one process of a run holds in memory at its peak, part by part, before it loads.

The parts lean to the high side; a test compares the tiny model's plan with the resident memory of
the whole process. Not measured: vLLM's own part, GPUs, and weights that processes share.
"""

import math
from dataclasses import dataclass

from pods.config.schema import Config
from pods.memory.shape import BYTES, GIB, Shape, held_weights

CHUNK_ELEMENTS = {"cpu": 2**24, "cuda": 2**27}
"""Logits of the update that exist at one time; equals `policy.logprobs.CHUNK_ELEMENTS`, whose
module loads torch."""
CACHE_ROOM = 128
"""Tokens of head room in the engine's cache on a CPU; equals `engines.transformers_engine.BLOCK`,
for the same reason."""
UPDATE_COPIES = 3  # float32 arrays of a chunk: logits, their exponentials, their gradient
DECODE_BYTES = 24  # per logit: float32 logits, scaled, log-probs, exponentials; float64 sums
HEAP = 1.75
"""Resident bytes per byte of activations on a CPU.

These arrays live in glibc's heap, which was seen to grow by 1.45 (tiny) to 1.75 (SmolLM2-135M) and
to keep that from then on.
"""
LIBRARIES = {"cpu": int(0.42 * GIB), "cuda": int(0.5 * GIB)}
"""Python and torch; on a GPU cuBLAS and the like."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of a run's prompts, in tokens."""

    longest: int
    """The length of the longest prompt."""
    shared: int
    """The length of the beginning that all prompts share, which the engine encodes once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes by part."""

    held: dict[str, int]
    """Bytes that are held throughout."""
    generate: dict[str, int]
    """Bytes that are added during generation."""
    update: dict[str, int]
    """Bytes that are added during an update."""

    @property
    def peak(self) -> int:
        """Bytes at the worst moment."""
        return sum(self.held.values()) + max(sum(self.generate.values()), sum(self.update.values()))

    def __str__(self) -> str:
        """Describe the plan on one line, in GiB."""
        return (
            f"at most {self.peak / GIB:.2f} GiB (throughout: {_sum(self.held)}; generating adds: "
            f"{_sum(self.generate)}; updating adds: {_sum(self.update)})"
        )


def _sum(parts: dict[str, int]) -> str:
    texts = {name: f"{size / GIB:.2f}" for name, size in parts.items()}
    return " + ".join(f"{name} {size}" for name, size in texts.items() if size != "0.00") or "0.00"


def make_plan(
    config: Config, shape: Shape, lengths: Lengths | None = None, device_memory: int = 0
) -> Plan:
    """Add up what a process needs where its model is, on the CPU or on its GPU.

    Several processes share a step's prompts, but not evenly if problems are filtered. The plan
    assumes that one process has the largest micro-batch and decodes all rows.

    Args:
        config: the run's config.
        shape: its model's shape.
        lengths: the lengths of its prompts; None: the longest that the config allows.
        device_memory: bytes in all, of which vLLM takes a share if engine.kv_gb is null.
    """
    lengths = lengths or Lengths(config.sampling.max_prompt_tokens, 0)
    device, activations = config.hardware.device, _activations(config, shape, lengths)
    held = {"libraries": LIBRARIES[device], **held_weights(config, shape, device_memory)}
    update = {"logits": _update_logits(config, shape, lengths)}
    if device == "cpu":
        held["activations"] = int(HEAP * activations)
    else:
        update["activations"] = activations
    # vLLM's part is held throughout
    generate = {} if config.engine.name == "vllm" else _generation(config, shape, lengths)
    return Plan(held, generate, update)


def _activations(config: Config, shape: Shape, lengths: Lengths) -> int:
    """Count what one micro-batch keeps for its backward pass, and one layer's gradients.

    Per token and layer these are the inputs of both norms and of the linear layers, three arrays of
    the gated layer, queries twice, keys, values, and attention's output; and for each completion
    the keys and values of its prompt once more.
    """
    size, hidden = BYTES[config.computed_in()], shape.hidden
    attended, keys = shape.heads * shape.head_width, shape.key_heads * shape.head_width
    worst = worst_micro_batches(config, lengths.longest)
    tokens = max(prompt + rows * completion for prompt, rows, completion in worst)
    spread = max(rows * (prompt + completion) for prompt, rows, completion in worst)
    norms = 2 * hidden * 4 * (2 if config.model.tuning == "full" else 1)
    inputs = 2 * hidden + attended + shape.intermediate
    inner = inputs + 3 * attended + 2 * keys + 3 * shape.intermediate
    inner += config.model.lora.r * shape.adapted // shape.layers
    layer = tokens * (norms + inner * size) + spread * 2 * keys * size
    gradients = 0 if config.hardware.device == "cpu" else 1  # on a CPU they are part of HEAP
    if config.update.activation_checkpointing:  # layers keep only their input
        return layer * (1 + gradients) + shape.layers * tokens * hidden * size
    return layer * (shape.layers + gradients) + tokens * 3 * hidden * 4


def worst_micro_batches(config: Config, prompt: int) -> list[tuple[int, int, int]]:
    """List the micro-batches that need the most memory, as (prompt, completions, tokens of each).

    One fills the limit with as many completions as there are, each of which needs the keys and
    values of its prompt. Another, if it is over the limit, is one sequence of full length.
    `prompt` is the length of the longest prompt.
    """
    limit, longest = config.update.micro_batch_tokens, config.sampling.max_completion_tokens
    kept = config.prompts_per_step * config.nm.groups * config.nm.m
    rows = min(math.ceil(kept / config.update.minibatches), max(1, limit - 1))
    shared = min(prompt, max(1, limit - rows))
    worst = [(shared, rows, max(1, min(longest, (limit - shared) // rows)))]
    if prompt + longest > limit:
        worst.append((prompt, 1, longest))
    return worst


def _update_logits(config: Config, shape: Shape, lengths: Lengths) -> int:
    worst = worst_micro_batches(config, lengths.longest)
    tokens = max(rows * completion for _, rows, completion in worst)
    chunk = CHUNK_ELEMENTS[config.hardware.device]
    return UPDATE_COPIES * 4 * min(chunk, tokens * shape.vocabulary)


def _generation(config: Config, shape: Shape, lengths: Lengths) -> dict[str, int]:
    """Count keys and values of all rows at full length, their logits, and the prompts' encoding."""
    size = BYTES[config.decoded_in()]
    rows, prompts = decoded_rows(config)
    tokens = lengths.longest + config.sampling.max_completion_tokens + CACHE_ROOM
    per_token = 2 * shape.layers * shape.key_heads * shape.head_width * size
    activations = 4 * (shape.hidden + shape.intermediate) * size
    mask = 5 * lengths.longest  # as booleans, and as numbers
    return {
        "keys and values": rows * tokens * per_token,
        "logits": rows * shape.vocabulary * DECODE_BYTES,
        "prompts": prompts * (lengths.longest - lengths.shared) * (activations + mask),
    }


def decoded_rows(config: Config) -> tuple[int, int]:
    """Return the most sequences that the engine decodes at once, and their different prompts."""
    limit, evaluation = config.engine.max_rows, config.evaluation
    training = min(limit, config.prompts_per_step * config.nm.groups * config.nm.n)
    size = limit if evaluation.sets else config.task.test_size or limit
    questions = evaluation.questions or size
    chunk = min(config.engine.evaluation_chunk or limit, questions * evaluation.repeats)
    evaluated = min(limit, chunk)
    prompts = max(min(training, config.prompts_per_step), min(evaluated, questions))
    return max(training, evaluated), prompts
