"""Simulate studies of known truth, and count how often an audit's intervals and verdicts are right.

    python experiments/audit/coverage.py    # writes coverage.csv beside itself

Scores rise along the same curve in each run; a run's level is normal (sd 0.02), shared in part by
runs of one seed, and each score has noise of its own (sd 0.01). Methods differ by a constant.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import compare
from pods_lab.audit.extras import decisions
from pods_lab.audit.foreign import study_of
from pods_lab.audit.formats import Log
from pods_lab.audit.mapping import propose

STUDIES = 500
STEPS = np.arange(0, 101, 10)
CASES = {  # seeds, methods, true difference of the first method to the others, paired
    "8 seeds, no difference": (8, 2, 0.0, True),
    "5 seeds, no difference": (5, 2, 0.0, True),
    "8 runs without seeds, no difference": (8, 2, 0.0, False),
    "8 seeds, four methods, no difference": (8, 4, 0.0, True),
    "8 seeds, 2 points": (8, 2, 0.02, True),
}


def logs(
    rng: np.random.Generator, seeds: int, methods: int, lift: float, paired: bool
) -> list[Log]:
    """Draw the logs of one study."""
    shared, found = rng.normal(0, 0.014, seeds), []
    for method in range(methods):
        for seed in range(seeds):
            level = 0.4 + lift * (method == 0) + shared[seed] * paired + rng.normal(0, 0.014)
            scores = level + 0.2 * (1 - np.exp(-STEPS / 30)) + rng.normal(0, 0.01, len(STEPS))
            rows = [{"step": int(s), "accuracy": v} for s, v in zip(STEPS, scores, strict=True)]
            name = f"m{method}-seed{seed}" if paired else f"m{method}-{chr(97 + seed)}"
            found.append(Log(name, Path(name), rows))
    return found


def simulate(case: str, studies: int) -> dict[str, float | str]:
    """Count intervals that hold the truth, and studies with any verdict of settled."""
    seeds, methods, lift, paired = CASES[case]
    covered, contrasts, settled = 0, 0, 0
    for index in range(studies):
        drawn = logs(np.random.default_rng([len(case), index]), seeds, methods, lift, paired)
        mapping, _ = propose(drawn, {} if paired else {"method": "path:^(m.)"})
        found = compare(study_of(drawn, mapping, []), draws=2)
        tests = found.contrasts[found.contrasts.outcome == "mean_accuracy"]
        truth = np.where(tests.series == "m0", lift, 0) - np.where(tests.baseline == "m0", lift, 0)
        covered += int(((tests.low <= truth) & (truth <= tests.high)).sum())
        contrasts += len(tests)
        said = [line for line in decisions(found) if ". Mean" in line]
        settled += any(line.startswith("Settled") for line in said)
    shares = {"coverage": covered / contrasts, "settled": settled / studies}
    return {"case": case, "studies": studies, **shares}


if __name__ == "__main__":
    table = pd.DataFrame([simulate(case, STUDIES) for case in CASES])
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False, float_format="%.4g")
    print(table.to_string(index=False))
