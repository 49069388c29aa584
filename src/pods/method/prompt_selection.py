"""Prompt selection before any rollout: which problems of the train pool a step takes.

A selector is an immutable record of what is known so far: `choose` and `observe` return the next
one. A step keeps it only if it commits, and every checkpoint holds it, so that a resumed run
chooses what the uninterrupted run would have chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pods.config.method_keys import PromptsConfig
from pods.method.greso import Greso
from pods.method.mopps import Mopps
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.system.imports import call_own, import_function

CANDIDATES = 4  # problems that come up per prompt, for a function of one's own to choose from


@dataclass(frozen=True, slots=True)
class Uniform:
    """Takes every problem once per epoch, or those that a function of one's own chooses."""

    position: int = 0
    seen: Mapping[str, Sequence[int]] | None = None
    """Rollouts and right ones of each problem sampled so far; None where no function asks."""
    function: str | None = None
    """`module:function`: of (candidates, seen, count, rng) it returns `count` of the candidates,
    indices in the pool; seen[problem] = (rollouts, right) so far, of those sampled before."""

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
        function, key = import_function(self.function), f"prompts.selector={self.function}"
        rng = order.rng("own selector", self.position)

        def read(returned: Sequence[int]) -> list[int]:
            taken = [*map(int, returned)]
            if len(taken) != prompts or len({*taken} & {*candidates}) != prompts:
                raise ValueError(f"must return {prompts} different candidates, got {taken}")
            return taken

        taken = call_own(key, function, (candidates, seen, prompts, rng), read)
        chosen = ChosenPrompts(taken, end - self.position - prompts)
        return chosen, replace(self, position=end)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Uniform":
        """Add the rollouts of a step to what was seen of its problems."""
        if self.seen is None:
            return self
        seen = dict(self.seen)
        for outcome in outcomes:
            rollouts, right = seen.get(str(outcome.problem), (0, 0))
            seen[str(outcome.problem)] = (rollouts + outcome.rollouts, right + outcome.right)
        return replace(self, seen=seen)


Selector = Uniform | Greso | Mopps


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


def allocate(
    name: str | None, selector: Selector, problems: Sequence[int], n: int, m: int
) -> list[int]:
    """Ask the function `name` for the rollouts of each group's problem; without one they are n.

    Of (seen, n, m) it returns at least m of each group, at most n on average; seen has (rollouts,
    right) of each group's prompt so far in the run.

    Raises:
        ValueError: it failed, or returned no such numbers.
    """
    if name is None:
        return [n] * len(problems)
    assert isinstance(selector, Uniform) and selector.seen is not None
    seen = [tuple(selector.seen.get(str(problem), (0, 0))) for problem in problems]
    most = n * len(problems)

    def read(returned: Sequence[int]) -> list[int]:
        counts = np.asarray(returned)
        whole = counts.shape == (len(problems),) and np.issubdtype(counts.dtype, np.integer)
        if not (whole and counts.min() >= m and counts.sum() <= most):
            must = f"must return {len(problems)} whole numbers, each at least m={m}, at most {most}"
            raise ValueError(f"{must} in all, got {returned}")
        return [int(count) for count in counts]

    return call_own(f"nm.allocation={name}", import_function(name), (seen, n, m), read)
