"""What a step trains on: by a rule, whose result is checked, and by the group filter.

The group filter: prompts whose rollouts all have equal rewards carry no gradient. DAPO's dynamic
sampling (Yu et al., arXiv:2503.14476) samples until the batch has only groups with 0 < right < n;
GRESO (arXiv:2506.02177) does the same by rewards, with batches that adapt. User-defined functions
are tried on a toy step, before anything heavy loads.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pods.config.method_keys import GroupFilterConfig
from pods.config.schema import Config
from pods.method.prompt_order import PromptOrder
from pods.method.prompt_selection import CANDIDATES, start
from pods.method.rules import RULES, Indices, Rule, RuleAcross, all_equal, is_across_groups
from pods.system.imports import call_own, import_function
from pods.types import Group, Rollout

MARGIN = 1.25  # prompts sampled per prompt that seems needed, as in GRESO's scripts


def find_rule(name: str) -> Rule | RuleAcross:
    """Return the rule called `name`, or the function `module:function` from outside the package.

    Raises:
        ValueError: no such rule, module or function.
    """
    if ":" not in name and name not in RULES:
        raise ValueError(f"must be one of {', '.join(RULES)}, or module:function")
    return RULES.get(name) or import_function(name)


def keep(
    rule: Rule | RuleAcross, groups: Sequence[Group], m: int, rng: np.random.Generator
) -> list[Indices]:
    """Apply a rule to a single group, or one across groups to all of them; check its result.

    Raises:
        ValueError: the rule failed, or did not return m distinct indices of the group's rollouts;
            across groups distinct ones for each of the G groups, at most G m in all.
    """
    name = f"rule {getattr(rule, '__name__', rule)}"
    if is_across_groups(rule):
        return _keep_across(name, rule, groups, m, rng)
    [group] = groups
    must = f"must return {m} distinct indices of 0 to {len(group.rewards) - 1}"

    def read(returned: Any) -> list[Indices]:
        kept = _distinct(must, returned, group)
        if len(kept) != m:
            raise ValueError(f"{must}, not {len(kept)}")
        return [kept]

    return call_own(name, rule, (group, m, rng), read)


def _keep_across(
    name: str,
    rule: Rule | RuleAcross,
    groups: Sequence[Group],
    m: int,
    rng: np.random.Generator,
) -> list[Indices]:
    most = m * len(groups)
    must = f"must return distinct indices of each of {len(groups)} groups, at most {most} in all"

    def read(returned: Any) -> list[Indices]:
        chosen = list(returned) if isinstance(returned, Iterable) else [returned]
        if len(chosen) != len(groups):
            raise ValueError(f"{must}, not {returned}")
        kept = [
            _distinct(must, indices, group) for indices, group in zip(chosen, groups, strict=True)
        ]
        count = sum(len(indices) for indices in kept)
        if count > most:
            raise ValueError(f"{must}, not {count}")
        return kept

    return call_own(name, rule, (groups, m, rng), read)


def _distinct(must: str, indices: Any, group: Group) -> Indices:
    """Return the indices that a rule chose in a group in ascending order; say what is wrong."""
    array = np.asarray(indices)
    if array.size > 0 and (array.ndim != 1 or not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{must}, not {indices}")
    distinct, counts = np.unique(array.astype(np.intp), return_counts=True)
    for index, count in zip(distinct, counts, strict=True):
        if count > 1:
            raise ValueError(f"{must}: {index} is repeated")
        if not 0 <= index < len(group.rewards):
            raise ValueError(f"{must}: {index} is out of range")

    return distinct


def own_advantages(name: str, group: Group, kept: Indices) -> NDArray[np.float64]:
    """Ask the function `name`, of (group, kept), for the advantages of the kept rollouts, (m,).

    Raises:
        ValueError: it failed, or did not return m finite numbers.
    """

    def read(returned: Any) -> NDArray[np.float64]:
        values = np.asarray(returned)
        numbers = values.shape == kept.shape and values.dtype.kind in "iuf"
        if not (numbers and np.isfinite(values).all()):
            raise ValueError(f"must return {len(kept)} finite numbers, not {returned}")
        return values.astype(np.float64)

    return call_own(f"advantage.function={name}", import_function(name), (group, kept.copy()), read)


def informative(rewards: NDArray[np.float64], correct: NDArray[np.bool_], metric: str) -> bool:
    """Return whether rollouts differ: in their reward, or in whether they are correct."""
    if metric == "reward":
        return not all_equal(rewards)
    return bool(correct.any() and not correct.all())


def next_batch(
    config: GroupFilterConfig, wanted: int, have: int, sampled: int, num_informative: int
) -> int:
    """Return how many prompts to sample after a batch that did not fill the step.

    For greso as in its code (verl/trainer/ppo/ray_trainer.py:1153-1162 at b277843): margin times
    the missing prompts over the last batch's share of informative ones, rounded down, and between
    a sixth of batch (64 of 384 in its scripts) and batch. There it is also the step's last batch.

    The step trains on `wanted` informative prompts and has fewer so far; of the `sampled` prompts
    of the last batch `num_informative` were.

    >>> config = GroupFilterConfig("greso", "reward", 384, 10)
    >>> next_batch(config, wanted=256, have=192, sampled=384, num_informative=192)
    160
    """
    full = config.batch or wanted
    if config.name == "resample" or num_informative == 0:
        return full
    needed = int((wanted - have) * sampled / num_informative * MARGIN)
    return max(min(needed, full), full // 6, 1)


def try_functions(configs: Iterable[Config]) -> None:
    """Call user-defined rules, selectors and advantages once for each size of a step.

    Rollouts of that step have one token and no text, and every second one is right.

    Raises:
        ValueError: a function failed, or returned what a step cannot use.
    """
    by_size: dict[str, Config] = {}
    for config in configs:
        settings = (config.sampler, config.prompts, config.nm, config.advantage)
        by_size[f"{settings} {config.prompts_per_step}"] = config
    for config in by_size.values():
        _try_function(config)


def _try_function(config: Config) -> None:
    prompts = config.prompts_per_step
    most = CANDIDATES * prompts
    pool = min(config.task.train_size or most, most)
    start(config.prompts).choose(PromptOrder(config.seed, pool), prompts)

    group = toy_group(config.nm.n)
    rule = find_rule(config.sampler.rule)
    groups = [group]
    if is_across_groups(rule):
        groups = [group] * (prompts * config.nm.groups)
    for kept in keep(rule, groups, config.nm.m, np.random.default_rng(0)):
        if config.advantage.function is not None and len(kept) > 0:
            own_advantages(config.advantage.function, group, kept)


def toy_group(n: int) -> Group:
    """Make a group of n rollouts of one token, of which every second one is right."""
    right = np.arange(n) % 2 == 1
    rollout = Rollout(
        prompt_ids=(0,),
        completion_ids=(0,),
        logprobs=np.zeros(1, np.float32),
        text="",
        finished=True,
    )
    return Group(
        rewards=right.astype(np.float64),
        rewarded=right,
        lengths=np.ones(n, np.int64),
        rollouts=(rollout,) * n,
    )
