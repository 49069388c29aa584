"""What one process of a run will hold in memory at its peak, part by part, before it loads.

The parts lean to the high side; a test holds the tiny model's plan to the resident memory of the
whole process. Neither vLLM's own part, nor a GPU, nor weights that processes share were measured.
"""

from dataclasses import dataclass

from pods.config import Config
from pods.memory.shape import Shape
from pods.memory.weights import BYTES, GIB, held_weights

CHUNK_ELEMENTS = 2**24
"""Logits of the update that exist at one time, as in `policy/logprobs.py`."""
UPDATE_COPIES = 3  # float32 arrays of that size: logits, their exponentials, their gradient
DECODE_BYTES = 24  # a logit: float32 logits, scaled, log-probs and exponentials; float64 their sums
CACHE_ROOM = 128  # tokens of head room in the engine's cache
HEAP = 1.75
"""Resident bytes for each byte of activations on a CPU.

glibc's heap, which these arrays live in, was seen to grow by 1.45 (tiny) to 1.75 (SmolLM2-135M),
and to keep that from then on.
"""
LIBRARIES = {
    "cpu": int(0.42 * GIB),
    "cuda": int(0.5 * GIB),
}  # Python and torch; cuBLAS and the like


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of the prompts, in tokens."""

    longest: int
    shared: int
    """The beginning that all of them share, which the engine encodes once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes by part: held throughout, and added while generating or while updating."""

    held: dict[str, int]
    generate: dict[str, int]
    update: dict[str, int]

    @property
    def peak(self) -> int:
        """Bytes at the worst moment."""
        return sum(self.held.values()) + max(sum(self.generate.values()), sum(self.update.values()))

    def words(self) -> str:
        """The plan on a line, in GiB."""
        return (
            f"at most {self.peak / GIB:.2f} GiB: holds {_listed(self.held)}; to generate "
            f"{_listed(self.generate)}, or to update {_listed(self.update)}"
        )


def make_plan(
    config: Config, shape: Shape, lengths: Lengths | None = None, device_memory: int = 0
) -> Plan:
    """Add up what a process needs where its model is, on the CPU or on its GPU.

    Several processes share a step's prompts, but not evenly where problems are filtered: the
    largest micro-batch and the rows that are decoded are taken as those of one process.

    Args:
        config: of the run.
        shape: of its model.
        lengths: of the prompts; None: as long as the config lets them be.
        device_memory: bytes in all, of which vLLM takes a share where engine.kv_gb is null.
    """
    lengths = lengths or Lengths(config.sampling.max_prompt_tokens, 0)
    held = {
        "libraries": LIBRARIES[config.hardware.device],
        **held_weights(config, shape, device_memory),
    }
    activations = {"activations": _activations(config, shape, lengths)}
    update = {"logits": _update_logits(config, shape, lengths)}
    if config.hardware.device == "cpu":
        held |= {"activations": int(HEAP * activations["activations"])}
    else:
        update |= activations
    own = config.engine.name == "vllm"  # vLLM's part is held throughout
    return Plan(held, {} if own else _generation(config, shape, lengths), update)


def _activations(config: Config, shape: Shape, lengths: Lengths) -> int:
    """What one micro-batch keeps for its backward pass, and one layer's gradients.

    Of a token and layer: inputs of both norms and of the linear layers, three of the gated layer,
    queries twice, keys, values, what attention makes; for each completion its prompt's keys and
    values once more.
    """
    size, hidden = BYTES[config.model.dtype], shape.hidden
    attended, keys = shape.heads * shape.head_width, shape.key_heads * shape.head_width
    worst = worst_micro_batches(config, lengths.longest)
    tokens = max(prompt + rows * completion for prompt, rows, completion in worst)
    spread = max(rows * (prompt + completion) for prompt, rows, completion in worst)
    norms = 2 * hidden * 4 * (2 if config.model.tuning == "full" else 1)
    inputs = 2 * hidden + attended + shape.intermediate
    inner = inputs + 3 * attended + 2 * keys + 3 * shape.intermediate
    inner += config.model.lora.r * shape.adapted // shape.layers
    layer = tokens * (norms + inner * size) + spread * 2 * keys * size
    spare = 0 if config.hardware.device == "cpu" else 1  # its gradients; HEAP has them
    if config.update.activation_checkpointing:  # layers keep their input alone
        return layer * (1 + spare) + shape.layers * tokens * hidden * size
    return layer * (shape.layers + spare) + tokens * 3 * hidden * 4


def worst_micro_batches(config: Config, prompt: int) -> list[tuple[int, int, int]]:
    """Tokens of the prompt, completions and tokens of each, of what asks for most memory.

    The limit filled with as many completions as there are, each of which needs the keys and values
    of its prompt; and, where it is over the limit, one sequence of full length.

    Args:
        config: of the run.
        prompt: tokens of the longest.
    """
    limit, longest = config.update.micro_batch_tokens, config.sampling.max_completion_tokens
    rows = min(sequences(config), max(1, limit - 1))
    shared = min(prompt, max(1, limit - rows))
    found = [(shared, rows, max(1, min(longest, (limit - shared) // rows)))]
    if prompt + longest > limit:
        found.append((prompt, 1, longest))
    return found


def sequences(config: Config) -> int:
    """Rollouts of one optimizer update."""
    kept = config.prompts_per_step * config.nm.groups * config.nm.m
    return -(-kept // config.update.minibatches)


def _update_logits(config: Config, shape: Shape, lengths: Lengths) -> int:
    worst = worst_micro_batches(config, lengths.longest)
    tokens = max(rows * completion for _, rows, completion in worst)
    return UPDATE_COPIES * 4 * min(CHUNK_ELEMENTS, tokens * shape.vocabulary)


def _generation(config: Config, shape: Shape, lengths: Lengths) -> dict[str, int]:
    """Keys and values of full rows at full length, their logits, and what encodes the prompts."""
    size = BYTES[config.decoded_in()]
    rows, prompts = decoded_rows(config)
    tokens = lengths.longest + config.sampling.max_completion_tokens + CACHE_ROOM
    token = 2 * shape.layers * shape.key_heads * shape.head_width * size
    fresh = prompts * (lengths.longest - lengths.shared)
    wide = 4 * (shape.hidden + shape.intermediate) * size
    mask = 5 * lengths.longest  # true or false, and as numbers
    return {
        "keys and values": rows * tokens * token,
        "logits": rows * shape.vocabulary * DECODE_BYTES,
        "prompts": fresh * (wide + mask),
    }


def decoded_rows(config: Config) -> tuple[int, int]:
    """Sequences that the engine decodes at once, at most, and different prompts among them."""
    most, evaluation = config.engine.max_rows, config.evaluation
    trained = min(most, config.prompts_per_step * config.nm.groups * config.nm.n)
    questions = evaluation.questions or config.task.test_size or most
    answers = min(config.engine.evaluation_chunk or most, questions * evaluation.repeats)
    asked = min(most, answers)
    return max(trained, asked), max(min(trained, config.prompts_per_step), min(asked, questions))


def _listed(parts: dict[str, int]) -> str:
    seen = {name: f"{size / GIB:.2f}" for name, size in parts.items()}
    return " + ".join(f"{name} {size}" for name, size in seen.items() if size != "0.00") or "0.00"
