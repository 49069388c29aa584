"""Simulate studies of known truth, and count how often an audit's intervals and verdicts are right.

    python experiments/audit/coverage.py    # writes coverage.csv, in the folder of this script

Scores rise along the same curve in each run; a run's level is normal (sd 0.02), shared in part by
runs of one seed, and each score has noise of its own (sd 0.01). Methods differ by a constant.

In a study with few test questions a score is the share of right answers to them, all runs begin
with the same weights, so with one score, and have two more evaluations: independent runs are often
equal to the last digit.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import compare
from pods_lab.audit.extras import decisions
from pods_lab.audit.foreign import study_of
from pods_lab.audit.formats import Log
from pods_lab.audit.mapping import check
from pods_lab.audit.propose import propose

STUDIES = 500
COARSE_STUDIES = 200
STEPS = np.arange(0, 101, 10)
COARSE_STEPS = np.array([0, 50, 100])
COARSE = {30: 0.22, 6: 0.5}  # numbers of questions, and the chance that an answer is right
CASES = {  # seeds, methods, true difference of the first method to the others, paired
    "8 seeds, no difference": (8, 2, 0.0, True),
    "5 seeds, no difference": (5, 2, 0.0, True),
    "8 runs without seeds, no difference": (8, 2, 0.0, False),
    "8 seeds, four methods, no difference": (8, 4, 0.0, True),
    "8 seeds, 2 points": (8, 2, 0.02, True),
}
COARSE_CASES = {  # seeds, methods, questions
    "6 seeds, 30 questions, no difference": (6, 2, 30),
    "6 seeds, 6 questions, no difference": (6, 2, 6),
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


def coarse_logs(rng: np.random.Generator, seeds: int, methods: int, questions: int) -> list[Log]:
    """Draw the logs of one study with few test questions; runs are independent."""
    chance = COARSE[questions]
    first = rng.binomial(questions, chance)  # of the weights that all runs begin with
    found = []
    for method in range(methods):
        for seed in range(seeds):
            right = [first, *rng.binomial(questions, chance, len(COARSE_STEPS) - 1)]
            rows = [{"step": int(step), "accuracy": count / questions}
                    for step, count in zip(COARSE_STEPS, right, strict=True)]  # fmt: skip
            name = f"m{method}-seed{seed}"
            found.append(Log(name, Path(name), rows))
    return found


def study(case: str, index: int) -> tuple[list[Log], dict[str, str], float]:
    """Draw one study of a case; return its logs, the mapping that it needs, and the truth."""
    rng = np.random.default_rng([len(case), index])
    if case in COARSE_CASES:
        return coarse_logs(rng, *COARSE_CASES[case]), {}, 0.0
    seeds, methods, lift, paired = CASES[case]
    given = {} if paired else {"method": "path:^(m.)"}
    return logs(rng, seeds, methods, lift, paired), given, lift


def simulate(case: str, studies: int) -> dict[str, float | str]:
    """Count intervals that hold the truth, studies with any contrast told apart, runs left out."""
    covered = 0
    contrasts = 0
    told_apart = 0
    left_out = 0
    for index in range(studies):
        drawn, given, lift = study(case, index)
        mapping = check(drawn, propose(drawn, given))
        audited = study_of(drawn, mapping).study
        left_out += len(drawn) - len(audited.complete)
        found = compare(audited, draws=2)
        tests = found.contrasts[found.contrasts.outcome == "mean_accuracy"]
        truth = np.where(tests.series == "m0", lift, 0) - np.where(tests.baseline == "m0", lift, 0)
        covered += int(((tests.low <= truth) & (truth <= tests.high)).sum())
        contrasts += len(tests)
        said = [line for line in decisions(found) if ". Mean" in line]
        told_apart += any(line.startswith("Told apart") for line in said)
    return {
        "case": case,
        "studies": studies,
        "coverage": covered / contrasts,
        "told_apart": told_apart / studies,
        "left_out": left_out,
    }


if __name__ == "__main__":
    rows = [simulate(case, STUDIES) for case in CASES]
    rows += [simulate(case, COARSE_STUDIES) for case in COARSE_CASES]
    table = pd.DataFrame(rows)
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False, float_format="%.4g")
    print(table.to_string(index=False))
