"""What a sweep knows of where its jobs run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pods.config import Config
from pods.runs.store import RunStore

Job = tuple[RunStore, Config]


@dataclass(frozen=True)
class Outcome:
    """What a place has to say of its jobs; how each ended is in its folder."""

    stopped: bool
    """It was asked to stop."""
    elsewhere: Sequence[Job] = ()
    """Jobs that it has left to another process, which ran them already."""


@dataclass(frozen=True)
class Place:
    """This machine, or a cluster."""

    at_once: int
    """Jobs, at most."""
    memory: str
    """What the largest job needs and has, in words."""
    run: Callable[[Sequence[Job]], Outcome]
    """Runs jobs that have work left, each from its frozen config, but for those that run already.
    """
