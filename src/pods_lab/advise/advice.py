"""What a step of n rollouts, m of them kept, costs here and what the law expects of it.

Seconds come from the cost model through the steps of a short pilot, progress from the law of n and
m (`progress.py`) at the success rates of the pilot's prompts.

Shapes: K = pairs (n, m) of the menu, R = pairs of the pilot, N = steps of each, P = prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.loading.rollouts import read_rollouts, rollout_steps
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import reward_terms
from pods.runs.files import read_lines
from pods.runs.store import RunStore
from pods.types import Floats
from pods_lab.advise.progress import MEASURED, expected_progress
from pods_lab.price.model import STEP, CostModel, Pair, coefficient, cost_model, predict

PRIOR = (0.5, 0.5)  # Jeffreys': many prompts are solved always or never
BOOTSTRAP = 1000
BALANCING_RULES = ("max_variance", "balanced")
"""Rules that keep, of rewards of 0 and 1, as near to half right ones as they can."""


@dataclass(frozen=True)
class Pilot:
    """What a pilot measured."""

    seconds: Mapping[Pair, Floats]  # (N,) seconds of each step, by pair
    posteriors: Floats  # (P, 2) alpha and beta of each prompt's success rate
    groups: int  # groups of a step

    def success(self) -> float:
        """Return the mean success rate of the prompts."""
        rates = self.posteriors[:, 0] / self.posteriors.sum(axis=1)
        return float(rates.mean())


@dataclass(frozen=True)
class Price:
    """What a step costs here, without its unit."""

    ratio: float  # of a rollout that is trained on, over one that is generated
    fixed: float  # of a step, in prices of one more rollout generated in each of its groups
    fixed_share: float  # of a step of the first pair


@dataclass(frozen=True)
class Advice:
    """What each pair of a menu costs and is expected to gain."""

    rows: Sequence[Mapping[str, Any]]
    """One row per pair: n, m, time (how the seconds are known: measured, predicted, extrapolated),
    seconds (of a step), progress (of a step, over that of the first pair) and gain (progress per
    second, over that of the first pair). The last three have `_low` and `_high`, the ends of their
    95 % intervals. pays_from and pays_to: the prices of a rollout that is trained on, over one that
    is generated, between which the pair gains more than the first one; NaN: at none."""
    price: Price
    success: float  # mean success rate of the pilot's prompts
    best: int  # row with the largest gain

    @property
    def advised(self) -> int:
        """The row to train with: the best if its interval is above 1, otherwise the first."""
        return self.best if self.rows[self.best]["gain_low"] > 1 else 0


def check_law(config: Config) -> None:
    """Raise a `ConfigError` if the law of n and m does not cover a config."""
    rewards = dict(reward_terms(config.task))
    advantage = config.advantage
    rule = config.sampler.rule
    refused: list[tuple[str, object, str]] = []

    if rule == "all":
        weighed = "`pods advise` compares that with GRPO, which keeps all"
        refused.append(
            ("sampler.rule", rule, f"must keep some of n rollouts (arm=pods): {weighed}")
        )
    elif rule not in BALANCING_RULES:
        refused.append(("sampler.rule", rule, f"must be {' or '.join(BALANCING_RULES)}"))
    if not rewards.keys() <= {"correct", "format"}:
        refused.append(("task.reward", config.task.reward, "must be null, or correct and format"))
    if advantage.baseline != "selected":
        refused.append(("advantage.baseline", advantage.baseline, "must be selected"))
    if advantage.scale != "std":
        refused.append(("advantage.scale", advantage.scale, "must be std"))
    if advantage.function is not None:
        refused.append(("advantage.function", advantage.function, "must be null"))
    if config.group_filter.resamples:
        refused.append(("group_filter.name", config.group_filter.name, "must be none or skip"))
    if config.engine.lag > 0:
        refused.append(("engine.lag", config.engine.lag, "must be 0"))

    if refused:
        key, value, allowed = refused[0]
        raise ConfigError(key, value, f"{allowed}: for others no expected progress is known")


def form_warning(config: Config) -> str | None:
    """Return a warning if part of the reward is for the form of an answer, otherwise None."""
    task = config.task
    if task.reward is None:
        has_form = task.format_reward != "none"
        setting = f"task.format_reward={task.format_reward}"
    else:
        has_form = "format" in dict(reward_terms(task))
        setting = f"task.reward={task.reward}"
    if not has_form:
        return None
    return f"warning: {setting} rewards the form of an answer, but the law takes rewards of 0 and 1"


def read_pilot(stores: Sequence[RunStore]) -> Pilot:
    """Read the seconds of a pilot's steps, and how often each prompt was solved.

    Each run of the pilot has one pair (n, m) and a seed of its own.
    """
    seconds: dict[Pair, Floats] = {}
    rollouts = []
    groups = 0

    for store in stores:
        nm = store.config().nm
        lines = read_lines(store.metrics_path)
        clock = [line["train_seconds"] for line in lines]
        seconds[nm.n, nm.m] = np.diff(clock, prepend=0.0)
        rollouts += [read_rollouts(store.folder, step) for step in rollout_steps(store.folder)]
        groups = len(lines[0]["prompts"])

    solved = pd.concat(rollouts).groupby("problem").correct
    right = solved.sum().to_numpy(np.float64)
    drawn = solved.count().to_numpy(np.float64)
    posteriors = np.stack([right, drawn - right], axis=1) + PRIOR
    return Pilot(seconds=seconds, posteriors=posteriors, groups=groups)


def cost_weights(pilot: Sequence[Pair], menu: Sequence[Pair]) -> Floats:
    """Return (K, R) weights of the pilot's pairs in the predicted seconds of the menu's pairs.

    The cost model is linear in what it is fitted to, so column r is what it predicts if a step of
    the pilot's pair r takes one second, and one of the others none.

    >>> cost_weights([(16, 16), (64, 16), (64, 64)], [(32, 16)]).round(3)
    array([[0.667, 0.333, 0.   ]])
    """
    columns = []
    for seconds in np.eye(len(pilot)):
        model = _cost_model(pilot, seconds)
        columns.append([predict(model, n, m).seconds for n, m in menu])
    return np.array(columns).T


def _cost_model(pairs: Sequence[Pair], seconds: Floats) -> CostModel:
    """Fit the cost model to the seconds of a step of each pair, (R,), for a single prompt."""
    n, m = np.array(pairs).T
    runs = {"n": n, "m": m, "prompts": 1, "generated": n, "kept": m, "seconds": seconds}
    return cost_model(pd.DataFrame(runs))


def price_here(pilot: Mapping[Pair, Floats], first: Pair) -> Price:
    """Return the prices of a step, by the cost model through the median of each pair's steps.

    NaN: the pilot's times are so noisy that a price came out below 0.
    """
    medians = np.array([np.median(seconds) for seconds in pilot.values()])
    model = _cost_model(list(pilot), medians)
    fixed, generated, trained = [coefficient(model, term)[0] for term in STEP]
    if fixed < 0 or generated <= 0 or trained <= 0:
        return Price(np.nan, np.nan, np.nan)
    return Price(
        ratio=trained / generated,
        fixed=fixed / generated,
        fixed_share=fixed / predict(model, *first).seconds,
    )


def pays(pair: Pair, first: Pair, progress: float, fixed: float) -> tuple[float, float]:
    """Return the prices of a trained rollout, over a generated one, between which a pair pays.

    A step of a pair (n, m) costs `fixed` + n + r m at the price r. The pair pays if its `progress`,
    over that of the first pair, is above the ratio of their costs. NaN and NaN: it pays at none, or
    that is unknown.

    >>> pays((64, 16), (16, 16), 2.0, 0.0)  # 64 + 16 r < 2 (16 + 16 r)
    (2.0, inf)
    >>> pays((16, 8), (16, 16), 0.75, 0.0)  # 16 + 8 r < 0.75 (16 + 16 r)
    (1.0, inf)
    """
    if np.isnan(fixed):
        return np.nan, np.nan

    n, m = pair
    cost_of_more = n + fixed - progress * (first[0] + fixed)
    slope = progress * first[1] - m
    if slope == 0:
        return (0.0, np.inf) if cost_of_more < 0 else (np.nan, np.nan)

    bound = cost_of_more / slope
    if slope > 0:
        return max(bound, 0.0), np.inf
    return (0.0, bound) if bound > 0 else (np.nan, np.nan)


def advise(menu: Sequence[Pair], pilot: Pilot, seed: int) -> Advice:
    """Compare each pair of a menu with its first one.

    The seconds of a pair are those of the cost model through the median of each pilot pair's steps.
    Intervals are percentiles over resamples of the prompts and of the pilot's steps. An error of
    the law, or of its constants `MEASURED`, is not in them.
    """
    measured = list(pilot.seconds)
    weights = cost_weights(measured, menu)

    def costs(steps: Sequence[Floats]) -> Floats:
        """Return the seconds of a step of each pair, (K,), from the steps of each pilot pair."""
        predicted = weights @ np.array([np.median(seconds) for seconds in steps])
        return np.where(predicted > 0, predicted, np.nan)  # a plane may go below 0

    def progress(posteriors: Floats) -> Floats:
        """Return the progress of a step of each pair, (K,), over that of the first one."""
        expected = expected_progress(menu, posteriors, MEASURED, pilot.groups)
        return np.asarray(expected / expected[0])

    steps = list(pilot.seconds.values())
    seconds = costs(steps)
    expected = progress(pilot.posteriors)
    gain = expected * seconds[0] / seconds

    rng = np.random.default_rng(seed)
    drawn: dict[str, list[Floats]] = {"seconds": [], "progress": [], "gain": []}
    for _ in range(BOOTSTRAP):
        cost = costs([rng.choice(values, len(values)) for values in steps])
        gained = progress(rng.choice(pilot.posteriors, len(pilot.posteriors)))
        drawn["seconds"].append(cost)
        drawn["progress"].append(gained)
        drawn["gain"].append(gained * cost[0] / cost)

    table = pd.DataFrame(menu, columns=["n", "m"])
    table["time"] = [_basis(pair, measured) for pair in menu]
    _add(table, "seconds", seconds, drawn["seconds"])
    _add(table, "progress", expected, drawn["progress"])
    _add(table, "gain", gain, drawn["gain"])

    price = price_here(pilot.seconds, menu[0])
    pairs = zip(menu, expected, strict=True)
    ranges = [pays(pair, menu[0], gained, price.fixed) for pair, gained in pairs]
    table["pays_from"], table["pays_to"] = zip(*ranges, strict=True)
    return Advice(
        rows=_records(table),
        price=price,
        success=pilot.success(),
        best=int(np.nanargmax(gain)),
    )


def _add(table: pd.DataFrame, name: str, values: Floats, drawn: Sequence[Floats]) -> None:
    """Add a column with the ends of its 95 % interval, from values that were drawn."""
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    table[name] = values
    table[f"{name}_low"] = low
    table[f"{name}_high"] = high


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _basis(pair: Pair, pilot: Sequence[Pair]) -> str:
    """Say how the seconds of a pair are known: measured, or predicted within or beyond that."""
    if pair in pilot:
        return "measured"
    n, m = zip(*pilot, strict=True)
    within = min(n) <= pair[0] <= max(n) and min(m) <= pair[1] <= max(m)
    return "predicted" if within else "extrapolated"
