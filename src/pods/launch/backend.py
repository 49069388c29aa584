"""The interface between a sweep and the machine or cluster that executes its jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pods.config.schema import Config
from pods.memory.fit import Fit
from pods.runs.evaluations import Point
from pods.runs.store import RunStore


@dataclass(frozen=True)
class Job:
    """One run to be executed in a process of its own."""

    store: RunStore
    config: Config
    """The run's frozen config."""
    evaluate: tuple[Point, ...] = ()
    """Evaluations to complete instead of training the run."""

    varied: str = ""
    """Values in which the run differs from others of its sweep that have the same arm, n and m."""

    @property
    def name(self) -> str:
        """Arm, n, m, what else is varied, and seed, padded for a table."""
        config = self.config
        arm = f"{config.arm_name()} {config.nm.label().replace('→', '->')}"
        return f"{' '.join(filter(None, (arm, self.varied))):<24} seed {config.seed}"


@dataclass(frozen=True)
class Outcome:
    """The end of a backend's work; the end of each run is in its folder."""

    stopped: bool
    """A signal asked this process to stop."""
    external: Sequence[Job] = ()
    """Jobs that were not run because another process already runs them."""
    exit_codes: Sequence[int] = ()
    """Exit codes of the jobs' processes, as far as the backend knows them."""


@dataclass(frozen=True)
class Backend:
    """A machine or a cluster that executes jobs."""

    at_once: int
    """Largest number of jobs that run at the same time."""
    memory: Fit
    """Memory that the largest job needs and, if known, that the machine has."""
    run: Callable[[Sequence[Job]], Outcome]
    """Executes jobs that have work left and returns when all of them have ended."""
