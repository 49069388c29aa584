"""Adaptive n and m: each few steps, take the pair of a menu with most expected progress per second.

Two things are learned while the run goes: what a step of each pair costs, and how often the prompts
that were seen lately are solved. `expected_progress` says what a pair gains at such success rates.

Shapes: K = pairs of the menu, P = prompts seen lately, n = rollouts of a group, m = rollouts kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pods.config.method_keys import NmConfig
from pods.method.prompt_order import Outcome
from pods.system.imports import import_function

Floats = NDArray[np.float64]
Pair = tuple[int, int]
Choose = Callable[[Sequence[Pair], Floats, Floats], int]
"""`choose(menu, seconds, posteriors)` returns the index of a pair: the menu's pairs (n, m), (K,)
seconds that a step of each is expected to take, and (P, 2) alpha and beta of the Beta distribution
of each prompt's success rate, of the prompts seen lately, oldest first."""

PRIOR = (0.5, 0.5)  # Jeffreys': many prompts are solved always or never
DECAY = 0.5  # of what earlier visits to a prompt showed: the policy has changed since
LATELY = 32  # prompts
REMEMBERED = 15  # steps of a pair whose median is its cost, so that a busy moment decides nothing
M_EXPONENT = 0.2
"""Progress of a step grows as m to this power: between GRPO 16 and GRPO 64 the cosine that `pods
probe` measures grew by m to the 0.12 while 24 % of the embedded task's rollouts were right, and by
m to the 0.20 at 78 % (experiments/probe)."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What an adaptive run knows: costs, success rates, and its last decision."""

    pair: int = 0
    """Index in the menu of the pair that the last step took."""
    steps: int = 0
    """Number of steps taken."""
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of the last steps of each pair, by its index in the menu."""
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of the success rate of each problem seen lately, the latest last."""
    seconds: Sequence[float] = ()
    """(K,) expected seconds of a step at the last decision; none while each pair is tried first."""
    progress: Sequence[float] = ()
    """(K,) expected progress of a step at the last decision."""

    def choose(self, nm: NmConfig) -> "Adaptive":
        """Return the state with the pair of the next step.

        Each pair is tried once at first. Then `nm.chooser` decides every `nm.every_steps` steps.

        Raises:
            ValueError: a function of one's own returned no index of the menu.
        """
        menu = nm.pairs()
        if self.steps < len(menu):
            return replace(self, pair=self.steps)
        if self.steps % nm.every_steps and self.seconds:
            return self
        seconds = expected_seconds(menu, [self.costs[str(k)] for k in range(len(menu))])
        posteriors = np.array([*self.posteriors.values()], dtype=np.float64)
        progress = expected_progress(menu, posteriors)
        choose: Choose | None = import_function(nm.chooser) if ":" in nm.chooser else None
        pair: Any = int((progress / seconds).argmax())
        if choose is not None:
            pair = choose(menu, seconds, posteriors)
            if not (isinstance(pair, int | np.integer) and 0 <= pair < len(menu)):
                allowed = f"must return an index from 0 to {len(menu) - 1}"
                raise ValueError(f"nm.chooser={nm.chooser}: {allowed}, got {pair!r}")
        return replace(self, pair=int(pair), seconds=seconds.tolist(), progress=progress.tolist())

    def observe(self, outcomes: Sequence[Outcome], seconds: float) -> "Adaptive":
        """Add the outcomes and the seconds of the step that the pair was chosen for.

        alpha <- decay alpha + (1 - decay) alpha_0 + right, and beta with those not right, as MoPPS
        has it (arXiv:2507.04632); what was not seen lately is forgotten.
        """
        posteriors = dict(self.posteriors)
        for outcome in outcomes:
            counts = outcome.right, outcome.rollouts - outcome.right
            before = posteriors.pop(str(outcome.problem), PRIOR)
            posteriors[str(outcome.problem)] = [
                DECAY * one + (1 - DECAY) * prior + count
                for one, prior, count in zip(before, PRIOR, counts, strict=True)
            ]
        costs = {**self.costs, str(self.pair): [*self.costs.get(str(self.pair), ()), seconds]}
        costs[str(self.pair)] = costs[str(self.pair)][-REMEMBERED:]
        lately = dict([*posteriors.items()][-LATELY:])
        return replace(self, steps=self.steps + 1, costs=costs, posteriors=lately)


