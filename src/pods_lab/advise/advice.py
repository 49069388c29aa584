"""Which n and m gain most per second on a machine, from the steps of a short pilot.

Seconds come from the cost model through the pilot's steps, progress from the formula of the
adaptive arm at the success rates of the pilot's prompts.

Shapes: K = pairs (n, m) of the menu, R = pairs of the pilot, N = steps of each, P = prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.loading.rollouts import read_rollouts, rollout_steps
from pods.analysis.numbers.statistics import Floats
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import reward_terms
from pods.method.adaptive import PRIOR
from pods.method.noise_scale import estimates, with_interval
from pods.method.progress import MEASURED, GradientScales, Pair, expected_progress
from pods.runs.files import read_lines
from pods.runs.store import RunStore
from pods_lab.plan.model import cost_model, predict

BOOTSTRAP = 1000
RATES = np.arange(1, 1000) / 1000  # common success rates at which pairs are compared
CERTAIN = 1e6  # rollouts from which such a rate is taken to be known
LATER = 0.95  # success rate towards the end of a course
NOISE, SHARED, RATIO = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (0.0, 0.15, 0.3, 0.6), (0.0, 0.25, 1.0)
UNKNOWN = [MEASURED, *starmap(GradientScales, product(NOISE, SHARED, RATIO))]
"""Scales, all of them alike, of a pilot that does not show them; the likeliest first."""


@dataclass(frozen=True)
class Pilot:
    """What a pilot measured: (N,) seconds of each step of each pair, (P, 2) alpha and beta of each
    prompt's success rate, as the adaptive arm has them, (D, 3) scales of its gradients as
    `estimates` has them, and the groups of a step."""

    seconds: Mapping[Pair, Floats]
    posteriors: Floats
    scales: Floats
    groups: int


@dataclass(frozen=True)
class Advice:
    """What each pair of a menu is expected to gain over the first one."""

    rows: Sequence[Mapping[str, Any]]
    """Of each pair: n, m, time (how the seconds are known: measured, predicted, extrapolated),
    seconds (of a step) and gain (progress per second over that of the first pair), each with the
    `_low` and `_high` of its 95 % interval, and pays_below and pays_above: it gains at common
    success rates below the one or above the other."""
    success: float  # mean success rate of the pilot's prompts
    scales: Mapping[str, Sequence[float]]  # of its gradients, with intervals; empty where unknown
    best: int  # row that gains most at the pilot's success rates
    later: int  # row that gains most at the common success rate `LATER`

    @property
    def advised(self) -> int:
        """The row to begin with: the best, if it is settled that it gains."""
        return self.best if self.rows[self.best]["gain_low"] > 1 else 0

    def changes(self) -> bool:
        """Return whether another pair becomes the best while the policy learns."""
        return self.success < LATER and self.advised != self.later


def check_formula(config: Config) -> None:
    """Raise a ConfigError unless the expected progress of a config is known."""
    correct = {"correct", "format"}.issuperset(name for name, _ in reward_terms(config.task))
    how = config.advantage
    for key, value, holds, allowed in (
        ("task.reward", config.task.reward, correct, "must be null, or correct and format"),
        ("advantage.baseline", how.baseline, how.baseline == "selected", "must be selected"),
        ("advantage.scale", how.scale, how.scale == "std", "must be std"),
        ("advantage.function", how.function, how.function is None, "must be null"),
    ):
        if not holds:
            raise ConfigError(key, value, f"{allowed}: of others no expected progress is known")


def read_pilot(store: RunStore) -> Pilot:
    """Read the seconds of a pilot's steps, and how often each prompt was solved."""
    lines, menu = read_lines(store.metrics_path), store.config().nm.pairs()
    seconds = np.diff([0.0, *(line["train_seconds"] for line in lines)])
    pairs = [menu[line["adaptive/pair"]] for line in lines]
    steps = [read_rollouts(store.folder, step) for step in rollout_steps(store.folder)]
    solved = pd.concat(steps).groupby("problem").correct
    right, rollouts = solved.sum().to_numpy(np.float64), solved.count().to_numpy(np.float64)
    return Pilot(
        {pair: seconds[[taken == pair for taken in pairs]] for pair in dict.fromkeys(menu)},
        np.stack([right, rollouts - right], axis=1) + PRIOR,
        estimates([line.get("norms", ()) for line in lines]),
        len(lines[0]["prompts"]),
    )


