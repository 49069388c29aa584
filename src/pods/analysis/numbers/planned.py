"""Judge the contrasts of a study's plan, at any time: what is decided, and what is open.

A contrast looks at the seeds in their order, after each one anew, and is decided at the first look
at which its interval lets it be. The looks are a function of finished runs alone: the first seed
without a complete run of both arms ends them, so that a missing, failed or NaN run is never a
decision.

Shapes: U = units so far (seeds, or start policies).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pods.analysis.loading.arm_names import curves_named
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.series_names import START
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import RunCurve, run_curves, title_of, values_of
from pods.analysis.numbers.sequential import interval_at_every_look, state_of, units_to_decide
from pods.analysis.numbers.span import window_of
from pods.analysis.numbers.statistics import ALPHA
from pods.config.plan import PlanConfig, Question
from pods.runs.plan import Registered
from pods.types import Floats

Pairs = dict[tuple[str, int], tuple[RunCurve, RunCurve]]
"""The runs of both arms by (start, seed)."""
Place = Callable[[tuple[str, int]], Any]
"""Returns the unit that a pair of runs belongs to."""


@dataclass(frozen=True)
class Judgement:
    """What the runs say of a contrast."""

    question: Question
    title: str
    """Of the outcome, such as mean accuracy."""
    curves: list[str]
    """The names of both arms' curves; none: they are not there."""
    units: int
    """Units at the look that decided, or at the last one."""
    estimate: float
    """Mean difference of those units, a fraction; NaN without any."""
    low: float
    high: float
    state: str  # ahead, behind, equal or open
    needed: int | None
    """Units that would probably decide, if it is open; None: unknown, or too many."""
    why: str
    """What keeps the next unit from being looked at; "": nothing."""


def judgements_of(study: Study) -> list[Judgement]:
    """Judge every contrast of a study's newest plan; there are none without a plan."""
    return judge(study, study.plans[-1]) if study.plans else []


def judge(study: Study, registered: Registered) -> list[Judgement]:
    """Judge every contrast of a plan by the runs of its study, which is as it was loaded."""
    return [_judge(study, registered, one) for one in registered.questions]


def _judge(study: Study, registered: Registered, one: Question) -> Judgement:
    try:
        return _look(study, registered, one)
    except ValueError as error:  # an arm has no runs, or its runs cannot be seen at these prices
        title = title_of(registered.plan.outcome, study)
        return Judgement(one, title, [], 0, np.nan, -np.inf, np.inf, "open", None, str(error))


def _look(study: Study, registered: Registered, one: Question) -> Judgement:
    """Look at one contrast after each unit, until it is decided or no further unit is complete."""
    plan = registered.plan
    card = None if one.prices is None else registered.prices[one.prices]
    filtered = apply_filter(study, StudyFilter(x=plan.x, prices=card))
    seen = replace(filtered, metric=study.metric)  # which others' runs call by their own name
    arm = _by_start(seen, one.arm)
    baseline = _by_start(seen, one.baseline)
    curves = [*arm.values(), *baseline.values()]
    pairs, why = _complete_pairs(seen, plan, arm, baseline)
    alpha = ALPHA / len(plan.contrasts)
    margin = plan.margin / seen.scale
    values = np.array([])
    low, high, state = -np.inf, np.inf, "open"
    place = _seed_of if plan.unit == "seed" or seen.own_starts else _start_of
    for some in _looks(pairs, place):
        values = _differences(seen, plan, some, place)
        if np.isnan(values).any():
            why = "a run has a value that is no number"
            break
        low, high = interval_at_every_look(values, alpha)
        state = state_of(low, high, margin)
        if state != "open":
            break

    return Judgement(
        question=one,
        title=title_of(plan.outcome, seen),
        curves=curves,
        units=len(values),
        estimate=float(values.mean()) if len(values) else np.nan,
        low=low,
        high=high,
        state=state,
        needed=units_to_decide(values, alpha, margin) if state == "open" else None,
        why=why if state == "open" else "",
    )


def _by_start(study: Study, arm: str) -> dict[str, str]:
    """Return the curves of an arm by their start policy; "" if all runs have the same.

    `ValueError`: there is none, or several have the same start.
    """
    keys = [key for key in START if key in study.runs]
    about = study.runs.drop_duplicates("series").set_index("series")
    curves: dict[str, str] = {}
    for name in curves_named(study, arm):
        start = ", ".join(str(about.loc[name, key]) for key in keys)
        if start in curves:
            raise ValueError(f"arm {arm!r} is ambiguous: {curves[start]} | {name}")
        curves[start] = name
    return curves


def _complete_pairs(
    study: Study, plan: PlanConfig, arm: dict[str, str], baseline: dict[str, str]
) -> tuple[Pairs, str]:
    """Return the pairs of runs before the first seed that is not complete, and why it is not.

    Of start policies it is the pairs of all seeds, since each start has one difference.
    """
    runs = {name: _by_seed(study, name) for name in (*arm.values(), *baseline.values())}
    starts = list(dict.fromkeys([*arm, *baseline]))
    pairs: Pairs = {}
    for seed in study.seeds:
        if seed in plan.without:
            continue
        of_seed: Pairs = {}
        for start in starts:
            for side in (arm, baseline):
                name = side.get(start)
                if name is None:
                    return pairs, f"one of both arms has no runs of {start}"
                if seed not in runs[name]:
                    return pairs, f"{name} has no complete run of seed {seed}"
            of_seed[start, seed] = runs[arm[start]][seed], runs[baseline[start]][seed]
        pairs |= of_seed
    return pairs, ""


def _by_seed(study: Study, name: str) -> dict[int, RunCurve]:
    return {curve.seed: curve for curve in run_curves(study, name)}


def _looks(pairs: Pairs, place: Place) -> Iterator[Pairs]:
    """Yield the pairs at each look: those of one seed more, or of one start policy more."""
    units = list(dict.fromkeys(place(key) for key in pairs))
    for count in range(1, len(units) + 1):
        among = set(units[:count])
        yield {key: pair for key, pair in pairs.items() if place(key) in among}


def _seed_of(key: tuple[str, int]) -> int:
    return key[1]


def _start_of(key: tuple[str, int]) -> str:
    return key[0]


def _differences(study: Study, plan: PlanConfig, pairs: Pairs, place: Place) -> Floats:
    """Return the (U,) differences of both arms, each averaged over the pairs of its unit."""
    arm = [pair[0] for pair in pairs.values()]
    baseline = [pair[1] for pair in pairs.values()]
    span = window_of(study, [*arm, *baseline])
    differences = values_of(plan.outcome, arm, span) - values_of(plan.outcome, baseline, span)

    of_units: dict[Any, list[float]] = {}
    for key, difference in zip(pairs, differences, strict=True):
        of_units.setdefault(place(key), []).append(float(difference))
    return np.array([np.mean(values) for values in of_units.values()])


def open_curves(judgements: Sequence[Judgement]) -> set[str]:
    """Return the names of the curves that an open contrast is about."""
    names: set[str] = set()
    for judgement in judgements:
        if judgement.state == "open":
            names |= set(judgement.curves)
    return names
