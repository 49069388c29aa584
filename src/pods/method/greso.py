"""GRESO: pass over problems whose last rollouts carried no gradient, before rolling out again.

Zheng et al., "Act Only When It Pays", arXiv:2506.02177. Its rule is p_filter = 1 - p_e^z, with z
the number of most recent groups in a row that had no variance, and p_e moved so that a target share
of the groups has none. Details from the authors' code (github.com/Infini-AI-Lab/GRESO at b277843),
as said at each function; what they leave out after the rollouts is `group_filter`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pods.config import GresoConfig, PromptsConfig
from pods.method.walk import Chosen, Outcome, Walk


@dataclass(frozen=True, slots=True)
class Greso:
    """What GRESO knows of a run."""

    p_easy: float
    p_hard: float
    place: int = 0
    """Of the walk."""
    streaks: Mapping[str, int] = field(default_factory=dict)
    """z by problem: +z after z groups in a row all right, -z with none right, absent for 0."""
    groups: int = 0
    """Sampled since p_easy and p_hard were last moved, after the first epoch."""
    easy: int = 0
    """Of these, all right."""
    hard: int = 0
    """And with none right."""

    def choose(self, walk: Walk, prompts: int, config: PromptsConfig) -> tuple[Chosen, "Greso"]:
        """Take problems as they come up, each with its own chance to be passed over.

        verl/trainer/ttis/presampling_selector.py:230-255; a problem passed over is gone for the
        epoch.
        """
        place, taken = self.place, list[int]()
        while len(taken) < prompts:
            problem = walk.problem(place)
            if walk.draws("greso", place).random() >= self.p_filter(problem, config.greso):
                taken.append(problem)
            place += 1
        passed_over = place - self.place - prompts
        return Chosen(taken, passed_over, spared=passed_over), replace(self, place=place)

    def p_filter(self, problem: int, config: GresoConfig) -> float:
        """The chance that a problem is passed over: 1 - max(p^z, explore), 0 where z is 0.

        presampling_selector.py:102-147. There a group counts as easy from a mean reward of 0.98 and
        as hard up to 0.11, since its rewards are 1 and 0.1; here exactly as defined: no variance,
        and all right or none.
        """
        streak = self.streaks.get(str(problem), 0)
        p = self.p_easy if streak > 0 else self.p_hard
        return 1.0 - max(p ** abs(streak), config.explore)

    def observe(self, walk: Walk, outcomes: Sequence[Outcome], config: PromptsConfig) -> "Greso":
        """Lengthen or end each problem's row, then move p_easy and p_hard.

        verl/trainer/ppo/ray_trainer.py: p is moved once an optimizer step and not in the first
        epoch (1199-1219), by the shares among all that the step sampled, 384 or more. A step of few
        prompts says nothing of a share, so here they are taken over `adjust_after` groups or more.
        Rows are kept up there after every sampling (1131-1132), here at the step's end: not the
        same only where a problem comes up twice in a step.
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
        return known if walk.epoch(self.place - 1) == 0 else known.adjusted(outcomes, config.greso)

    def adjusted(self, outcomes: Sequence[Outcome], config: GresoConfig) -> "Greso":
        """Count a step's groups, and move p_easy and p_hard where there have been enough."""
        blank = [outcome for outcome in outcomes if outcome.zero_variance]
        groups = self.groups + len(outcomes)
        easy = self.easy + sum(outcome.right == outcome.rollouts for outcome in blank)
        hard = self.hard + sum(outcome.right == 0 for outcome in blank)
        if groups < config.adjust_after:
            return replace(self, groups=groups, easy=easy, hard=hard)
        p_easy = moved(self.p_easy, easy / groups >= config.target_easy, config)
        p_hard = moved(self.p_hard, hard / groups >= config.target_hard, config)
        return replace(self, p_easy=p_easy, p_hard=p_hard, groups=0, easy=0, hard=0)


def moved(p: float, too_many: bool, config: GresoConfig) -> float:
    """A step's change of p: down, to pass over more, where there were as many as the target."""
    return (
        max(p - config.p_step, config.p_min) if too_many else min(p + config.p_step, config.p_max)
    )
