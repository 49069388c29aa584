"""Prompt selection before any rollout: which problems of the train pool a step takes.

A selector is an immutable record of what is known so far: `choose` and `observe` return the next
one. A step keeps it only if it commits, and every checkpoint holds it, so that a resumed run
chooses what the uninterrupted run would have chosen. A problem that came up and was not taken does
not come up again in its epoch. Selectors with much arithmetic have files of their own, `arcus.py`
and `cero.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pods.config.method_keys import PromptsConfig
from pods.method.arcus import Arcus
from pods.method.cero import Cero
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder
from pods.system.imports import call_own, import_function

CANDIDATES = 4  # problems that a user-defined selector sees per prompt that it must choose
MOPPS_PRIOR = (1.0, 1.0)  # alpha_0 and beta_0 of the Beta distribution: uniform
MOPPS_CANDIDATES = 16  # per problem taken, as in MoPPS's scripts for MATH
MOPPS_TARGET = 0.5  # success rate, likewise
P_STEP = 0.01  # by which p_easy and p_hard are adjusted at a time
P_MIN, P_MAX = 0.05, 0.95
EXPLORE = 0.01  # least chance that a problem is sampled again
TARGET_EASY = 0.08333  # a third of the 25 % of groups that may have no variance
TARGET_HARD = 0.16667  # the other two thirds
ADJUST_AFTER = 64  # groups between adjustments; a step of GRESO's scripts has 384 or more
"""The values of GRESO's scripts for Qwen2.5-Math, except for `ADJUST_AFTER`."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """Takes every problem once per epoch, or those that a user-defined function chooses."""

    position: int = 0  # in the order of problems, `PromptOrder`: of the next one
    seen: Mapping[str, Sequence[int]] | None = None
    """Rollouts and right ones of each problem sampled so far; None if no function asks."""
    function: str | None = None
    """`module:function`: `function(candidates, seen, count, rng)` returns `count` candidates,
    indices in the pool; seen[problem] = (rollouts, right) so far, for problems sampled before."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Uniform"]:
        """Take the next problems, or let the function take some of the next `CANDIDATES * prompts`.

        Raises:
            ValueError: the function returned something else.
        """
        if self.function is not None:
            return self.ask(self.function, order, prompts)
        end = self.position + prompts
        problems = [order.problem(position) for position in range(self.position, end)]
        return ChosenPrompts(problems), replace(self, position=end)

    def ask(self, name: str, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Uniform"]:
        """Let a user-defined function choose."""
        end = self.position + CANDIDATES * prompts
        candidates = order.candidates(self.position, end)
        seen = {
            int(problem): (counts[0], counts[1]) for problem, counts in (self.seen or {}).items()
        }
        rng = order.rng("own selector", self.position)

        def read(returned: Sequence[int]) -> list[int]:
            taken = [int(problem) for problem in returned]
            if len(taken) != prompts or len(set(taken) & set(candidates)) != prompts:
                raise ValueError(f"must return {prompts} different candidates, got {taken}")
            return taken

        arguments = (candidates, seen, prompts, rng)
        taken = call_own(f"prompts.selector={name}", import_function(name), arguments, read)
        chosen = ChosenPrompts(taken, passed_over=end - self.position - prompts)
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


@dataclass(frozen=True, slots=True)
class Mopps:
    """MoPPS: take problems whose estimated success rate is near a half.

    Qu et al., "Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of
    Reasoning Models?", arXiv:2507.04632; the authors' code is github.com/thu-rllab/MoPPS
    (recipe/ours/mopps.py).
    """

    position: int = 0
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of each problem's success rate; the prior is absent."""

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Mopps"]:
        """Thompson sampling: draw a rate for each candidate, take those nearest the target.

        The next `MOPPS_CANDIDATES * prompts` problems of the order are the candidates (rho B), each
        once (mopps.py:26-60 at a883f51, its strategy `topk`). None of those not taken saves
        rollouts: a uniform selector would not have come to as many.
        """
        end = self.position + MOPPS_CANDIDATES * prompts
        candidates = order.candidates(self.position, end)
        known = np.array([self.posteriors.get(str(problem), MOPPS_PRIOR) for problem in candidates])
        rates = order.rng("mopps", self.position).beta(known[:, 0], known[:, 1])
        nearest = np.argsort((rates - MOPPS_TARGET) ** 2, kind="stable")[:prompts]
        taken = [candidates[i] for i in nearest]
        chosen = ChosenPrompts(taken, passed_over=end - self.position - len(taken))
        return chosen, replace(self, position=end)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Mopps":
        """Add the new outcomes to the posteriors.

        mopps.py:70-78 at the decay of the authors' scripts for MATH, 1, without its bug at n = 1.
        """
        posteriors = dict(self.posteriors)
        for outcome in outcomes:
            alpha, beta = posteriors.get(str(outcome.problem), MOPPS_PRIOR)
            wrong = outcome.rollouts - outcome.right
            posteriors[str(outcome.problem)] = (alpha + outcome.right, beta + wrong)
        return replace(self, posteriors=posteriors)


