"""`pods audit`: which of other trainers' runs are left out, with the evidence, and which stay."""

import runpy

import numpy as np
import pytest
from compose import ROOT
from foreign_runs import audited, ends, rows_of, run_log, study


def coarse(rng, questions=30, evaluations=3, **columns):
    """Independent runs of two methods, each evaluated a few times on few questions."""
    logs = []
    for method, p in (("a", 0.22), ("b", 0.25)):
        for seed in range(6):
            right = [6, *rng.binomial(questions, p, evaluations - 1)]  # one start for all
            rows = [{"step": 10 * i, "accuracy": n / questions} for i, n in enumerate(right)]
            for row in rows:
                row |= {name: column(rng, row) for name, column in columns.items()}
            logs.append(run_log(f"{method}-seed{seed}", rows))
    return logs


COLUMNS = {
    "scores alone": {},
    "loss": {"loss": lambda rng, row: rng.normal()},
    "seconds by the step": {"seconds": lambda rng, row: 3.0 * row["step"]},
    "a schedule": {"lr": lambda rng, row: float(np.cos(row["step"])), "epoch": lambda *_: 1},
}


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_independent_runs_of_equal_scores_stay(columns):
    for draw in range(40):
        found = audited(coarse(np.random.default_rng(draw), **columns))
        assert found.study.missing == [] and len(found.study.complete) == 12


def test_runs_that_never_answer_right_stay():
    logs = [run_log(f"{method}-seed{seed}", [{"step": step, "accuracy": 0.0, "loss": 0.5}
                    for step in range(0, 100, 10)])
            for method in "ab" for seed in range(6)]  # fmt: skip
    assert audited(logs).study.missing == []


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_a_copy_is_found_by_all_of_its_numbers(columns):
    logs = coarse(np.random.default_rng(3), 1000, 12, **columns)
    copy = [{key: float(np.float32(cell)) for key, cell in row.items()} for row in logs[0].rows]
    found = audited([*logs, run_log("b-seed9", copy)])
    assert len(found.study.missing) == 1
    assert "b-seed9: is the same run as a-seed0: all " in found.study.missing[0]
    assert ends(found, "left_out")["b-seed9"].startswith("is the same run as a-seed0")


def test_several_copies_of_a_run_are_all_found():
    logs = coarse(np.random.default_rng(3), 1000, 12)
    copies = [run_log(f"b-seed{seed}", list(logs[0].rows)) for seed in (8, 9)]
    left_out = ends(audited([*logs, *copies]), "left_out")
    assert [run for run, why in left_out.items() if why] == ["b-seed8", "b-seed9"]


def test_equal_scores_and_another_loss_are_two_runs():
    logs = study(loss=lambda method, seed, step: 1 / (1 + step + seed))
    copy = [row | {"loss": row["loss"] + 1e-3} for row in logs[0].rows]
    assert audited([*logs, run_log("grpo-seed9", copy)]).study.missing == []


@pytest.mark.parametrize(("last", "out"), [
    ((10, 10, 12), []), ((10, 10, 10), []), ((10, 12, 12), ["grpo-seed0"]), ((9, 10, 10), []),
])  # fmt: skip
def test_runs_are_cut_off_if_they_end_before_half_of_their_method(last, out):
    logs = [run_log(f"grpo-seed{seed}", rows_of("grpo", seed, range(1, end + 1)))
            for seed, end in enumerate(last)]  # fmt: skip
    found = audited(logs)
    assert [run for run, why in ends(found, "left_out").items() if why] == out
    lines = ["grpo-seed0: is cut off before other runs of its method end (10 of 12 steps)"]
    assert found.study.missing == lines * len(out)


def test_a_method_more_of_whose_runs_were_cut_off_is_named_before_the_verdict():
    logs = study()
    assert audited(logs).warnings == []
    for log in logs[:2]:  # of grpo
        log.rows[:] = log.rows[:4]
    [warning] = audited(logs).warnings
    assert warning.endswith("are in no verdict: 2 of 6 of grpo, 0 of 6 of pods")
    for log in logs[-2:]:  # of pods, so that both have lost as many
        log.rows[:] = log.rows[:4]
    assert audited(logs).warnings == []


def test_slow_and_fast_machines_are_not_cut_off_and_a_killed_run_is():
    logs = study(seconds=lambda method, seed, step: 36.0 * step)
    for log in logs:
        if log.name in ("grpo-seed4", "grpo-seed5"):  # slow: fewer steps in the same time
            log.rows[:] = [row | {"seconds": 43.0 * row["step"]} for row in log.rows[:8]]
        if log.name == "pods-seed0":  # fast: as many steps in less time
            log.rows[:] = [row | {"seconds": 20.0 * row["step"]} for row in log.rows]
        if log.name == "pods-seed1":
            log.rows[:] = log.rows[:5]
    why = "pods-seed1: is cut off before other runs of its method end (50 of 100 steps, "
    assert audited(logs).study.missing == [f"{why}1,800 of 3,600 s)"]
    for log in (logs[2], logs[8]):  # one of each method has no time
        log.rows[:] = [{"step": row["step"], "accuracy": row["accuracy"]} for row in log.rows]
    assert audited(logs).study.missing == [f"{why}1,800 of 3,600 s)"]


def test_of_two_runs_of_a_seed_the_longer_one_is_kept():
    logs = [run_log("a/grpo-seed0", rows_of("grpo", 0, range(1, 20))),
            run_log("b/grpo-seed0", rows_of("grpo", 7, range(1, 21))),
            run_log("b/pods-seed0", rows_of("pods", 0, range(1, 21)))]  # fmt: skip
    found = audited(logs, method="path:(grpo|pods)")
    why = "has method and seed of b/grpo-seed0, which is longer (20 and 19 steps)"
    assert found.study.missing == [f"a/grpo-seed0: {why}"]
    assert ends(found, "seed") == {"a/grpo-seed0": 0, "b/grpo-seed0": 0, "b/pods-seed0": 0}


def test_no_run_of_a_coarse_study_is_lost_and_false_verdicts_are_nominal():
    """Few studies here; experiments/audit/coverage.csv has many."""
    coverage = runpy.run_path(str(ROOT / "experiments/audit/coverage.py"))
    found = coverage["simulate"]("6 seeds, 30 questions, no difference", 25)
    assert found["left_out"] == 0 and found["coverage"] >= 0.85 and found["told_apart"] <= 0.16
