"""Seconds that no code can do without on a card: arithmetic at its peak, weights at its bandwidth.

A floor, no estimate: attention, the cache, prompts, kernels' own efficiency, grading and transfers
between cards cost more. Real steps are several times longer.
"""

import math
from dataclasses import dataclass

from pods.checks import ON_THE_HUB
from pods.config import Config
from pods.memory.shape import Shape
from pods.memory.weights import BYTES, GIB


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by its maker's data sheet."""

    name: str
    flops: float
    """A second, dense, in bfloat16."""
    bandwidth: float
    """Bytes a second of its memory."""
    memory: int
    """Bytes that it shows as its own."""


def _card(name: str, teraflops: float, terabytes: float, gib: int) -> Card:
    return Card(name, teraflops * 1e12, terabytes * 1e12, gib * GIB)


CARDS = {
    "l40s": _card("L40S", 362, 0.864, 45),
    "a100x8": _card("A100 80 GB", 312, 2.04, 80),
    "h100x8": _card("H100 SXM", 989, 3.35, 79),
    "h200": _card("H200", 989, 4.8, 140),
}
"""By the hardware group that has them."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Of one step, in seconds."""

    generate: float
    update: float

    @property
    def step(self) -> float:
        """Both: one waits for the other."""
        return self.generate + self.update


def step_floor(config: Config, shape: Shape, card: Card, tokens: float) -> Floor:
    """Seconds of a step whose completions have so many tokens on average.

    Of the process with most groups, of which each prompt has nm.groups. Weights are read once for
    each token of the longest queue; the update multiplies each kept token with every weight:
    forward, back to the inputs and, where all weights are trained, to the weights; recomputing adds
    a forward pass.
    """
    nm, processes = config.nm, config.hardware.processes
    groups = math.ceil(config.prompts_per_step * nm.groups / processes)
    weights, full = _multiplied(shape), config.model.tuning == "full"
    passes = 2 + (1 if full else 0) + (1 if config.update.activation_checkpointing else 0)
    each = 2 * weights * passes + (0 if full else 6 * shape.trained)
    update = groups * nm.m * tokens * config.update.epochs * each / card.flops
    return Floor(generation_floor(config, shape, card, groups * nm.n, tokens), update)


def evaluation_floor(config: Config, shape: Shape, card: Card, tokens: float) -> float:
    """Seconds of an evaluation, spread over the processes; NaN: how many answers is not known."""
    answers = evaluated_answers(config)
    if answers is None:
        return math.nan
    rows = math.ceil(answers / config.hardware.processes)
    return generation_floor(config, shape, card, rows, tokens)


def evaluated_answers(config: Config) -> int | None:
    """Answers of one evaluation; None where a file decides."""
    asked, there = config.evaluation.questions, config.task.test_size
    questions = asked or there or ON_THE_HUB.get(config.task.evaluated_on())
    return questions and questions * config.evaluation.repeats


def generation_floor(config: Config, shape: Shape, card: Card, rows: int, tokens: float) -> float:
    """Seconds to decode so many completions of so many tokens on average on one card.

    A decoding step reads all weights once, for at most engine.max_rows completions.
    """
    engine = config.engine
    size = BYTES[config.decoded_in()]
    weights = _multiplied(shape)
    reads = tokens * max(1.0, rows / engine.max_rows) * weights * size / card.bandwidth
    return max(reads, 2 * weights * rows * tokens / card.flops)


def _multiplied(shape: Shape) -> int:
    """Weights that a token is multiplied with: an embedding of its own is but looked up."""
    table = shape.vocabulary * shape.hidden
    return shape.parameters - (table if shape.embedded >= 2 * table else 0)
