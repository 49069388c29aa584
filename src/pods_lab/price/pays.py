"""Where an arm pays: its lead over the baseline at equal cost, at any prices of a step.

The recorded steps of a study are looked at as by `pods compare --prices`, first with prices that
differ in r = the price of a rollout that is trained on over that of one that is generated, then in
the share of a step's cost that is fixed, then with each price card.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from pods.analysis.loading.arm_names import default_baseline
from pods.analysis.loading.prices import at_prices, step_cost
from pods.analysis.loading.study import Study
from pods.analysis.numbers.contrasts import choose_arms, choose_pairs, contrast_of
from pods.analysis.numbers.outcomes import values_of
from pods.analysis.numbers.span import window_of
from pods.config.price_card import PriceCard

RATIOS = np.geomspace(0.25, 16, 25)
"""Prices of a trained rollout over a generated one, without a fixed cost. Hosted services ask for
about 1, measured machines took 1.1 to 2.3, and tool calls or long contexts are beyond."""
SHARES = np.linspace(0, 0.95, 20)
"""Fixed shares of what a step of the baseline costs, at the ratio `MIDDLE`."""
MIDDLE = 2.0
OUTCOME = "mean_accuracy"
LINES = {"ratio": "r", "fixed_share": "fixed share"}
"""The lines of the map, and what a point's place on one is called."""


@dataclass(frozen=True)
class Prices:
    """A point of the map."""

    by: str  # which of `LINES` it stands on
    ratio: float
    fixed_share: float

    @property
    def place(self) -> float:
        """Where it stands on its line."""
        return self.ratio if self.by == "ratio" else self.fixed_share


@dataclass(frozen=True)
class Step:
    """The mean amounts of a step of the baseline, over its runs."""

    generated: float
    trained: float


def lead_table(study: Study, cards: Sequence[PriceCard]) -> tuple[pd.DataFrame, list[str]]:
    """Compute the lead of each arm over the baseline at many prices, and at those of each card.

    Returns:
        One row per (prices, arm): by (ratio, fixed_share or card: what the row belongs to), card
        (its name), ratio, fixed_share (of a step of the baseline), series, baseline, runs (pairs,
        or those of the arm), estimate (a fraction), low and high (95 % t interval), end (what the
        span costs, in the prices' unit; a generated rollout costs 1 without a card). And a line
        for each card and each range of prices that does not fit the study: there the span of the
        cheapest arm ends before another one was evaluated; see `window_of`.

    `ValueError`: the study has no baseline, or fits no prices on the lines; see `at_prices`.
    """
    baseline = default_baseline(study)
    if baseline is None:
        raise ValueError(f"study {study.name} has no GRPO arm: choose one with --baseline ARM")
    step = mean_step(study, baseline)
    by_ratio = [Prices("ratio", ratio, 0.0) for ratio in RATIOS]
    by_share = [Prices("fixed_share", MIDDLE, share) for share in SHARES]
    rows = []
    left_out = []
    for line in (by_ratio, by_share):
        drawn, lacking = leads_along(study, baseline, step, line)
        rows += drawn
        left_out += lacking
    if not rows:
        raise ValueError(left_out[0])

    for card in cards:
        try:
            priced = at_prices(study, card)
            facts = {"by": "card", "card": card.name, **place_of(priced, card, baseline)}
            rows += leads(priced, baseline, facts)
        except ValueError as error:
            left_out.append(f"not marked: {error}")
    return pd.DataFrame(rows), left_out


def leads_along(
    study: Study, baseline: str, step: Step, line: Sequence[Prices]
) -> tuple[list[dict[str, object]], list[str]]:
    """Return the leads along a line of prices, as rows of `lead_table`.

    And a text for each range of the line that has none, with the reason at its first point.
    """
    rows = []
    reasons = []  # of each point, "" where there is a lead
    for prices in line:
        try:
            priced = at_prices(study, card_of(step, prices.ratio, prices.fixed_share))
            rows += leads(priced, baseline, {"card": "", **asdict(prices)})
            reasons.append("")
        except ValueError as error:
            reasons.append(str(error))

    left_out = []
    points = zip(line, reasons, strict=True)
    for lacking, some in itertools.groupby(points, key=lambda point: point[1] != ""):
        if lacking:
            apart = list(some)
            first, why = apart[0]
            last, _ = apart[-1]
            where = f"{LINES[first.by]} = {first.place:.3g} to {last.place:.3g}"
            left_out.append(f"not drawn: {where}: {why}")
    return rows, left_out


def mean_step(study: Study, baseline: str) -> Step:
    """Return the mean amounts of a step of the baseline.

    `ValueError`: its runs did not log them.
    """
    rows = study.steps[study.steps.series == baseline]
    for name in ("generated_rollouts", "trained_rollouts"):
        if name not in rows or rows[name].isna().all():
            raise ValueError(
                f"{baseline}: its steps did not log {name}, so that they have no price"
            )
    return Step(float(rows.generated_rollouts.mean()), float(rows.trained_rollouts.mean()))


def card_of(step: Step, ratio: float, fixed_share: float) -> PriceCard:
    """Return prices at which a generated rollout costs 1, a trained one `ratio`.

    What is fixed is this share of the cost of the baseline's step.
    """
    rollouts = step.generated + ratio * step.trained
    return PriceCard(
        name=f"r = {ratio:.3g}",
        unit="s",
        per_step=rollouts * fixed_share / (1 - fixed_share),
        per_generated_rollout=1.0,
        per_trained_rollout=ratio,
        fitted_to="nothing: a point of the map",
        does_not_cover="anything else",
    )


def place_of(priced: Study, card: PriceCard, baseline: str) -> dict[str, float]:
    """Return where a card lies on the map: its ratio and fixed share, by the baseline's steps.

    Prices of tokens count as those of rollouts of the lengths that were logged.
    """
    rows = priced.steps[priced.steps.series == baseline]
    generating_only = replace(card, per_trained_rollout=0.0, per_trained_token=0.0)
    cost = step_cost(card, rows).sum()
    fixed = card.per_step * len(rows)
    generated = step_cost(generating_only, rows).sum() - fixed
    trained = cost - generated - fixed

    per_generated = generated / rows.generated_rollouts.sum()
    per_trained = trained / rows.trained_rollouts.sum()
    return {
        "ratio": float(per_trained / per_generated) if generated > 0 else np.inf,
        "fixed_share": float(fixed / cost),
    }


def leads(priced: Study, baseline: str, facts: dict[str, object]) -> list[dict[str, object]]:
    """Return the lead of each arm over the baseline at some prices, as rows of `lead_table`."""
    curves = choose_arms(priced, ())
    span = window_of(priced, list(itertools.chain.from_iterable(curves.values())))
    rows = []
    for arm, reference in choose_pairs(list(curves), False, baseline):
        contrast = contrast_of(curves[arm], curves[reference], priced.seeded)
        test = contrast.test(
            values_of(OUTCOME, contrast.arm, span), values_of(OUTCOME, contrast.baseline, span)
        )
        rows.append(
            facts
            | contrast.names
            | {
                "runs": len(contrast.arm),
                "estimate": test.estimate,
                "low": test.low,
                "high": test.high,
                "end": span.end,
            }
        )
    return rows
