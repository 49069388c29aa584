"""A prompt selector of one's own: a function that takes some of the problems that come up next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.config.method_keys import PromptsConfig
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.system.imports import import_function

Choose = Callable[
    [Sequence[int], Mapping[int, tuple[int, int]], int, np.random.Generator], Sequence[int]
]
"""`choose(candidates, seen, count, rng)` returns `count` of the candidates, indices in the pool;
seen[problem] = (rollouts, right) so far in the run, for those that were sampled before."""


@dataclass(frozen=True, slots=True)
class OwnSelector:
    """What is known so far of each problem; the function itself has no state."""

    position: int = 0
    """Position in the prompt order."""
    seen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Rollouts and right ones of each problem that was sampled."""

    def choose(
        self, order: PromptOrder, prompts: int, config: PromptsConfig
    ) -> tuple[ChosenPrompts, "OwnSelector"]:
        """Ask the function to take `prompts` of the next `candidates * prompts` problems.

        As with MoPPS, those not taken do not come up again in the epoch.

        Raises:
            ValueError: it returns something else.
        """
        end = self.position + config.candidates * prompts
        came_up = [order.problem(position) for position in range(self.position, end)]
        candidates = list(dict.fromkeys(came_up))  # an order that crosses an epoch repeats some
        known = {int(problem): (counts[0], counts[1]) for problem, counts in self.seen.items()}
        function: Choose = import_function(config.selector)
        rng = order.rng("own selector", self.position)
        taken = [int(problem) for problem in function(candidates, known, prompts, rng)]
        if len(taken) != prompts or len({*taken} & {*candidates}) != prompts:
            raise ValueError(
                f"prompts.selector={config.selector}: must return {prompts} different candidates, "
                f"got {taken}"
            )
        return ChosenPrompts(taken, len(came_up) - prompts), replace(self, position=end)

    def observe(
        self, order: PromptOrder, outcomes: Sequence[Outcome], config: PromptsConfig
    ) -> "OwnSelector":
        """Add the rollouts of a step to what is known of its problems."""
        seen = dict(self.seen)
        for outcome in outcomes:
            rollouts, right = seen.get(str(outcome.problem), (0, 0))
            seen[str(outcome.problem)] = (rollouts + outcome.rollouts, right + outcome.right)
        return replace(self, seen=seen)
