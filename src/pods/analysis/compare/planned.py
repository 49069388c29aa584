"""Say what a study's plan asked, what was expected, and what came out."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from pods.analysis.compare.text import interval_text, shown_difference
from pods.analysis.loading.study import Study
from pods.analysis.numbers.planned import Judgement
from pods.config.plan import PlanConfig, question
from pods.runs.plan import Registered, changes

NO_PLAN = "no plan: what follows explores"
EXPLORES = "not in the plan, so that it explores:"
SHOWN_DIGITS = 12  # of a plan's hash


def planned_lines(study: Study, judgements: Sequence[Judgement]) -> list[str]:
    """Return a line for the first plan, one for each contrast of the newest, one for each change.

    The study is as it was loaded: a plan chose its own outcome, x and prices before the runs.
    Judgements are those of its newest plan (`judgements_of`), in its order.
    """
    if not study.plans:
        return [NO_PLAN]
    newest = study.plans[-1]
    lines = [_heading(study.plans[0])]
    for text, judgement in zip(newest.plan.contrasts, judgements, strict=True):
        asked_after = _runs_before(study.plans, text)
        lines.append(_sentence(judgement, newest.plan, asked_after, study))
    lines += changes(study.plans)
    if newest.plan.without:
        seeds = ", ".join(map(str, newest.plan.without))
        lines.append(f"left out by the plan: seed {seeds}")
    return lines


def plan_table(study: Study, judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Return a row per contrast of the newest plan of a study, which has one.

    Judgements are those of that plan, in its order.

    Its columns are contrast, expected, expected_low and expected_high (in points), asked_after
    (runs that had begun when it was asked), state (ahead, behind, equal or open), units (seeds, or
    start policies), estimate, low and high (a fraction, and the interval that holds at every look
    over all contrasts; infinite until there is one), needed (units that would probably decide it),
    and why (what keeps an open contrast from its next look).
    """
    rows = []
    for text, judgement in zip(study.plans[-1].plan.contrasts, judgements, strict=True):
        asked = judgement.question
        rows.append(
            {
                "contrast": str(asked),
                "expected": asked.expected,
                "expected_low": asked.low,
                "expected_high": asked.high,
                "asked_after": _runs_before(study.plans, text),
                "state": judgement.state,
                "units": judgement.units,
                "estimate": judgement.estimate,
                "low": judgement.low,
                "high": judgement.high,
                "needed": judgement.needed,
                "why": judgement.why,
            }
        )
    return pd.DataFrame(rows)


def _heading(registered: Registered) -> str:
    digits = registered.sha256[:SHOWN_DIGITS]
    if not registered.time:
        return f"plan {digits}, of which nothing tells if it was made before the runs:"
    when = f"after {registered.runs} runs had begun" if registered.runs else "before the first run"
    return f"plan {digits} of {registered.time}, {when}:"


def _runs_before(plans: Sequence[Registered], text: str) -> int:
    """Return how many runs had begun when a contrast was asked as it is asked now."""
    newest = plans[-1]
    first = newest
    for registered in reversed(plans):
        if text not in registered.plan.contrasts:
            break
        if _measure(registered, text) != _measure(newest, text):
            break
        first = registered
    return first.runs


def _measure(registered: Registered, text: str) -> tuple[object, ...]:
    """Return what makes the same contrast another question."""
    plan = registered.plan
    card = question(text).prices
    prices = None if card is None else registered.prices[card]
    return plan.outcome, plan.x, plan.unit, plan.margin, plan.without, prices


def _sentence(judgement: Judgement, plan: PlanConfig, asked_after: int, study: Study) -> str:
    """Say whether a contrast is settled, with its interval and what was expected."""
    title = judgement.title[0].upper() + judgement.title[1:]
    text = f"{title}: {judgement.question}"
    units = _count(judgement.units, plan.unit)
    if judgement.state == "open":
        text += f" is open after {units}"
    elif asked_after:
        text += f" was asked after {asked_after} runs had begun, and is decided after {units}"
    else:
        text += f" is settled after {units}"

    if judgement.units:
        text += f": {_difference(judgement, plan, study)}"
    parts = [text, *_what_is_missing(judgement, plan), *_what_was_expected(judgement)]
    return f"{'; '.join(parts)}."


def _count(units: int, unit: str) -> str:
    name = "seed" if unit == "seed" else "start policy"
    plural = "seeds" if unit == "seed" else "start policies"
    return f"1 {name}" if units == 1 else f"{units} {plural}"


def _difference(judgement: Judgement, plan: PlanConfig, study: Study) -> str:
    """Give the difference, and the interval that is valid at every look."""
    size = shown_difference(abs(judgement.estimate), study)
    side = {"ahead": "ahead", "behind": "behind"}.get(judgement.state)
    if side is None:
        side = "below" if judgement.estimate < 0 else "above"
    text = f"{size} {side}"
    if judgement.state == "equal":
        text = f"equal within {plan.margin:g} {study.difference_unit} ({text}"
    else:
        text += " ("

    if math.isinf(judgement.low):
        return text + "no interval yet)"
    count = len(plan.contrasts)
    level = "95 %" if count == 1 else f"95 % over {count} contrasts"
    between = interval_text(judgement.estimate, judgement.low, judgement.high, study)
    separator = "; " if judgement.state == "equal" else ""
    return f"{text}{separator}{level}: {between})"


def _what_is_missing(judgement: Judgement, plan: PlanConfig) -> Iterator[str]:
    if judgement.why:
        yield judgement.why
    if judgement.needed is not None:
        more = judgement.needed - judgement.units
        text = f"about {_count(more, plan.unit).replace(' ', ' more ', 1)} would decide it"
        if plan.unit == "seed" and plan.seeds is not None and judgement.needed > plan.seeds:
            text += f", but the plan ends at {_count(plan.seeds, plan.unit)}"
        yield text


def _what_was_expected(judgement: Judgement) -> Iterator[str]:
    """Say what was expected, and whether that came out."""
    asked = judgement.question
    if asked.expected is None:
        return
    text = f"expected {asked.expected}"
    if asked.low is not None:
        text += f" by {asked.low:g} to {asked.high:g}"

    if judgement.state == "open":
        yield text
    elif judgement.state != asked.expected:
        yield f"{text}, which failed"
    elif asked.low is None or _is_in_range(judgement):
        yield f"{text}, and so it is"
    else:
        yield f"{text}: the side is right and the size is not"


def _is_in_range(judgement: Judgement) -> bool:
    asked = judgement.question
    if asked.low is None or asked.high is None:
        return True
    points = 100 * abs(judgement.estimate)
    return asked.low <= points <= asked.high
