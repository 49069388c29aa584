"""GRESO: skip problems whose recent rollouts carried no gradient, before rolling out again.

Zheng et al., "Act Only When It Pays", arXiv:2506.02177. Its rule is p_filter = 1 - p_e^z, where z
is the number of most recent consecutive groups without variance, and p_e is adjusted so that a
target share of the groups has none. Details are from the authors' code
(github.com/Infini-AI-Lab/GRESO at b277843), cited at each function. What GRESO leaves out after the
rollouts is in `group_filter.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pods.config.method_keys import GresoConfig, PromptsConfig
from pods.method.prompt_order import ChosenPrompts, Outcome, PromptOrder


@dataclass(frozen=True, slots=True)
class Greso:
    """The state of GRESO's selector."""

    p_easy: float
    p_hard: float
    position: int = 0
    """Position in the prompt order."""
    streaks: Mapping[str, int] = field(default_factory=dict)
    """z by problem: +z after z consecutive groups all right, -z with none right; 0 is absent."""
    groups: int = 0
    """Groups sampled since p_easy and p_hard were last adjusted, after the first epoch."""
    easy: int = 0
    """Number of `groups` in which every rollout was right."""
    hard: int = 0
    """Number of `groups` in which no rollout was right."""

    def choose(
        self, order: PromptOrder, prompts: int, config: PromptsConfig
    ) -> tuple[ChosenPrompts, "Greso"]:
        """Take problems as they come up, each with its own probability of being passed over.

        verl/trainer/ttis/presampling_selector.py:230-255; a problem that is passed over does not
        come up again in its epoch.
        """
        position, taken = self.position, list[int]()
        while len(taken) < prompts:
            problem = order.problem(position)
            if order.rng("greso", position).random() >= self.p_filter(problem, config.greso):
                taken.append(problem)
            position += 1
        passed_over = position - self.position - prompts
        chosen = ChosenPrompts(taken, passed_over, saved_prompts=passed_over)
        return chosen, replace(self, position=position)

    def p_filter(self, problem: int, config: GresoConfig) -> float:
        """Return the probability of passing over a problem: 1 - max(p^z, explore), 0 where z is 0.

        presampling_selector.py:102-147. There a group counts as easy from a mean reward of 0.98 and
        as hard up to 0.11, since its rewards are 1 and 0.1; here it is exactly as the paper defines
        it: no variance, and all right or none.
        """
        streak = self.streaks.get(str(problem), 0)
        p = self.p_easy if streak > 0 else self.p_hard
        return 1.0 - max(p ** abs(streak), config.explore)

    def observe(
        self, order: PromptOrder, outcomes: Sequence[Outcome], config: PromptsConfig
    ) -> "Greso":
        """Lengthen or end each problem's streak, then adjust p_easy and p_hard.

        verl/trainer/ppo/ray_trainer.py: p is adjusted once per optimizer step, not in the first
        epoch (1199-1219), by the shares among all groups that the step sampled, 384 or more. A step
        of few prompts is too small to estimate a share, so here the shares are taken over
        `adjust_after` groups or more. Streaks are updated there after every sampling (1131-1132)
        and here at the end of the step, which differs only where a problem comes up twice in one.
        """
        streaks = dict(self.streaks)
        for outcome in outcomes:
            key = str(outcome.problem)
            before = streaks.pop(key, 0)
            if outcome.zero_variance and outcome.right == outcome.rollouts:
                streaks[key] = max(before, 0) + 1
            elif outcome.zero_variance and outcome.right == 0:
                streaks[key] = min(before, 0) - 1
        known = replace(self, streaks=streaks)
        return (
            known if order.epoch(self.position - 1) == 0 else known.adjusted(outcomes, config.greso)
        )

    def adjusted(self, outcomes: Sequence[Outcome], config: GresoConfig) -> "Greso":
        """Count a step's groups, and adjust p_easy and p_hard once there are enough."""
        zero_variance = [outcome for outcome in outcomes if outcome.zero_variance]
        groups = self.groups + len(outcomes)
        easy = self.easy + sum(outcome.right == outcome.rollouts for outcome in zero_variance)
        hard = self.hard + sum(outcome.right == 0 for outcome in zero_variance)
        if groups < config.adjust_after:
            return replace(self, groups=groups, easy=easy, hard=hard)
        p_easy = adjust_p(self.p_easy, easy / groups >= config.target_easy, config)
        p_hard = adjust_p(self.p_hard, hard / groups >= config.target_hard, config)
        return replace(self, p_easy=p_easy, p_hard=p_hard, groups=0, easy=0, hard=0)


def adjust_p(p: float, too_many: bool, config: GresoConfig) -> float:
    """Lower p, so that more problems are passed over, if there were too many; else raise it."""
    if too_many:
        return max(p - config.p_step, config.p_min)
    return min(p + config.p_step, config.p_max)