def cost_weights(pilot: Sequence[Pair], menu: Sequence[Pair]) -> Floats:
    """Return (K, R) weights of the pilot's pairs in the predicted seconds of the menu's pairs.

    The cost model is linear in what it is fitted to, so column r is what it predicts where a step
    of the pilot's pair r takes one second, and one of the others none.

    >>> cost_weights([(16, 16), (64, 16), (64, 64)], [(32, 16)]).round(3)
    array([[0.667, 0.333, 0.   ]])
    """
    n, m = np.array(pilot).T
    runs = pd.DataFrame({"n": n, "m": m, "prompts": 1, "generated": n, "kept": m})
    models = [cost_model(runs.assign(seconds=row)) for row in np.eye(len(pilot))]
    return np.array([[predict(model, *pair).seconds for model in models] for pair in menu])


def advise(menu: Sequence[Pair], pilot: Pilot, seed: int) -> Advice:
    """Weigh each pair of a menu against its first one.

    The seconds of a pair are those of the cost model through the median of each pilot pair's steps.
    Intervals are percentiles over resamples of the prompts and of the rounds of the pilot, in each
    of which every pair took a step, and over the scales of its gradients: what was estimated, or
    where nothing was, `UNKNOWN`.
    """
    weights, rng = cost_weights([*pilot.seconds], menu), np.random.default_rng(seed)
    measured, rates = np.array([*pilot.seconds.values()]), pilot.posteriors
    scales = [GradientScales(*each) for each in pilot.scales.tolist()] or UNKNOWN

    def costs(rounds: Floats) -> Floats:
        found = weights @ np.median(rounds, axis=1)
        return np.where(found > 0, found, np.nan)  # a plane may reach what no step can take

    def gain(prompts: Floats, seconds: Floats, of: GradientScales = scales[0]) -> Floats:
        per_second = expected_progress(menu, prompts, of, pilot.groups) / seconds
        return np.asarray(per_second / per_second[0])

    drawn_costs, drawn_gains = [], []
    for _ in range(BOOTSTRAP):
        rounds = rng.integers(measured.shape[1], size=measured.shape[1])
        drawn_costs.append(costs(measured[:, rounds]))
        prompts = rates[rng.integers(len(rates), size=len(rates))]
        drawn_gains.append(gain(prompts, drawn_costs[-1], scales[rng.integers(len(scales))]))
    seconds = costs(measured)
    at_rate = np.array([gain(np.array([[r, 1 - r]]) * CERTAIN, seconds) for r in RATES])
    ends = np.array([_pays(column > 1) for column in at_rate.T])
    table = pd.DataFrame(menu, columns=["n", "m"]).assign(
        time=[_basis(pair, [*pilot.seconds]) for pair in menu],
        **_with_interval("seconds", seconds, drawn_costs),
        **_with_interval("gain", gain(rates, seconds), drawn_gains),
        pays_below=ends[:, 0],
        pays_above=ends[:, 1],
    )
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    success, later = float((rates[:, 0] / rates.sum(1)).mean()), np.searchsorted(RATES, LATER)
    best = (int(np.nanargmax(gains)) for gains in (table.gain, at_rate[later]))
    return Advice(rows, success, with_interval(pilot.scales), *best)


def _basis(pair: Pair, pilot: Sequence[Pair]) -> str:
    """Say how the seconds of a pair are known: measured, or predicted within or beyond that."""
    sizes = [*zip(*pilot, strict=True)]
    within = all(min(of) <= size <= max(of) for size, of in zip(pair, sizes, strict=True))
    return "measured" if pair in pilot else "predicted" if within else "extrapolated"


def _with_interval(name: str, value: Floats, drawn: Sequence[Floats]) -> dict[str, Floats]:
    """Return columns with a value and its percentiles; NaN where some resample has no number."""
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _pays(gains: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the success rates below and above which a pair gains; 0 and 1 where it never does."""
    rates, failing = np.array([0.0, *RATES, 1.0]), np.flatnonzero(~gains)
    return (rates[failing[0]], rates[failing[-1] + 2]) if len(failing) else (1.0, 0.0)
