"""The most that a run has at once, from its config: what the preflight tries and a forecast counts.

No library is loaded for it, so that a dry run answers at once.
"""

import math

from pods.config.schema import Config


def rows_at_once(config: Config, questions: int | None) -> int:
    """Return the most sequences that one process decodes at once, in training and evaluation.

    `questions` is how many of the test set an evaluation asks. If it is None, which means that
    nobody knows yet, an evaluation may fill `engine.max_rows`.
    """
    limit = config.engine.max_rows
    if questions is None:
        return limit
    training = prompts_per_batch(config) * config.nm.groups * config.nm.n
    evaluation = questions * config.evaluation.repeats
    most = max(training, evaluation)
    return min(limit, math.ceil(most / config.hardware.processes))


def prompts_at_once(config: Config, questions: int | None) -> int:
    """Return the most different prompts among `rows_at_once`; each is encoded once."""
    rows = rows_at_once(config, questions)
    if questions is None:
        return rows
    return min(rows, max(prompts_per_batch(config), questions))


def prompts_per_batch(config: Config) -> int:
    """Return the prompts of one sampling batch; a group filter may sample several for a step."""
    group_filter = config.group_filter
    if group_filter.resamples and group_filter.batch is not None:
        return group_filter.batch
    return config.prompts_per_step


def updated_rows(config: Config) -> int:
    """Return the most completions of one optimizer update, in which groups stay whole."""
    groups = config.prompts_per_step * config.nm.groups
    return math.ceil(groups / config.update.minibatches) * config.nm.m
