"""MoPPS: take problems whose success rate, by a posterior of what was seen, is near a half.

Qu et al., "Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of Reasoning
Models?", arXiv:2507.04632; the authors' code is github.com/thu-rllab/MoPPS (recipe/ours/mopps.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.config import PromptsConfig
from pods.method.walk import Chosen, Outcome, Walk

PRIOR = (1.0, 1.0)  # alpha_0 and beta_0 of the Beta distribution: every rate alike


@dataclass(frozen=True, slots=True)
class Mopps:
    """What MoPPS knows of a run."""

    place: int = 0
    """Of the walk."""
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of each problem's success rate; absent: the prior."""

    def choose(self, walk: Walk, prompts: int, config: PromptsConfig) -> tuple[Chosen, "Mopps"]:
        """Thompson sampling: draw a rate for each candidate, take those nearest the target.

        The next `candidates * prompts` problems of the walk are the candidates (rho B), each once;
        those not taken are gone for the epoch (mopps.py:26-60 at 46700e6, its strategy `topk`).
        None of them counts as spared: a uniform choice would not have come to as many.
        """
        end = self.place + config.mopps.candidates * prompts
        seen = [walk.problem(place) for place in range(self.place, end)]
        candidates = list(dict.fromkeys(seen))  # a walk that crosses an epoch's end repeats some
        known = np.array([self.posterior(problem) for problem in candidates])
        rates = walk.draws("mopps", self.place).beta(known[:, 0], known[:, 1])
        nearest = np.argsort((rates - config.mopps.target) ** 2, kind="stable")[:prompts]
        taken = [candidates[i] for i in nearest]
        return Chosen(taken, len(seen) - len(taken)), replace(self, place=end)

    def posterior(self, problem: int) -> tuple[float, float]:
        """Alpha and beta of a problem's success rate."""
        alpha, beta = self.posteriors.get(str(problem), PRIOR)
        return alpha, beta

    def observe(self, walk: Walk, outcomes: Sequence[Outcome], config: PromptsConfig) -> "Mopps":
        """Fade what was known towards the prior, and add what was seen.

        alpha <- decay alpha + (1 - decay) alpha_0 + right, beta with those not right (mopps.py:
        70-78, without its slip where n = 1).
        """
        posteriors, decay = dict(self.posteriors), config.mopps.decay
        for outcome in outcomes:
            alpha, beta = posteriors.get(str(outcome.problem), PRIOR)
            posteriors[str(outcome.problem)] = (
                decay * alpha + (1 - decay) * PRIOR[0] + outcome.right,
                decay * beta + (1 - decay) * PRIOR[1] + outcome.rollouts - outcome.right,
            )
        return replace(self, posteriors=posteriors)
