"""`pods plan PRESET --hardware NAME`: what a preset's study costs before any of it has run.

The training clock is the budget, so that its GPU-hours are exact but for the last step of each run.
Every other number names its source; what has no source is NaN, never a guess.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pods.analysis.cost import text
from pods.analysis.cost.forecast import steps_within
from pods.analysis.cost.plan import PlanReport, PlanRequest
from pods.analysis.cost.roofline import (
    GPUS,
    Gpu,
    evaluated_answers,
    evaluation_bound,
    step_bound,
)
from pods.analysis.cost.schedule import Failures, Job, forecast
from pods.analysis.cost.step_time import MeasuredStudy, StepTime, step_time
from pods.config.schema import Config
from pods.memory.shape import Shape, read_shape
from pods.runs.store import RESUMABLE

if TYPE_CHECKING:
    from pods.config.presets import PresetJobs

EVALUATION_LINE = 171  # bytes per evaluated answer, as runs of the embedded task write them
TOKEN_TEXT = 4  # bytes of text per token, roughly; the compression of rollouts is left out


@dataclass(frozen=True)
class PricedArm:
    """The runs of one arm, which differ only in the seed."""

    config: Config
    """The config of one of the runs."""
    jobs: int
    """Number of runs."""
    step: StepTime
    """Seconds per step, and where they come from."""
    step_bound: float
    """Least seconds per step with completions of the given length; NaN: unknown."""
    steps: float
    """Steps per run; NaN: unknown."""
    train_seconds: float
    """Training clock per run; NaN: it ends by steps, whose time is unknown."""
    evaluations: float
    """Evaluations per run; at most so many if `at_most`; NaN: unknown."""
    evaluation_bound: float
    """Least seconds per evaluation; NaN: unknown."""
    disk: dict[str, float]
    """Bytes per run by part; NaN: unknown."""

    @property
    def name(self) -> str:
        """The arm's label or rule, and its sizes."""
        nm = self.config.nm
        groups = f" x{nm.groups}" if nm.groups > 1 else ""
        return f"{self.config.arm_name()} {nm.label()}{groups}"

    @property
    def gpus(self) -> int:
        """GPUs per run."""
        return self.config.hardware.processes

    @property
    def at_most(self) -> bool:
        """True if `evaluations`, and what follows from them, is only an upper bound."""
        return math.isnan(self.steps) and self.evaluations > 2  # start and end always are

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the training clock of all runs."""
        return self.jobs * self.gpus * self.train_seconds / 3600


def plan_preset(
    preset: str, sweep: "PresetJobs", request: PlanRequest, source: MeasuredStudy | None
) -> PlanReport:
    """Price a preset's study.

    Args:
        preset: its name.
        sweep: its jobs on the requested hardware.
        request: its budget replaces that of the preset.
        source: finished study whose step times count; None: the PODS authors' published ones,
            where they are of the same setup.

    Raises:
        ValueError: the request is invalid, or the time of a run is unknown.
    """
    request.check()
    configs = sweep.configs
    if any(config.budget.clock == "modelled" for config in configs):
        raise ValueError("budget.clock=modelled: must be measured, or how long it takes is unknown")
    if request.seconds is not None:
        budget = replace(configs[0].budget, train_seconds=request.seconds, max_steps=None)
        configs = tuple(replace(config, budget=budget) for config in configs)
    shape, gpu = read_shape(configs[0].model), GPUS.get(configs[0].hardware.name)
    tokens = request.tokens or configs[0].sampling.max_completion_tokens
    arms = price(configs, shape, gpu, tokens, source)
    overhead = source.overhead if source else math.nan
    jobs = queue(arms, overhead)
    failures = Failures(request.failures, request.restart / 60)
    largest = max(job.gpus for job in jobs)
    enough = [count for count in request.gpus if count >= largest]
    schedules = [forecast(jobs, count, failures, sweep.machine) for count in enough]
    lines = [
        *text.preset_lines(preset, sweep, arms, gpu),
        *text.hours_lines(arms, overhead, gpu, tokens),
        *text.disk_lines(arms, EVALUATION_LINE, TOKEN_TEXT),
        *text.memory_lines(arms, shape, gpu),
        *text.schedule_lines(schedules, failures, overhead),
    ]
    if len(enough) < len(request.gpus):
        too_few = ", ".join(str(count) for count in request.gpus if count < largest)
        lines.append(f"- too few GPUs for a job, which needs {largest}: {too_few}")
    return PlanReport(lines, {})


def price(
    configs: Sequence[Config],
    shape: Shape,
    gpu: Gpu | None,
    tokens: float,
    source: MeasuredStudy | None,
) -> list[PricedArm]:
    """Price each arm of a sweep.

    Args:
        configs: the configs of all jobs.
        shape: of their model.
        gpu: that they run on; None: there are no lower bounds.
        tokens: mean length of a completion, for the lower bounds.
        source: finished study whose step times count.
    """
    arms: dict[str, list[Config]] = {}
    for config in configs:
        arms.setdefault(repr(replace(config, seed=0)), []).append(config)
    return [
        _priced(of[0], len(of), shape, gpu, tokens, step_time(of[0], source))
        for of in arms.values()
    ]


def _priced(
    config: Config, jobs: int, shape: Shape, gpu: Gpu | None, tokens: float, step: StepTime
) -> PricedArm:
    budget = config.budget
    steps = steps_within(budget, step.seconds)
    seconds = math.nan if budget.train_seconds is None else budget.train_seconds
    by_steps = math.nan if budget.max_steps is None else budget.max_steps * step.seconds
    evaluations = _evaluations(config, steps)
    return PricedArm(
        config,
        jobs,
        step,
        step_bound=step_bound(config, shape, gpu, tokens).step if gpu else math.nan,
        steps=steps,
        train_seconds=float(np.fmin(seconds, by_steps)),
        evaluations=evaluations,
        evaluation_bound=evaluation_bound(config, shape, gpu, tokens) if gpu else math.nan,
        disk=_disk(config, shape, evaluations, steps),
    )


def _evaluations(config: Config, steps: float) -> float:
    """Count the checkpoints of a run, each of which is evaluated: start, end and in between.

    A step has at most one, even if it takes longer than the interval. Where the number of steps is
    unknown, this is the most that the budget allows.
    """
    every, budget = config.checkpoint, config.budget
    if every.every_train_seconds is not None and budget.train_seconds is not None:
        most = 1 + math.ceil(budget.train_seconds / every.every_train_seconds)
        return most if math.isnan(steps) else min(most, 1 + steps)
    if every.every_steps is None:
        return 2
    return math.nan if math.isnan(steps) else 1 + math.ceil(steps / every.every_steps)


def _disk(config: Config, shape: Shape, checkpoints: float, steps: float) -> dict[str, float]:
    """Return the bytes of one run by part.

    Checkpoints hold the trained numbers in float32, the last two also both moments of Adam.
    """
    answers = evaluated_answers(config)
    every = config.rollouts_every_steps
    rollouts = config.prompts_per_step * config.nm.groups * config.nm.n
    text_bytes = TOKEN_TEXT * config.sampling.max_completion_tokens
    return {
        "checkpoints": 4.0 * shape.trained * checkpoints,
        "optimizer": 2 * 4.0 * shape.trained * RESUMABLE,
        "evaluations": math.nan if answers is None else checkpoints * answers * EVALUATION_LINE,
        "rollouts": 0.0 if every is None else steps / every * rollouts * text_bytes,
    }


def queue(arms: Sequence[PricedArm], overhead: float) -> list[Job]:
    """List the jobs in the order of a sweep: one seed of all arms, then the next.

    Args:
        arms: all arms.
        overhead: seconds of a run outside its training clock; NaN: unknown, none is added.

    Raises:
        ValueError: the time of some run is unknown.
    """
    extra = 0.0 if math.isnan(overhead) else overhead
    for arm in arms:
        if math.isnan(arm.train_seconds):
            raise ValueError(
                f"seconds: {arm.name} ends by steps, whose time is {arm.step.source}; give "
                "--seconds, or --from with a finished study"
            )
    return [
        Job(arm.name, (arm.train_seconds + extra) / 3600, arm.gpus, _checkpoint_hours(arm))
        for seed in range(max(arm.jobs for arm in arms))
        for arm in arms
        if seed < arm.jobs
    ]


def _checkpoint_hours(arm: PricedArm) -> float:
    """Return the hours of work between two checkpoints; a step may be longer than the interval."""
    every, step = arm.config.checkpoint, arm.step.seconds
    if every.every_train_seconds is not None:
        return float(np.fmax(every.every_train_seconds, step)) / 3600
    return (
        math.inf
        if every.every_steps is None or math.isnan(step)
        else every.every_steps * step / 3600
    )
