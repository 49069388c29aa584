"""MoPPS: take problems whose estimated success rate is near a half.

Qu et al., "Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of Reasoning
Models?", arXiv:2507.04632; the authors' code is github.com/thu-rllab/MoPPS (recipe/ours/mopps.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.config.method_keys import PromptsConfig
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder

PRIOR = (1.0, 1.0)  # alpha_0 and beta_0 of the Beta distribution: uniform


@dataclass(frozen=True, slots=True)
class Mopps:
    """The state of MoPPS' selector."""

    position: int = 0
    """Position in the prompt order."""
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of each problem's success rate; the prior is absent."""

    def choose(
        self, order: PromptOrder, prompts: int, config: PromptsConfig
    ) -> tuple[ChosenPrompts, "Mopps"]:
        """Thompson sampling: draw a rate for each candidate, take those nearest the target.

        The next `candidates * prompts` problems of the order are the candidates (rho B), each once;
        those not taken do not come up again in the epoch (mopps.py:26-60 at a883f51, its strategy
        `topk`). None of them saves rollouts: a uniform selector would not have come to as many.
        """
        end = self.position + config.mopps.candidates * prompts
        seen = [order.problem(position) for position in range(self.position, end)]
        candidates = list(dict.fromkeys(seen))  # an order that crosses an epoch's end repeats some
        known = np.array([self.posterior(problem) for problem in candidates])
        rates = order.rng("mopps", self.position).beta(known[:, 0], known[:, 1])
        nearest = np.argsort((rates - config.mopps.target) ** 2, kind="stable")[:prompts]
        taken = [candidates[i] for i in nearest]
        return ChosenPrompts(taken, len(seen) - len(taken)), replace(self, position=end)

    def posterior(self, problem: int) -> tuple[float, float]:
        """Return alpha and beta of a problem's success rate."""
        alpha, beta = self.posteriors.get(str(problem), PRIOR)
        return alpha, beta

    def observe(
        self, order: PromptOrder, outcomes: Sequence[Outcome], config: PromptsConfig
    ) -> "Mopps":
        """Decay each posterior towards the prior, and add the new outcomes.

        alpha <- decay alpha + (1 - decay) alpha_0 + right, beta with those not right (mopps.py:
        70-78, without its bug at n = 1).
        """
        posteriors, decay = dict(self.posteriors), config.mopps.decay
        for outcome in outcomes:
            alpha, beta = posteriors.get(str(outcome.problem), PRIOR)
            posteriors[str(outcome.problem)] = (
                decay * alpha + (1 - decay) * PRIOR[0] + outcome.right,
                decay * beta + (1 - decay) * PRIOR[1] + outcome.rollouts - outcome.right,
            )
        return replace(self, posteriors=posteriors)
