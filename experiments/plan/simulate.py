"""Simulate studies with a plan of three contrasts, of which the truth is known.

    python experiments/plan/simulate.py

Three arms are compared with a fourth, so that the contrasts share its luck. After each seed the
plan is judged as `plan.stop=decided` does. Beside it stand fixed numbers of seeds, tested at the
end by the paired t test with Holm's correction. It writes simulated.csv.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.numbers.sequential import interval_at_every_look, state_of
from pods.analysis.numbers.statistics import ALPHA, holm, t_test
from pods.types import Floats

STUDIES = 1000
CONTRASTS = 3
MOST_SEEDS = 32
EFFECTS = (0.0, 0.5, 1.0, 2.0, 3.0)  # true differences, in standard deviations of a difference
MARGINS = (0.0, 1.0)  # what counts as equal, in the same unit
FIXED = (8, 16)
OUT = Path(__file__).with_name("simulated.csv")


@dataclass(frozen=True)
class Ended:
    """A contrast when its seeds stopped."""

    state: str
    seeds: int
    covers: bool
    """Whether the interval has the true difference."""


def draw(effect: float, rng: np.random.Generator) -> Floats:
    """Draw a study: (contrasts, seeds) differences of variance 1 to the same baseline."""
    baseline = rng.normal(0, np.sqrt(0.5), MOST_SEEDS)
    arms = rng.normal(effect, np.sqrt(0.5), (CONTRASTS, MOST_SEEDS))
    return arms - baseline


def until_decided(values: Floats, effect: float, margin: float) -> Ended:
    """Look at the (S,) differences after each seed, until they decide."""
    for seeds in range(1, len(values) + 1):
        low, high = interval_at_every_look(values[:seeds], ALPHA / CONTRASTS)
        state = state_of(low, high, margin)
        if state != "open":
            break
    return Ended(state, seeds, covers=low <= effect <= high)


def is_false(state: str, effect: float, margin: float) -> bool:
    """Return whether a verdict contradicts the truth."""
    if state == "equal":
        return abs(effect) > margin
    if state == "ahead":
        return effect <= 0
    return state == "behind" and effect >= 0


def with_plan(studies: list[Floats], effect: float, margin: float) -> dict[str, float]:
    """Judge all studies as a plan does; return how often and how soon they are decided."""
    ended = [[until_decided(row, effect, margin) for row in study] for study in studies]
    contrasts = [one for study in ended for one in study]
    return {
        "decided": np.mean([one.state != "open" for one in contrasts]),
        "false_verdicts": np.mean(
            [any(is_false(one.state, effect, margin) for one in study) for study in ended]
        ),
        "all_intervals_cover": np.mean([all(one.covers for one in study) for study in ended]),
        "seeds_of_an_arm": np.mean([one.seeds for one in contrasts]),
        "seeds_of_the_baseline": np.mean([max(one.seeds for one in study) for study in ended]),
    }


def with_fixed_seeds(studies: list[Floats], effect: float, seeds: int) -> dict[str, float]:
    """Test all studies once, after a fixed number of seeds."""
    told_apart = []
    false = []
    for study in studies:
        tests = [t_test(row[:seeds]) for row in study]
        below = holm(np.array([test.p for test in tests])) < ALPHA
        wrong = [test.estimate * effect <= 0 for test in tests]
        told_apart.append(below.mean())
        false.append((below & wrong).any())
    return {f"told_apart_by_{seeds}": np.mean(told_apart), f"false_by_{seeds}": np.mean(false)}


def main() -> None:
    """Simulate, and write the table."""
    rows = []
    for effect in EFFECTS:
        rng = np.random.default_rng(round(10 * effect))
        studies = [draw(effect, rng) for _ in range(STUDIES)]
        for margin in MARGINS:
            row = {"effect": effect, "margin": margin, "studies": STUDIES}
            row |= with_plan(studies, effect, margin)
            for seeds in FIXED:
                row |= with_fixed_seeds(studies, effect, seeds)
            rows.append(row)
    table = pd.DataFrame(rows)
    table.round(3).to_csv(OUT, index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
