"""Adaptive n and m: each few steps, take the pair of a menu with most expected progress per second.

Three things are learned while the run goes: what a step of each pair costs, how often the prompts
that were seen lately are solved, and how noisy the gradients of right and of wrong rollouts are.
`expected_progress` says what a pair gains then.

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

PRIOR = (0.5, 0.5)  # Jeffreys': many prompts are solved always or never
DECAY = 0.5  # of what earlier visits to a prompt showed: the policy has changed since
NOISE_DECAY = 0.9  # per step, of the noise of right and wrong rollouts
LATELY = 32  # prompts
REMEMBERED = 15  # steps of a pair whose median is its cost, so that a busy moment decides nothing
NOISE = 4.0
"""Mean square of one wrong rollout's gradient over that of the signal between prompts. It is what
the cosines of GRPO 16 and GRPO 64 in `pods probe` determine on the embedded task: 0.32 and 0.38
while 24 % of the rollouts were right (3.2), 0.22 and 0.29 at 78 % (4.6); experiments/adaptive."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a choice from the menu is made from."""

    menu: Sequence[Pair]
    """(K,) pairs n and m."""
    seconds: Floats
    """(K,) seconds that a step of each pair is expected to take."""
    posteriors: Floats
    """(P, 2) alpha and beta of the success rate of each prompt seen lately, oldest first."""
    noise_ratio: float
    """Squared gradient of a right rollout over that of a wrong one, lately."""
    steps: int = 0
    """Number of steps taken."""


Choose = Callable[[Evidence], int]
"""`choose(evidence)` returns the index of a pair of the menu."""


def most_progress_per_second(evidence: Evidence) -> int:
    """Choose the pair with the most expected progress per expected second."""
    menu, posteriors, ratio = evidence.menu, evidence.posteriors, evidence.noise_ratio
    return int((expected_progress(menu, posteriors, ratio) / evidence.seconds).argmax())