def expected_seconds(menu: Sequence[Pair], costs: Sequence[Sequence[float]]) -> Floats:
    """Return the seconds of a step of each pair, (K,): base + price_n n + price_m m.

    Least squares through the median seconds of each pair's last steps, the least prices where the
    menu determines none, such as that of m where all pairs have the same. Where that gives a pair
    no positive time, its own median stands.

    Args:
        menu: (K,) pairs.
        costs: (K,) seconds of each pair's steps.

    >>> expected_seconds([(16, 16), (32, 16), (64, 16)], [[1.0, 1.0, 9.0], [1.5], [2.5]]).round(3)
    array([1. , 1.5, 2.5])
    """
    medians = np.array([np.median(seconds) for seconds in costs])
    pairs = np.array(menu, dtype=np.float64)
    centred = pairs - pairs.mean(0)
    prices = np.linalg.lstsq(centred, medians - medians.mean(), rcond=1e-9)[0]
    fitted = medians.mean() + centred @ prices
    return np.where(fitted > 0, fitted, medians)


def expected_progress(menu: Sequence[Pair], posteriors: Floats) -> Floats:
    """Return what a step of each pair is expected to gain, (K,), up to a factor that all share.

    With rewards of 0 and 1, a kept set of which k of m are right has the reward variance
    v = k (m - k) / m^2. Normalised by their std, its advantages weigh the mean gradient of the
    right rollouts against that of the wrong ones by sqrt(v), and their noise, 1 / m, does not
    depend on k as long as both kinds are there. Adam divides a step by the root of the mean square,
    which the noise dominates. So the progress is E[sqrt(v)] / sqrt(P(v > 0)), times m to the
    `M_EXPONENT`, with k as near to m / 2 as the K right ones of the group allow (max-variance and
    balanced rules), and K beta-binomial. The formula is ours; experiments/adaptive holds it against
    what was measured.

    Args:
        menu: (K,) pairs.
        posteriors: (P, 2) alpha and beta of each prompt's success rate.

    >>> solved_half, solved_always = [8.0, 8.0], [1e6, 1e-3]
    >>> expected_progress([(16, 16), (64, 16)], np.array([solved_half, solved_always])).round(2)
    array([0.58, 0.61])
    """
    gains = []
    for n, m in menu:
        right = np.arange(n + 1)
        kept = np.clip(m // 2, m - (n - right), right)
        variance = kept * (m - kept) / m**2
        chances = beta_binomial(n, posteriors).mean(0)
        signal, informative = chances @ np.sqrt(variance), chances @ (variance > 0)
        gains.append(signal / np.sqrt(informative) * m**M_EXPONENT if informative > 0 else 0.0)
    return np.array(gains)


def beta_binomial(n: int, posteriors: Floats) -> Floats:
    """Return the chances that 0, 1, ..., n of a prompt's n rollouts are right, (P, n + 1).

    By the ratio of neighbours, so that no gamma function is needed:
    P(k + 1) / P(k) = (n - k) (k + alpha) / ((k + 1) (beta + n - k - 1)).

    >>> beta_binomial(2, np.array([[1.0, 1.0]])).round(3)  # all counts are as likely
    array([[0.333, 0.333, 0.333]])
    """
    alpha, beta = posteriors[:, :1], posteriors[:, 1:]
    k = np.arange(n)
    ratios = np.log((n - k) * (k + alpha) / ((k + 1) * (beta + n - k - 1)))
    logs = np.concatenate([np.zeros((len(posteriors), 1)), ratios.cumsum(1)], axis=1)
    chances = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(chances / chances.sum(1, keepdims=True))


def dump(adaptive: Adaptive) -> dict[str, Any]:
    """Return the state as plain values for JSON, from which `restore` makes it again."""
    return asdict(adaptive)


def restore(values: Mapping[str, Any]) -> Adaptive:
    """Make the state that `dump` was given.

    Raises:
        TypeError: the values are not those of such a state.
    """
    state = Adaptive(**values)
    lists = [*state.costs.values(), *state.posteriors.values(), state.seconds, state.progress]
    numbers = [state.pair, state.steps, *(number for one in lists for number in one)]
    if {*map(type, numbers)} - {int, float} or type(state.steps) is not int:
        raise TypeError("adaptive state is not one of numbers")
    return state
