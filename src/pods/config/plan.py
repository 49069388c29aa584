"""What a study asks before its runs: contrasts between arms, in words, and what is expected."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pods.config.key import Amount, Count, Text, Whole, operational

NUMBER = r"\d+(?:\.\d+)?"
QUESTION = re.compile(
    r"(?P<arm>[^:]+?) over (?P<baseline>[^:]+?)"
    rf"(?:: (?P<expected>ahead|behind|equal)(?: by (?P<low>{NUMBER}) to (?P<high>{NUMBER}))?)?"
    r"(?: at (?P<prices>\S+))?"
)
FORM = "ARM over BASELINE[: ahead|behind|equal [by LOW to HIGH]] [at PRICES]"


@dataclass
class PlanConfig:
    """What the study asks; it is written into the study's folder before its first run."""

    contrasts: Annotated[list[Text], operational(f"each {FORM}; none: the study has no plan")]
    outcome: Annotated[
        Literal["mean_accuracy", "final_accuracy"], operational("what is compared, of each run")
    ]
    x: Annotated[
        Literal["train_seconds", "steps"],
        operational("what runs are compared at, if a contrast names no prices"),
    ]
    unit: Annotated[
        Literal["seed", "start"],
        operational("what counts once: a seed, or a start policy (model.path, model.hub)"),
    ]
    margin: Annotated[Amount, operational("points of a difference that count as equal")]
    seeds: Annotated[Count | None, operational("the most seeds of an arm; null: no limit")]
    without: Annotated[list[Whole], operational("seeds that are left out, as if never run")]
    stop: Annotated[
        Literal["seeds", "decided"],
        operational("decided: an arm gets no further seed once its contrasts are decided"),
    ]


@dataclass(frozen=True)
class Question:
    """One contrast of a plan."""

    arm: str
    baseline: str
    expected: str | None  # ahead, behind or equal
    low: float | None
    """The difference is expected to be at least so large, in points."""
    high: float | None
    prices: str | None  # the card by which time is made

    def __str__(self) -> str:
        """Return the contrast without what is expected."""
        text = f"{self.arm} over {self.baseline}"
        return text if self.prices is None else f"{text} at {self.prices}"


def question(text: str) -> Question:
    """Read a contrast.

    `ValueError`: it has another form, or its range has no length.

    >>> question("pods over grpo: ahead by 0.5 to 2 at l40s").high
    2.0
    """
    match = QUESTION.fullmatch(text.strip().replace("→", "->"))
    if match is None:
        raise ValueError(f"must be {FORM}")
    found = match.groupdict()
    low = None if found["low"] is None else float(found["low"])
    high = None if found["high"] is None else float(found["high"])
    if low is not None and high is not None and low >= high:
        raise ValueError(f"must give a range from a lower to a higher number, not {low} to {high}")
    return Question(found["arm"], found["baseline"], found["expected"], low, high, found["prices"])


def refusals(plan: PlanConfig, read_card: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield each key of a plan whose value is not allowed, with what is allowed.

    `read_card` reads a card of prices, or raises a `ValueError` that says what is wrong with it. It
    is handed in since it stands on the schema, which has plans.
    """
    asked = []
    for text in plan.contrasts:
        try:
            asked.append(question(text))
        except ValueError as error:
            yield "plan.contrasts", f"{text!r} {error}"
            return

    different = {str(one) for one in asked}
    if len(different) < len(asked):
        yield "plan.contrasts", "must ask each contrast once"
    for one in asked:
        if one.arm == one.baseline:
            yield "plan.contrasts", f"{one}: must be of two arms"

    for name in dict.fromkeys(one.prices for one in asked if one.prices is not None):
        try:
            read_card(name)
        except ValueError as error:
            yield "plan.contrasts", str(error)

    if plan.x == "steps" and any(one.prices for one in asked):
        yield "plan.x", "must be train_seconds if a contrast has prices, which make them"
    if plan.stop == "decided":
        yield from _stopping(plan, asked)


def _stopping(plan: PlanConfig, asked: Sequence[Question]) -> Iterator[tuple[str, str]]:
    if not asked:
        yield "plan.stop", "must be seeds without plan.contrasts: nothing would be decided"
    if plan.unit == "start":
        yield "plan.stop", "must be seeds if plan.unit=start: each start needs all of its seeds"
