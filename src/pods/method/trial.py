"""Try the functions of one's own on a toy step, before anything heavy loads."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pods.config.checks import own_functions
from pods.config.schema import Config
from pods.method.keep import find_rule, keep, keep_across
from pods.method.prompt_order import PromptOrder
from pods.method.prompt_selection import CANDIDATES, allocate, start
from pods.method.rules import is_across_groups
from pods.types import Group, Rollout


def try_functions(configs: Iterable[Config]) -> None:
    """Call rule, selector and allocation of one's own, each once for each size of a step.

    Raises:
        ValueError: a function failed, or returned what a step cannot use.
    """
    sizes = {f"{c.sampler}{c.prompts}{c.nm}{c.prompts_per_step}": c for c in configs}
    for config in sizes.values():
        if {"sampler.rule", "prompts.selector", "nm.allocation"} & {*dict(own_functions(config))}:
            _try(config)


def _try(config: Config) -> None:
    """Take a step whose rollouts have one token and no text; every second one is right."""
    nm, prompts, rng = config.nm, config.prompts_per_step, np.random.default_rng(0)
    pool = min(config.task.train_size or CANDIDATES * prompts, CANDIDATES * prompts)
    order, selector = PromptOrder(config.seed, pool), start(config.prompts, nm.allocation)
    chosen, selector = selector.choose(order, prompts)
    allocate(nm.allocation, selector, [*chosen.problems] * nm.groups, nm.n, nm.m)
    right = np.arange(nm.n) % 2 == 1
    rollout = Rollout((0,), (0,), np.zeros(1, np.float32), "", True)
    group = Group(right * 1.0, right, np.ones(nm.n, np.int64), (rollout,) * nm.n)
    rule: Any = find_rule(config.sampler.rule)
    if is_across_groups(rule):
        keep_across(rule, [group] * prompts * nm.groups, nm.m, rng)
    else:
        keep(rule, group, nm.m, rng)
