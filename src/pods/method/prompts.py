"""Prompt selection, before any rollout: which problems of the train pool a step takes.

A selector is what is known so far, immutable and of plain values: `choose` and `observe` return the
next one. A step keeps it only if it commits, and every checkpoint holds it, so that a resumed run
chooses what the run would have chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from pods.config import PromptsConfig
from pods.method.greso import Greso
from pods.method.mopps import Mopps
from pods.method.walk import Chosen, Outcome, Walk


class Selector(Protocol):
    """One way to choose prompts."""

    @property
    def place(self) -> int:
        """How far the walk through the pool has come."""
        ...

    def choose(self, walk: Walk, prompts: int, config: PromptsConfig) -> tuple[Chosen, Self]:
        """Take `prompts` problems from the walk; return them, and what is known then."""
        ...

    def observe(self, walk: Walk, outcomes: Sequence[Outcome], config: PromptsConfig) -> Self:
        """Learn from all prompts of one step, in the order of their rollouts."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every problem once an epoch."""

    place: int = 0

    def choose(self, walk: Walk, prompts: int, config: PromptsConfig) -> tuple[Chosen, "Uniform"]:
        """Take the next ones; a step that crosses an epoch's end takes from both."""
        end = self.place + prompts
        return Chosen([walk.problem(p) for p in range(self.place, end)]), Uniform(end)

    def observe(self, walk: Walk, outcomes: Sequence[Outcome], config: PromptsConfig) -> "Uniform":
        """Learn nothing."""
        return self


def start(config: PromptsConfig) -> Selector:
    """The selector that the config names, before the first step."""
    if config.selector == "greso":
        return Greso(p_easy=config.greso.p_easy, p_hard=config.greso.p_hard)
    return Mopps() if config.selector == "mopps" else Uniform()


def dump(selector: Selector) -> dict[str, Any]:
    """What `restore` makes the same selector of: plain values, for JSON."""
    assert isinstance(selector, Uniform | Greso | Mopps)
    return asdict(selector)


def restore(config: PromptsConfig, values: Mapping[str, Any]) -> Selector:
    """The selector that `dump` was given.

    Raises:
        TypeError: the values are not those of the config's selector.
    """
    fresh = start(config)
    made = type(fresh)(**values)
    for name, value in values.items():
        known = value.values() if isinstance(value, dict) else ()
        numbers = [n for one in known for n in (one if isinstance(one, list) else [one])]
        if type(value) is not type(getattr(fresh, name)) or {*map(type, numbers)} - {int, float}:
            raise TypeError(f"{name} is no {type(getattr(fresh, name)).__name__} of numbers")
    return made
