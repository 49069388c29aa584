"""Where an arm pays: its lead over the baseline at equal cost, at any prices of a step.

The recorded steps of a study are looked at as by `pods compare --prices`, first with prices that
differ in r = the price of a rollout that is trained on over that of one that is generated, then in
the share of a step's cost that is fixed, then with each price card.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pods.analysis.loading.arm_names import default_baseline
from pods.analysis.loading.prices import PriceCard, at_prices
from pods.analysis.loading.study import Study
from pods.analysis.numbers.contrasts import choose_arms, choose_pairs, contrast_of
from pods.analysis.numbers.outcomes import values_of
from pods.analysis.numbers.span import window_of

RATIOS = np.geomspace(0.25, 16, 25)
"""Prices of a trained rollout over a generated one, without a fixed cost. Hosted services ask for
about 1, measured machines took 1.1 to 2.3, and tool calls or long contexts are beyond."""
SHARES = np.linspace(0, 0.95, 20)
"""Fixed shares of what a step of the baseline costs, at the ratio `MIDDLE`."""
MIDDLE = 2.0
OUTCOME = "mean_accuracy"


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
        for each card that does not fit the study, and for the prices at which the span of the
        cheapest arm ends before another one was evaluated.

    `ValueError`: the study has no baseline, or no price fits it; see `at_prices` and `window_of`.
    """
    baseline = default_baseline(study)
    if baseline is None:
        raise ValueError(f"study {study.name} has no GRPO arm: choose one with --baseline ARM")
    rows, left_out = leads_along(study, baseline, "ratio", [(ratio, 0.0) for ratio in RATIOS])
    by_share = leads_along(study, baseline, "fixed_share", [(MIDDLE, share) for share in SHARES])
    rows += by_share[0]
    left_out += by_share[1]

    for card in cards:
        try:
            priced = at_prices(study, card)
            facts = {"by": "card", "card": card.name, **place_of(priced, card, baseline)}
            rows += leads(priced, baseline, facts)
        except ValueError as error:
            left_out.append(f"not marked: {error}")
    return pd.DataFrame(rows), left_out


def leads_along(
    study: Study, baseline: str, by: str, points: Sequence[tuple[float, float]]
) -> tuple[list[dict[str, object]], list[str]]:
    """Return the leads along one line of the map, over points of (ratio, fixed share).

    Returns:
        Rows of `lead_table`, and at most one line: at which points there is no lead, and why.

    `ValueError`: there is none at any point.
    """
    step = mean_step(study, baseline)
    rows = []
    reasons: dict[float, str] = {}  # by the place on the line
    for ratio, share in points:
        place = ratio if by == "ratio" else share
        facts = {"by": by, "card": "", "ratio": ratio, "fixed_share": share}
        try:
            rows += leads(at_prices(study, card_of(step, ratio, share)), baseline, facts)
        except ValueError as error:
            reasons[place] = str(error)

    if not reasons:
        return rows, []
    first = next(iter(reasons.values()))
    if not rows:
        raise ValueError(first)
    places = ", ".join(f"{place:.2g}" for place in reasons)
    name = "r" if by == "ratio" else "fixed share"
    return rows, [f"not drawn: {name} = {places}: {first}"]


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
    cost = card.step_cost(rows).sum()
    fixed = card.per_step * len(rows)
    generated = generating_only.step_cost(rows).sum() - fixed
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