@dataclass(frozen=True, slots=True)
class Greso:
    """GRESO: skip problems whose recent rollouts carried no gradient, before rolling out again.

    Zheng et al., "Act Only When It Pays", arXiv:2506.02177. Its rule is p_filter = 1 - p_e^z, where
    z is the number of most recent consecutive groups without variance, and p_e is adjusted so that
    a target share of the groups has none. Details are from the authors' code
    (github.com/Infini-AI-Lab/GRESO at b277843); `keep.py` has what it leaves out after rollouts.
    """

    p_easy: float = 0.5
    p_hard: float = 0.5
    position: int = 0
    streaks: Mapping[str, int] = field(default_factory=dict)
    """z by problem: +z after z consecutive groups all right, -z with none right; 0 is absent."""
    groups: int = 0
    """Groups sampled since p_easy and p_hard were last adjusted, after the first epoch: in `easy`
    of them all rollouts were right, in `hard` none."""
    easy: int = 0
    hard: int = 0

    def choose(self, order: PromptOrder, prompts: int) -> tuple[ChosenPrompts, "Greso"]:
        """Take problems as they come up, each with its own probability of being passed over.

        Source: verl/trainer/ttis/presampling_selector.py:230-255.
        """
        position = self.position
        taken: list[int] = []
        while len(taken) < prompts:
            problem = order.problem(position)
            if order.rng("greso", position).random() >= self.p_filter(problem):
                taken.append(problem)
            position += 1

        skipped = position - self.position - prompts  # a uniform selector samples them, too
        chosen = ChosenPrompts(taken, passed_over=skipped, saved_prompts=skipped)
        return chosen, replace(self, position=position)

    def p_filter(self, problem: int) -> float:
        """Return the probability of passing over a problem: 1 - max(p^z, explore), 0 if z is 0.

        presampling_selector.py:102-147. There a group counts as easy from a mean reward of 0.98 and
        as hard up to 0.11, since its rewards are 1 and 0.1; here it is exactly as the paper defines
        it: no variance, and all right or none.
        """
        streak = self.streaks.get(str(problem), 0)
        p = self.p_easy if streak > 0 else self.p_hard
        return 1.0 - max(p ** abs(streak), EXPLORE)

    def observe(self, order: PromptOrder, outcomes: Sequence[Outcome]) -> "Greso":
        """Lengthen or end each problem's streak, then adjust p_easy and p_hard.

        verl/trainer/ppo/ray_trainer.py: p is adjusted once per optimizer step, not in the first
        epoch (1199-1219), by the shares among all groups that the step sampled, 384 or more. A step
        of few prompts is too small to estimate a share, so here the shares are taken over
        `ADJUST_AFTER` groups or more. Streaks are updated there after every sampling (1131-1132)
        and here at the end of the step, which differs only if a problem comes up twice in one.
        """
        streaks = dict(self.streaks)
        easy = self.easy
        hard = self.hard
        for outcome in outcomes:
            name = str(outcome.problem)
            before = streaks.pop(name, 0)
            if outcome.zero_variance and outcome.right == outcome.rollouts:
                easy += 1
                streaks[name] = max(before, 0) + 1
            elif outcome.zero_variance and outcome.right == 0:
                hard += 1
                streaks[name] = min(before, 0) - 1

        known = replace(self, streaks=streaks)
        groups = self.groups + len(outcomes)
        if order.epoch(self.position - 1) == 0:
            return known
        if groups < ADJUST_AFTER:
            return replace(known, groups=groups, easy=easy, hard=hard)

        return replace(
            known,
            p_easy=adjust_p(self.p_easy, easy / groups >= TARGET_EASY),
            p_hard=adjust_p(self.p_hard, hard / groups >= TARGET_HARD),
            groups=0,
            easy=0,
            hard=0,
        )


def adjust_p(p: float, too_many: bool) -> float:
    """Lower p, so that more problems are passed over, if there were too many; else raise it."""
    return max(p - P_STEP, P_MIN) if too_many else min(p + P_STEP, P_MAX)


Selector = Uniform | Greso | Mopps | Arcus | Cero


def start(config: PromptsConfig) -> Selector:
    """Return the selector that the config names, as it is before the first step."""
    if config.selector == "greso":
        return Greso()
    if config.selector == "mopps":
        return Mopps()
    if config.selector == "arcus":
        return Arcus()
    if config.selector == "cero":
        assert config.rounds is not None
        return Cero(config.rounds)
    function = config.selector if ":" in config.selector else None
    return Uniform(seen={} if function else None, function=function)
