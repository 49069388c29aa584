"""What the formulas expect of parts b to h, from pilots that stand still, before any run is made.

    python -m experiments.law.predictions RUNS

RUNS has a study `advice_NAME` of `pods advise` for each start policy (README.md). Other rows stay.
"""

import sys
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas as pd

from pods.runs.store import RunStore, run_folders
from pods_lab.advise.advice import Pilot, cost_weights, read_pilot
from pods_lab.advise.law import at_random, half, moments_of
from pods_lab.advise.progress import MEASURED, GradientScales, Moments, expected_progress

HERE = Path(__file__).parent
DRAWS = 1000
GRPO, PODS, FEWER = "grpo 16→16", "pods 64→16", "pods 32→16"
ARMS: dict[str, tuple[int, Moments]] = {
    GRPO: (16, moments_of(at_random, "selected", "std")),
    FEWER: (32, moments_of(half, "selected", "std")),
    PODS: (64, moments_of(half, "selected", "std")),
    "random 64→16": (64, moments_of(at_random, "selected", "std")),
    "pods_stratified 64→16": (64, moments_of(half, "full", "stratified")),
    "maxrl_random 64→16": (64, moments_of(at_random, "full", "mean")),
}
FORMULAS = {"kappa flat": 0.0, "kappa p(1-p)": 1.0}
"""`own` of each formula; `shipped` is a constant noise of 4 and one prompt a step."""
HALF = "times fewer steps to half of GRPO's gain"
GAIN = "times GRPO's gain in equal time"
RATES = (5e-5, 1e-4, 2e-4, 4e-4)
SIGN = "sign of the difference of pass@5 at the end"
SIGNS = [
    ("c", f"countdown {arm}", "countdown random 64→16", SIGN, "w(p)", *3 * (sign,))
    for arm, sign in ((PODS, 1), ("pods_stratified 64→16", 0), ("maxrl_random 64→16", 1))
]
"""What w(p) says of pass@5 on Countdown: a rule that weighs hard prompts more gains."""


def gains(pilot: Pilot, arm: str, prompts: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each formula with draws of an arm's progress over GRPO's: first of the whole pilot."""
    rng, rates = np.random.default_rng(0), pilot.posteriors
    noise, shared, ratio, _ = astuple(MEASURED)
    samples = [rates, *(rates[rng.integers(len(rates), size=len(rates))] for _ in range(DRAWS))]

    def gain(posteriors: np.ndarray, of: GradientScales, of_prompts: int) -> float:
        (n, moments), (base, of_base) = ARMS[arm], ARMS[GRPO]
        progress = [expected_progress([(n_, 16)], posteriors, of, of_prompts, made)[0]
                    for n_, made in ((n, moments), (base, of_base))]  # fmt: skip
        return float(progress[0] / progress[1])

    shipped = GradientScales(4.0, 0.0, ratio, own=0.0)
    yield "shipped", np.array([gain(each, shipped, 1) for each in samples])
    for formula, own in FORMULAS.items():
        scales = GradientScales(noise, shared, ratio, own=own)
        yield formula, np.array([gain(posteriors, scales, prompts) for posteriors in samples])


def price(pilot: Pilot, n: int) -> float:
    """Return GRPO's seconds of a step over those of an arm of n, by the pilot's cost model."""
    weights = cost_weights([*pilot.seconds], [(16, 16), (n, 16)])
    grpo, other = weights @ [np.median(seconds) for seconds in pilot.seconds.values()]
    return float(grpo / other)


def rows(pilots: dict[str, Pilot]) -> Iterator[tuple[object, ...]]:
    """Yield part, arm, what it is held against, quantity, formula, value and 95 % interval."""
    cases = [("b", "p90", f" B={prompts}", PODS, prompts, HALF) for prompts in (1, 2, 8, 32)]
    cases += [("c", "countdown", "", arm, 2, HALF) for arm in ARMS if arm not in (GRPO, FEWER)]
    starts = [start for start in pilots if "_" in start]
    cases += [("d", start, "", arm, 2, HALF) for start in starts for arm in (FEWER, PODS)]
    cases += [("e", "tiny", f" lr={rate}", PODS, 2, HALF) for rate in RATES]
    llm = [arm for arm in ARMS if "grpo" not in arm and "maxrl" not in arm]
    studies = (("f", "llm"), ("g", "llm2"), ("h", "qwen"))
    cases += [(part, of, "", arm, 1, GAIN) for part, of in studies for arm in llm]
    for part, start, of, arm, prompts, quantity in [case for case in cases if case[1] in pilots]:
        cheaper = price(pilots[start], ARMS[arm][0]) if quantity == GAIN else 1.0
        for formula, ratios in gains(pilots[start], arm, prompts):
            g = ratios * cheaper
            low, high = np.quantile(g, (0.025, 0.975))
            names = f"{start}{of} {arm}", f"{start}{of} {GRPO}"
            yield part, *names, quantity, formula, g[0], low, high


def main() -> None:
    """Write the rows of the parts whose pilots are there."""
    pilots = {}
    for study in sorted(Path(sys.argv[1]).glob("advice_*")):
        stores = [RunStore(folder) for folder in run_folders(study)]
        pilots[study.name.removeprefix("advice_")] = read_pilot(stores)
    path = HERE / "predictions.csv"
    before = pd.read_csv(path)
    known = [*rows(pilots), *(SIGNS if "countdown" in pilots else ())]
    made = pd.DataFrame(known, columns=before.columns)
    table = pd.concat([before[~before.part.isin(made.part.unique())], made])
    table.to_csv(path, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
