"""How many rollouts each prompt of a step gets, where a function of one's own decides."""

from collections.abc import Callable, Sequence

import numpy as np

from pods.method.prompt_selection import Selector, Uniform
from pods.system.imports import import_function

Allocate = Callable[[Sequence[tuple[int, int]], int, int], Sequence[int]]
"""`allocate(seen, n, m)` returns the rollouts to generate of each group, at least m of each and n
on average at most; seen: (rollouts, right) of each group's prompt so far in the run."""


def allocate(
    name: str | None, selector: Selector, problems: Sequence[int], n: int, m: int
) -> list[int]:
    """Ask the function `name` for the rollouts of each group's problem; without one they are n.

    Raises:
        ValueError: it returned no such numbers.
    """
    if name is None:
        return [n] * len(problems)
    assert isinstance(selector, Uniform) and selector.seen is not None
    seen = [selector.seen.get(str(problem), (0, 0)) for problem in problems]
    function: Allocate = import_function(name)
    returned = function([(rollouts, right) for rollouts, right in seen], n, m)
    counts = np.asarray(returned)
    whole = counts.shape == (len(problems),) and np.issubdtype(counts.dtype, np.integer)
    if not (whole and counts.min() >= m and counts.sum() <= n * len(problems)):
        raise ValueError(
            f"nm.allocation={name}: must return {len(problems)} whole numbers, each at least "
            f"m={m}, at most {n * len(problems)} in all, got {returned}"
        )
    return [int(count) for count in counts]
