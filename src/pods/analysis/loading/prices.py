"""Prices: what the recorded steps of a study cost elsewhere, in seconds or in money.

What a step computes does not depend on what it costs. So time is a lens through which finished runs
are looked at: their logs say what each step generated and trained on, and a card what that costs.
"""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.loading.study import KEY, Study
from pods.config.price_card import AMOUNTS, CLOCKS, PriceCard

MEASURED_OF_RUNS = ("train_seconds", "budget_seconds", "cpu_share")
"""Columns of `Study.runs` that hold measured times, which prices take the place of."""


def step_cost(card: PriceCard, steps: pd.DataFrame) -> NDArray[np.float64]:
    """Return the (rows,) costs of logged steps, which have the `card.columns`."""
    cost = np.full(len(steps), float(card.per_step))
    for price, column in AMOUNTS.items():
        if getattr(card, price) > 0:
            cost += getattr(card, price) * steps[column].to_numpy(float)
    return cost


def at_prices(study: Study, card: PriceCard) -> Study:
    """Return the study with every clock replaced by what the steps up to there cost.

    The clock is the column `card.clock` of evaluations and steps, which becomes the x; a measured
    time is in none of the tables. The window ends with the first run.

    `ValueError`: a run does not log an amount that has a price, or not every step from the first;
    or one of its steps is free. One line.
    """
    steps = _priced_steps(study, card)
    clocks = steps.set_index(["run", "step"])[card.clock]
    return replace(
        study,
        runs=study.runs.drop(columns=list(MEASURED_OF_RUNS), errors="ignore"),
        evaluations=_priced_evaluations(study, card, clocks),
        steps=steps,
        x=card.clock,
        until=math.inf,
        clock=f"at prices {card.name}",
        prices=asdict(card),
        note=" ".join([study.note, *_notes(study, card)]).strip(),
    )


def _priced_steps(study: Study, card: PriceCard) -> pd.DataFrame:
    """Return the steps of all runs, as they stand, with the clock at their ends."""
    steps = _without_times(study.steps)
    if "trained_tokens" in steps and "trained_rollouts" in steps:
        untrained = steps.trained_rollouts == 0  # whose lines lack the tokens
        steps = steps.assign(trained_tokens=steps.trained_tokens.mask(untrained, 0))
    _check_amounts(study, steps, card)
    in_order = steps.sort_values(["run", "step"], kind="stable")
    numbers = in_order.groupby("run").cumcount() + 1
    gaps = in_order[in_order.step != numbers]
    if len(gaps):
        lacking = f"must log every step from the first, and lacks step {numbers[gaps.index[0]]}"
        raise _refused(card, gaps.iloc[0], lacking)

    costs = pd.Series(step_cost(card, in_order), in_order.index)
    free = in_order[~(costs > 0)]
    if len(free):
        at = free.step.iloc[0]
        raise _refused(card, free.iloc[0], f"must pay for each step, and step {at} is free")
    return steps.assign(**{card.clock: costs.groupby(in_order.run).cumsum()})


def _without_times(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the columns with clocks, and with seconds of phases."""
    measured = table.filter(regex="^(cpu_)?seconds/").columns
    return table.drop(columns=[*CLOCKS.values(), *measured], errors="ignore")


def _check_amounts(study: Study, steps: pd.DataFrame, card: PriceCard) -> None:
    """Raise a `ValueError` if a run does not log an amount that the card has a price for."""
    runs = pd.concat([study.evaluations[KEY], steps[KEY]]).drop_duplicates("run")
    for column in card.columns:
        complete: set[str] = set()
        if column in steps:
            logged = steps[column].notna().groupby(steps.run).all()
            complete = set(logged.index[logged])
        lacking = runs[~runs.run.isin(complete)]
        if len(lacking):
            raise _refused(card, lacking.iloc[0], f"must log {column} of each step")


def _priced_evaluations(study: Study, card: PriceCard, clocks: "pd.Series[float]") -> pd.DataFrame:
    """Return the evaluations with the clock at the end of the step that they belong to."""
    rows = _without_times(study.evaluations)
    ends = clocks.reindex(pd.MultiIndex.from_frame(rows[["run", "step"]])).to_numpy()
    ends = np.where(rows.step == 0, 0.0, ends)
    unknown = rows[np.isnan(ends)]
    if len(unknown):
        at = unknown.step.iloc[0]
        raise _refused(card, unknown.iloc[0], f"must log every step up to its evaluation at {at}")
    rows.insert(list(rows).index("step") + 1, card.clock, ends)
    return rows


def _refused(card: PriceCard, row: "pd.Series[Any]", must: str) -> ValueError:
    """Say what a run, named by a row of a table of its study, lacks for these prices."""
    return ValueError(f"prices={card.name}: {row.series} seed {row.seed} {must}")


def _notes(study: Study, card: PriceCard) -> list[str]:
    """Say by which prices the clock is made, and what they do not cover."""
    what = "Training time" if card.unit == "s" else "Cost"
    notes = [
        f"{what} is what the logged steps cost at prices {card.name}, not what was measured: "
        f"{card.formula()} (fitted to: {card.fitted_to.rstrip('.')}). "
        f"Not covered: {card.does_not_cover.rstrip('.')}."
    ]
    prompts = sorted(set(study.runs.prompts))
    if card.prompts_per_step is not None and prompts != [card.prompts_per_step]:
        notes.append(
            f"The prices are those of prompts_per_step={card.prompts_per_step}, and these runs "
            f"have {' or '.join(map(str, prompts))}."
        )
    return notes
