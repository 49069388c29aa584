"""Prompt selection before any rollout: which problems of the train pool a step takes.

A selector is an immutable record of what is known so far: `choose` and `observe` return the next
one. A step keeps it only if it commits, and every checkpoint holds it, so that a resumed run
chooses what the uninterrupted run would have chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from pods.config.method_keys import PromptsConfig
from pods.method.greso import Greso
from pods.method.mopps import Mopps
from pods.method.own_selector import OwnSelector
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder


class Selector(Protocol):
    """One way to choose prompts."""

    @property
    def position(self) -> int:
        """The position in the prompt order up to which problems have come up."""
        ...

    def choose(
        self, order: PromptOrder, prompts: int, config: PromptsConfig
    ) -> tuple[ChosenPrompts, Self]:
        """Take `prompts` problems from the order; return them and the next selector."""
        ...

    def observe(
        self, order: PromptOrder, outcomes: Sequence[Outcome], config: PromptsConfig
    ) -> Self:
        """Learn from all prompts of one step, in the order of their rollouts."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Takes every problem once per epoch."""

    position: int = 0

    def choose(
        self, order: PromptOrder, prompts: int, config: PromptsConfig
    ) -> tuple[ChosenPrompts, "Uniform"]:
        """Take the next problems; a step that crosses the end of an epoch takes from both."""
        end = self.position + prompts
        return ChosenPrompts([order.problem(p) for p in range(self.position, end)]), Uniform(end)

    def observe(
        self, order: PromptOrder, outcomes: Sequence[Outcome], config: PromptsConfig
    ) -> "Uniform":
        """Learn nothing."""
        return self


def start(config: PromptsConfig) -> Selector:
    """Return the selector that the config names, as it is before the first step."""
    if ":" in config.selector:
        return OwnSelector()
    if config.selector == "greso":
        return Greso(p_easy=config.greso.p_easy, p_hard=config.greso.p_hard)
    return Mopps() if config.selector == "mopps" else Uniform()


def dump(selector: Selector) -> dict[str, Any]:
    """Return a selector as plain values for JSON, from which `restore` makes it again."""
    assert isinstance(selector, Uniform | Greso | Mopps | OwnSelector)
    values = asdict(selector)
    # `place` is the name in checkpoints
    return {"place" if name == "position" else name: value for name, value in values.items()}


def restore(config: PromptsConfig, values: Mapping[str, Any]) -> Selector:
    """Make the selector that `dump` was given.

    Raises:
        TypeError: the values are not those of the config's selector.
    """
    fresh = start(config)
    values = {"position" if name == "place" else name: value for name, value in values.items()}
    selector = type(fresh)(**values)
    for name, value in values.items():
        per_problem = value.values() if isinstance(value, dict) else ()
        numbers = [n for one in per_problem for n in (one if isinstance(one, list) else [one])]
        if type(value) is not type(getattr(fresh, name)) or {*map(type, numbers)} - {int, float}:
            raise TypeError(f"{name} is no {type(getattr(fresh, name)).__name__} of numbers")
    return selector