def in_turn(evidence: Evidence) -> int:
    """Choose one pair after the other, whatever is known: for a run that measures them."""
    return evidence.steps % len(evidence.menu)


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
    noise: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
    """Decayed sums over right rollouts of their gradient noise and of 1, and over wrong ones."""
    seconds: Sequence[float] = ()
    """(K,) expected seconds of a step at the last choice; none while each pair is tried first."""
    progress: Sequence[float] = ()
    """(K,) expected progress of a step at the last choice."""

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
        evidence = self.evidence(menu)
        own = ":" in nm.chooser
        choose: Choose = import_function(nm.chooser) if own else most_progress_per_second
        pair: Any = choose(evidence)
        if not (isinstance(pair, int | np.integer) and 0 <= pair < len(menu)):
            allowed = f"must return an index from 0 to {len(menu) - 1}"
            raise ValueError(f"nm.chooser={nm.chooser}: {allowed}, got {pair!r}")
        progress = expected_progress(menu, evidence.posteriors, evidence.noise_ratio)
        return replace(
            self, pair=int(pair), seconds=evidence.seconds.tolist(), progress=progress.tolist()
        )

    def evidence(self, menu: Sequence[Pair]) -> Evidence:
        """Return what is known, once each pair of the menu was tried."""
        seconds = expected_seconds(menu, [self.costs[str(k)] for k in range(len(menu))])
        posteriors = np.array([*self.posteriors.values()], dtype=np.float64)
        return Evidence(menu, seconds, posteriors, self.noise_ratio(), self.steps)

    def noise_ratio(self) -> float:
        """Return the noise of a right rollout over that of a wrong one; 1 where one is unseen."""
        right, rights, wrong, wrongs = self.noise
        known = min(right, rights, wrong, wrongs) > 0
        return (right / rights) / (wrong / wrongs) if known else 1.0

    def observe(
        self, outcomes: Sequence[Outcome], noise: Sequence[float], seconds: float
    ) -> "Adaptive":
        """Add what the step showed that the pair was chosen for.

        alpha <- decay alpha + (1 - decay) alpha_0 + right, and beta with those not right, as MoPPS
        has it (arXiv:2507.04632); what was not seen lately is forgotten.

        Args:
            outcomes: of each prompt.
            noise: sums over the right rollouts of their `gradient_noise` and of 1, and over the
                wrong ones.
            seconds: of the step.
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
        return replace(
            self,
            steps=self.steps + 1,
            costs=costs,
            posteriors=dict([*posteriors.items()][-LATELY:]),
            noise=[NOISE_DECAY * a + b for a, b in zip(self.noise, noise, strict=True)],
        )


def gradient_noise(logprobs: Sequence[NDArray[np.float32]]) -> Floats:
    """Return a measure of each rollout's squared gradient from its log-probs alone, (n,).

    The gradient of a token's log-prob by the logits has the squared length (1 - pi)^2 + the sum of
    the other tokens' pi^2, so that a rollout of likely tokens moves little. Of that the first part
    is summed, over the squared number of tokens as the loss takes a rollout's mean.

    >>> gradient_noise([np.log([0.5, 0.5]), np.log([1.0, 1.0])]).round(3)
    array([0.125, 0.   ])
    """
    lengths = np.array([len(each) for each in logprobs])
    squares = (1 - np.exp(np.concatenate(logprobs).astype(np.float64))) ** 2
    return np.asarray(np.add.reduceat(squares, np.cumsum(lengths) - lengths) / lengths**2)


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


def expected_progress(menu: Sequence[Pair], posteriors: Floats, noise_ratio: float) -> Floats:
    """Return what a step of each pair is expected to gain, (K,), up to a factor that all share.

    With rewards of 0 and 1, let a share f of the kept rollouts be right. Normalised by their std,
    the advantages weigh the mean gradient of the right rollouts against that of the wrong ones by
    s = sqrt(f (1 - f)), which is the signal. Each right rollout enters with sqrt((1 - f) / f) / m,
    each wrong one with its inverse over m, so that the noise of a group with both kinds is
    (1 - f) noise_ratio + f, over m: **a wrong rollout is less likely, and its gradient longer**, so
    that balancing costs noise where most rollouts are wrong, and saves it where most are right.

    Adam divides a step by the root of its mean square. That holds the noise and the signal, whose
    direction differs from prompt to prompt: progress = E[s] / sqrt(E[s^2] + `NOISE` E[noise]), with
    f as near to 1/2 as the right ones of the group allow (max-variance and balanced rules), and
    their number beta-binomial. The formula is ours; experiments/adaptive holds it against what was
    measured.

    Args:
        menu: (K,) pairs.
        posteriors: (P, 2) alpha and beta of each prompt's success rate.
        noise_ratio: squared gradient of a right rollout over that of a wrong one.

    >>> half = np.array([[1e6, 1e6]])  # nearly all groups are balanced, so only the noise differs
    >>> expected_progress([(64, 16), (256, 64)], half, 1.0).round(3)
    array([0.707, 0.894])
    """
    gains = []
    for n, m in menu:
        right = np.arange(n + 1)
        share = nearest_to_half(n, m, right)
        mixed = (share > 0) & (share < 1)
        chances = beta_binomial(n, posteriors).mean(0)
        variance = share * (1 - share)
        noise = mixed * ((1 - share) * noise_ratio + share) / m
        square = chances @ (variance + NOISE * noise)
        gains.append(chances @ np.sqrt(variance) / np.sqrt(square) if square > 0 else 0.0)
    return np.array(gains)


def nearest_to_half(n: int, m: int, right: NDArray[np.int64]) -> Floats:
    """Return the share of m kept rollouts that is right where it is as near to half as it can be.

    That is what max-variance and balanced rules keep of rewards of 0 and 1.

    Args:
        n: rollouts of a group.
        m: rollouts kept.
        right: right ones of the n, any shape.

    >>> nearest_to_half(8, 4, np.array([0, 1, 4, 7]))
    array([0.  , 0.25, 0.5 , 0.75])
    """
    return np.asarray(np.clip(m // 2, m - (n - right), right) / m)


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
    lists = [*state.costs.values(), *state.posteriors.values()]
    lists += [state.noise, state.seconds, state.progress]
    numbers = [state.pair, state.steps, *(number for one in lists for number in one)]
    if {*map(type, numbers)} - {int, float} or type(state.steps) is not int:
        raise TypeError("adaptive state is not one of numbers")
    return state
