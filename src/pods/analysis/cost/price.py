"""What the jobs of a preset cost on hardware that they have not run on: GPU-hours, disk, steps.

The training clock is the budget, so its hours are exact but for the last step of each run. What
else there is a number for says where that is from; what has no source is NaN, never a guess.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pods.analysis.cost.cluster import Job
from pods.analysis.cost.floor import Card, evaluated_answers, evaluation_floor, step_floor
from pods.analysis.cost.step_time import StepTime
from pods.config import Config
from pods.memory.shape import Shape
from pods.runs.store import RESUMABLE

EVALUATION_LINE = 171  # bytes of an answer's record, as runs of the embedded task write them
TOKEN_TEXT = 4  # bytes of a token's text, about; rollouts are compressed, which is left out


@dataclass(frozen=True)
class Priced:
    """The runs of one arm, which differ in the seed alone."""

    config: Config
    """Of one of them."""
    jobs: int
    step: StepTime
    step_floor: float
    """Seconds that a step takes at least, with completions of the length that was asked for."""
    steps: float
    """Of a run; NaN: not known."""
    train_seconds: float
    """Of a run's training clock; NaN: steps end it, and what they take is not known."""
    evaluations: float
    """Of a run: at step 0 and at each checkpoint; at most, where `steps` are not known; NaN: not
    known either."""
    evaluation_floor: float
    """Seconds that one takes at least; NaN: not known."""
    disk: dict[str, float]
    """Bytes of a run by part; NaN: not known."""

    @property
    def name(self) -> str:
        """Arm, or rule, and sizes."""
        nm = self.config.nm
        groups = f" x{nm.groups}" if nm.groups > 1 else ""
        return f"{self.config.arm or self.config.sampler.rule} {nm.n}→{nm.m}{groups}"

    @property
    def gpus(self) -> int:
        """That each run takes."""
        return self.config.hardware.processes

    @property
    def at_most(self) -> bool:
        """Whether `evaluations`, and what follows from them, are the most that there can be."""
        return math.isnan(self.steps) and self.evaluations > 2  # start and end always are

    @property
    def gpu_hours(self) -> float:
        """Of all its runs' training clock."""
        return self.jobs * self.gpus * self.train_seconds / 3600


def price(
    configs: Sequence[Config], shape: Shape, card: Card | None, tokens: float,
    step_time: Callable[[Config], StepTime],
) -> list[Priced]:  # fmt: skip
    """Price each arm of a sweep.

    Args:
        configs: of all jobs.
        shape: of their model.
        card: that they run on; None: no floors are known.
        tokens: mean length of a completion, for the floors.
        step_time: of a config.
    """
    arms: dict[str, list[Config]] = {}
    for config in configs:
        arms.setdefault(repr(replace(config, seed=0)), []).append(config)
    return [_priced(of[0], len(of), shape, card, tokens, step_time) for of in arms.values()]


def _priced(
    config: Config, jobs: int, shape: Shape, card: Card | None, tokens: float,
    step_time: Callable[[Config], StepTime],
) -> Priced:  # fmt: skip
    step = step_time(config)
    steps, seconds = _run(config, step.seconds)
    points = _points(config, steps)
    floors = (math.nan, math.nan)
    if card is not None:
        floors = (step_floor(config, shape, card, tokens).step,
                  evaluation_floor(config, shape, card, tokens))  # fmt: skip
    return Priced(config, jobs, step, floors[0], steps, seconds, points, floors[1],
                  disk(config, shape, points, steps))  # fmt: skip


def _run(config: Config, step: float) -> tuple[float, float]:
    """Steps and training seconds of a run; the budget is looked at after each step."""
    seconds, most = config.budget.train_seconds, config.budget.max_steps
    if seconds is None:
        return float(most or 0), (most or 0) * step
    steps = math.nan if math.isnan(step) else float(math.ceil(seconds / step))
    if most is None:
        return steps, seconds
    return min(steps, float(most)), min(seconds, most * step)


def _points(config: Config, steps: float) -> float:
    """Checkpoints of a run, each of which is evaluated: the start, the end, and between.

    A step has one at most, also where it is longer than the training seconds between two; where
    steps are not known, what the budget has room for is the most.
    """
    every, budget = config.checkpoint, config.budget
    if every.every_train_seconds is not None and budget.train_seconds is not None:
        most = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
        return most if math.isnan(steps) else min(most, 1 + steps)
    if every.every_steps is None:
        return 2
    return math.nan if math.isnan(steps) else 1 + math.ceil(steps / every.every_steps)


def disk(config: Config, shape: Shape, points: float, steps: float) -> dict[str, float]:
    """Bytes of one run by part.

    Each checkpoint holds what is trained in float32, the last two Adam's two moments as well.
    """
    answers = evaluated_answers(config)
    often = config.rollouts_every_steps
    kept = 0.0 if often is None else steps / often
    rollouts = config.prompts_per_step * config.nm.groups * config.nm.n
    text = TOKEN_TEXT * config.sampling.max_completion_tokens
    return {
        "checkpoints": 4.0 * shape.trained * points,
        "optimizer": 2 * 4.0 * shape.trained * RESUMABLE,
        "evaluations": math.nan if answers is None else points * answers * EVALUATION_LINE,
        "rollouts": kept * rollouts * text,
    }


def queue(priced: Sequence[Priced], overhead: float) -> list[Job]:
    """The jobs in the order of a sweep, a seed of all arms first.

    Args:
        priced: all arms.
        overhead: seconds of a run outside of its training clock; NaN: not known, none is added.

    Raises:
        ValueError: how long some run takes is not known.
    """
    spare = 0.0 if math.isnan(overhead) else overhead
    for arm in priced:
        if math.isnan(arm.train_seconds):
            raise ValueError(f"seconds: {arm.name} ends by steps, and what one takes is "
                             f"{arm.step.source}: give --seconds or --from")  # fmt: skip
    most = max(arm.jobs for arm in priced)
    return [
        Job(arm.name, (arm.train_seconds + spare) / 3600, arm.gpus, _every(arm))
        for seed in range(most)
        for arm in priced
        if seed < arm.jobs
    ]


def _every(arm: Priced) -> float:
    """Hours of work between two checkpoints."""
    every = arm.config.checkpoint
    step = arm.step.seconds
    if every.every_train_seconds is not None:  # or a step, where that is longer
        seconds = every.every_train_seconds
        return (seconds if math.isnan(step) else max(seconds, step)) / 3600
    by_steps = math.inf if every.every_steps is None else every.every_steps * step
    return math.inf if math.isnan(by_steps) else by_steps / 3600
