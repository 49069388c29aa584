"""The order of sampling and learning: in turn, or with a lag between them (`engine.lag`)."""

from collections.abc import Iterator
from dataclasses import replace

from pods.method.rules import evenly_spaced
from pods.training.loop import TrainingLoop
from pods.training.step import RunState, Sample, Step

GAP_ROLLOUTS = 4  # of a sample whose log-probs are compared, or one per process if those are more


def steps(loop: TrainingLoop, done: int, state: RunState) -> Iterator[Step]:
    """Yield the steps after `done`, the last committed one, until the budget ends.

    `state` is as that step left it. A step that is yielded is committed.
    """
    if loop.config.engine.lag > 0:
        return lagged(loop, done, state)
    return synchronous(loop, done, state)


def synchronous(loop: TrainingLoop, done: int, state: RunState) -> Iterator[Step]:
    """Learn from rollouts of the current weights."""
    for number in loop.numbers(done):
        sample = loop.collect(number, state.selector)
        state = RunState(loop.observe(sample.selector, sample))
        yield loop.learn(number, sample, state)


def lagged(loop: TrainingLoop, done: int, state: RunState) -> Iterator[Step]:
    """Learn from rollouts of the weights `engine.lag` updates ago.

    The samples of the first steps come from the start policy. Prompt selection learns of results
    when they are trained on.
    """
    lag = loop.config.engine.lag
    for number in loop.numbers(done):
        while len(state.pending) < lag:
            state = sample_ahead(loop, number + len(state.pending), state)

        sample, *later = state.pending
        state = RunState(loop.observe(state.selector, sample), later)
        state = sample_ahead(loop, number + lag, state)
        yield loop.learn(number, sample, state)


def sample_ahead(loop: TrainingLoop, number: int, state: RunState) -> RunState:
    """Collect the sample of a later step with the current weights, and add it to the pending."""
    sample = with_gap(loop, loop.collect(number, state.selector))
    return RunState(sample.selector, [*state.pending, sample])


def with_gap(loop: TrainingLoop, sample: Sample) -> Sample:
    """Return the sample with its gap, measured on some of its rollouts.

    It is measured at once, by the weights that drew them, since the policy learns before it learns
    from these rollouts.
    """
    if loop.gap is None or sample.nonfinite is not None:
        return sample
    drawn = [
        rollout for groups in sample.prompts for group in groups for rollout in group.group.rollouts
    ]
    count = max(GAP_ROLLOUTS, loop.config.hardware.processes)
    some = [drawn[i] for i in evenly_spaced(count, len(drawn))]
    with loop.clock.phase("generate"):
        gap = loop.gap(some)
    return replace(sample, gap=gap)
