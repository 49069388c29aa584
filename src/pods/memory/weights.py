"""What a run holds throughout for its weights: the trained ones, an engine's, and their optimizer.

Of one process. Where several share all weights (`hardware.shard`) each keeps its part, makes whole
one layer at a time, and decodes from a whole copy.
"""

from pods.config import Config
from pods.memory.shape import Shape

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
VLLM = int(1.0 * GIB)  # its libraries and own activations
AHEAD = 2  # layers whose weights are whole at one time: the one at work, and the next
MOMENTS = 2  # of Adam


def held_weights(config: Config, shape: Shape, device_memory: int) -> dict[str, int]:
    """Bytes by part.

    Args:
        config: of the run.
        shape: of its model.
        device_memory: bytes in all, of which vLLM takes a share where engine.kv_gb is null.
    """
    size = BYTES[config.model.dtype]
    parts = config.hardware.processes if config.sharded() else 1
    held = {
        "weights": _part(shape.parameters * size, parts),
        "trained state": _trained_state(config, shape, parts),
    }
    if parts > 1:
        held |= {"made whole": _whole(shape) * size}
    if config.engine.name == "vllm":
        return held | {"vLLM": _vllm(config, shape, device_memory)}
    if parts > 1 or (config.sharded() and config.engine.dtype != config.model.dtype):
        return held | {"engine's copy": shape.parameters * BYTES[config.decoded_in()]}
    if config.model.tuning == "lora" and config.model.dtype == "float32":
        return held | {"merged copy": 4 * shape.adapted_weights}
    return held


def host_memory(config: Config, shape: Shape) -> tuple[int, int]:
    """Least bytes that the processes of a run with shared weights take of a machine's own memory.

    At the start each loads the whole model, beside which stands the copy that a KL term needs. At a
    checkpoint the leading process gathers the weights, writes them, then both moments.

    Returns:
        at the start, of all processes together; when a checkpoint is saved.
    """
    size = BYTES[config.model.dtype]
    each = size * (2 if config.update.kl_beta > 0 else 1)
    return config.hardware.processes * each * shape.parameters, MOMENTS * size * shape.trained


def _trained_state(config: Config, shape: Shape, parts: int) -> int:
    """Adapters in float32; gradients and Adam's two moments; what a step can go back to."""
    update, full = config.update, config.model.tuning == "full"
    several = update.epochs * update.minibatches > 1  # then it keeps a copy of weights and moments
    copies = (0 if full else 1) + 3 + (3 if several else 0)
    reference = shape.parameters if full and update.kl_beta > 0 else 0
    return _part(4 * (shape.trained * copies + reference), parts)


def _whole(shape: Shape) -> int:
    """Numbers that a process has whole in a backward pass.

    Weights, one layer's gradient, and that gradient once more where it is laid out to be added up
    over the processes; the same three of the embeddings.
    """
    layer = (shape.parameters - shape.embedded) // shape.layers
    return (AHEAD + 2) * layer + 3 * shape.embedded


def _vllm(config: Config, shape: Shape, device_memory: int) -> int:
    """The engine's own weights, its keys and values, and what it cannot do without."""
    engine = config.engine
    kept = 0  # of the weights at the start, where merging rounds them
    if config.model.tuning == "full" and engine.dtype != config.model.dtype:
        kept = 4 * shape.parameters
    if engine.kv_gb is None:
        return kept + int(engine.gpu_memory_utilization * device_memory)
    return kept + BYTES[engine.dtype] * shape.parameters + int(engine.kv_gb * GIB) + VLLM


def _part(size: int, parts: int) -> int:
    """The largest of so many even parts."""
    return -(-size // parts)
