"""MoPPS: take problems whose estimated success rate is near a half.

Qu et al., "Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of Reasoning
Models?", arXiv:2507.04632; the authors' code is github.com/thu-rllab/MoPPS (recipe/ours/mopps.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder

PRIOR = (1.0, 1.0)  # alpha_0 and beta_0 of the Beta distribution: uniform
CANDIDATES, TARGET = 16, 0.5  # per problem that is taken; of MoPPS's scripts for MATH


@dataclass(frozen=True, slots=True)
class Mopps:
    """The state of MoPPS' selector."""

    position: int = 0
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of each problem's success rate; the prior is absent."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Mopps"]:
        """Thompson sampling: draw a rate for each candidate, take those nearest the target.

        The next `CANDIDATES * prompts` problems of the order are the candidates (rho B), each once;
        those not taken do not come up again in the epoch (mopps.py:26-60 at a883f51, its strategy
        `topk`). None of them saves rollouts: a uniform selector would not have come to as many.
        """
        end = self.position + CANDIDATES * prompts
        candidates = order.candidates(self.position, end)
        known = np.array([self.posteriors.get(str(problem), PRIOR) for problem in candidates])
        rates = order.rng("mopps", self.position).beta(known[:, 0], known[:, 1])
        nearest = np.argsort((rates - TARGET) ** 2, kind="stable")[:prompts]
        taken = [candidates[i] for i in nearest]
        return ChosenPrompts(taken, end - self.position - len(taken)), replace(self, position=end)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Mopps":
        """Add the new outcomes to the posteriors.

        mopps.py:70-78 at the decay of the authors' scripts for MATH, 1, without its bug at n = 1.
        """
        posteriors = dict(self.posteriors)
        for outcome in outcomes:
            before = posteriors.get(str(outcome.problem), PRIOR)
            posteriors[str(outcome.problem)] = outcome.posterior(before, PRIOR)
        return replace(self, posteriors=posteriors)
