"""Lower bounds on the seconds of a step: arithmetic at a GPU's peak, weights at its bandwidth.

These are no estimates. Attention, the cache, prompts, the efficiency of kernels, grading and
transfers between GPUs come on top, so that real steps take several times as long.
"""

import math
from dataclasses import dataclass

from pods.config.checks import ON_THE_HUB
from pods.config.schema import Config
from pods.memory.shape import BYTES, GIB, Shape


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its maker's data sheet."""

    name: str
    flops: float
    """Dense bfloat16 operations per second."""
    bandwidth: float
    """Bytes per second of its memory."""
    memory: int
    """Bytes of memory that it reports."""


GPUS = {
    "l40s": Gpu("L40S", 362e12, 0.864e12, 45 * GIB),
    "a100x8": Gpu("A100 80 GB", 312e12, 2.04e12, 80 * GIB),
    "h100x8": Gpu("H100 SXM", 989e12, 3.35e12, 79 * GIB),
    "h200": Gpu("H200", 989e12, 4.8e12, 140 * GIB),
}
"""The GPU of each hardware group."""


@dataclass(frozen=True, slots=True)
class StepBound:
    """The least seconds of one step, by phase."""

    generate: float
    update: float

    @property
    def step(self) -> float:
        """The sum of both phases, which do not overlap."""
        return self.generate + self.update


def step_bound(config: Config, shape: Shape, gpu: Gpu, tokens: float) -> StepBound:
    """Bound a step whose completions have so many tokens on average.

    The process with most groups decides; each prompt has nm.groups of them. The update multiplies
    each kept token with every weight: in the forward pass, backward to the inputs and, where all
    weights are trained, backward to the weights. Recomputed activations add a forward pass.
    """
    groups = math.ceil(config.prompts_per_step * config.nm.groups / config.hardware.processes)
    full = config.model.tuning == "full"
    passes = 2 + (1 if full else 0) + (1 if config.update.activation_checkpointing else 0)
    per_token = 2 * _multiplied(shape) * passes + (0 if full else 6 * shape.trained)
    kept = groups * config.nm.m * tokens
    return StepBound(
        generate=generation_bound(config, shape, gpu, groups * config.nm.n, tokens),
        update=kept * config.update.epochs * per_token / gpu.flops,
    )


def evaluation_bound(config: Config, shape: Shape, gpu: Gpu, tokens: float) -> float:
    """Bound one evaluation, spread over the processes; NaN: its size is unknown."""
    answers = evaluated_answers(config)
    if answers is None:
        return math.nan
    rows = math.ceil(answers / config.hardware.processes)
    return generation_bound(config, shape, gpu, rows, tokens)


def evaluated_answers(config: Config) -> int | None:
    """Return the answers per checkpoint, on all test sets; None where a file decides it."""
    task = config.task
    questions = config.evaluation.questions or task.test_size or ON_THE_HUB.get(task.evaluated_on())
    if questions is None:
        return None
    limit, sets = config.evaluation.questions, config.evaluation.sets
    further = [min(limit or ON_THE_HUB[name], ON_THE_HUB[name]) for name in sets]
    return (questions + sum(further)) * config.evaluation.repeats


def generation_bound(config: Config, shape: Shape, gpu: Gpu, rows: int, tokens: float) -> float:
    """Bound the decoding of so many completions of so many tokens on average on one GPU.

    A decoding step reads all weights once, for at most engine.max_rows completions.
    """
    weights = _multiplied(shape)
    reads = tokens * max(1.0, rows / config.engine.max_rows)
    reading = reads * weights * BYTES[config.decoded_in()] / gpu.bandwidth
    return max(reading, 2 * weights * rows * tokens / gpu.flops)


def _multiplied(shape: Shape) -> int:
    """Return the number of weights that a token is multiplied with: an untied embedding is not."""
    table = shape.vocabulary * shape.hidden
    return shape.parameters - (table if shape.embedded >= 2 * table else 0)
