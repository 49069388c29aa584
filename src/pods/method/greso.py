"""GRESO: skip problems whose recent rollouts carried no gradient, before rolling out again.

Zheng et al., "Act Only When It Pays", arXiv:2506.02177. Its rule is p_filter = 1 - p_e^z, where z
is the number of most recent consecutive groups without variance, and p_e is adjusted so that a
target share of the groups has none. Details are from the authors' code
(github.com/Infini-AI-Lab/GRESO at b277843). What it leaves out after the rollouts is in
`group_filter.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder

P_STEP = 0.01  # by which p_easy and p_hard are adjusted at a time
P_MIN, P_MAX = 0.05, 0.95
EXPLORE = 0.01  # least chance that a problem is sampled again
TARGET_EASY = 0.08333  # a third of the 25 % of groups that may have no variance
TARGET_HARD = 0.16667  # the other two thirds
ADJUST_AFTER = 64  # groups between adjustments; a step of GRESO's scripts has 384 or more
"""The values of GRESO's scripts for Qwen2.5-Math, except for `ADJUST_AFTER`."""


@dataclass(frozen=True, slots=True)
class Greso:
    """The state of GRESO's selector."""

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

        verl/trainer/ttis/presampling_selector.py:230-255; a problem that is passed over does not
        come up again in its epoch.
        """
        position, taken = self.position, list[int]()
        while len(taken) < prompts:
            problem = order.problem(position)
            if order.rng("greso", position).random() >= self.p_filter(problem):
                taken.append(problem)
            position += 1
        passed_over = position - self.position - prompts
        chosen = ChosenPrompts(taken, passed_over, saved_prompts=passed_over)
        return chosen, replace(self, position=position)

    def p_filter(self, problem: int) -> float:
        """Return the probability of passing over a problem: 1 - max(p^z, explore), 0 where z is 0.

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
        and here at the end of the step, which differs only where a problem comes up twice in one.
        """
        streaks, groups, easy, hard = dict(self.streaks), self.groups, self.easy, self.hard
        for outcome in outcomes:
            before = streaks.pop(str(outcome.problem), 0)
            is_easy = outcome.zero_variance and outcome.right == outcome.rollouts
            is_hard = outcome.zero_variance and outcome.right == 0
            groups, easy, hard = groups + 1, easy + is_easy, hard + is_hard
            if sign := is_easy - is_hard:
                streaks[str(outcome.problem)] = sign * (max(sign * before, 0) + 1)
        known = replace(self, streaks=streaks)
        if order.epoch(self.position - 1) == 0:
            return known
        if groups < ADJUST_AFTER:
            return replace(known, groups=groups, easy=easy, hard=hard)
        p_easy = adjust_p(self.p_easy, easy / groups >= TARGET_EASY)
        p_hard = adjust_p(self.p_hard, hard / groups >= TARGET_HARD)
        return replace(known, p_easy=p_easy, p_hard=p_hard, groups=0, easy=0, hard=0)


def adjust_p(p: float, too_many: bool) -> float:
    """Lower p, so that more problems are passed over, if there were too many; else raise it."""
    return max(p - P_STEP, P_MIN) if too_many else min(p + P_STEP, P_MAX)
