"""Prompt selection before any rollout: which problems of the train pool a step takes.

A selector is an immutable record of what is known so far: `choose` and `observe` return the next
one. A step keeps it only if it commits, and every checkpoint holds it, so that a resumed run
chooses what the uninterrupted run would have chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from pods.config.method_keys import PromptsConfig
from pods.method.greso import Greso
from pods.method.mopps import Mopps
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.system.imports import import_function

CANDIDATES = 4  # problems that come up per prompt, for a function of one's own to choose from


class Selector(Protocol):
    """One way to choose prompts."""

    @property
    def position(self) -> int:
        """The position in the prompt order up to which problems have come up."""
        ...

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, Self]:
        """Take `prompts` problems from the order; return them and the next selector."""
        ...

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> Self:
        """Learn from all prompts of one step, in the order of their rollouts."""
        ...


Choose = Callable[
    [Sequence[int], Mapping[int, tuple[int, int]], int, np.random.Generator], Sequence[int]
]
"""`choose(candidates, seen, count, rng)` returns `count` of the candidates, indices in the pool;
seen[problem] = (rollouts, right) so far in the run, for those that were sampled before."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """Takes every problem once per epoch, or those that a function of one's own chooses."""

    position: int = 0
    seen: Mapping[str, Sequence[int]] | None = None
    """Rollouts and right ones of each problem sampled so far; None where no function asks."""
    function: str | None = None
    """`module:function` that chooses."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Uniform"]:
        """Take the next problems, or let the function take some of the next `CANDIDATES * prompts`.

        As with MoPPS, those not taken do not come up again in the epoch.

        Raises:
            ValueError: the function returned something else.
        """
        if self.function is None:
            end = self.position + prompts
            problems = [order.problem(position) for position in range(self.position, end)]
            return ChosenPrompts(problems), replace(self, position=end)
        end = self.position + CANDIDATES * prompts
        candidates = order.candidates(self.position, end)
        seen = {int(problem): (of[0], of[1]) for problem, of in (self.seen or {}).items()}
        function: Choose = import_function(self.function)
        rng = order.rng("own selector", self.position)
        taken = [int(problem) for problem in function(candidates, seen, prompts, rng)]
        if len(taken) != prompts or len({*taken} & {*candidates}) != prompts:
            raise ValueError(
                f"prompts.selector={self.function}: must return {prompts} different candidates, "
                f"got {taken}"
            )
        passed_over = end - self.position - prompts
        return ChosenPrompts(taken, passed_over), replace(self, position=end)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Uniform":
        """Add the rollouts of a step to what was seen of its problems."""
        if self.seen is None:
            return self
        seen = dict(self.seen)
        for outcome in outcomes:
            rollouts, right = seen.get(str(outcome.problem), (0, 0))
            seen[str(outcome.problem)] = (rollouts + outcome.rollouts, right + outcome.right)
        return replace(self, seen=seen)


def start(config: PromptsConfig, allocation: str | None = None) -> Selector:
    """Return the selector that the config names, as it is before the first step.

    `nm.allocation`, too, is a function that asks what was seen of each problem.
    """
    if config.selector == "greso":
        return Greso()
    if config.selector == "mopps":
        return Mopps()
    function = config.selector if ":" in config.selector else None
    return Uniform(seen={} if function or allocation else None, function=function)
