"""`pods audit`: the unit of a score comes from its name and values: never a hundredfold."""

import numpy as np
import pytest
from foreign_runs import audited, run_log, study

from pods import compare
from pods.analysis.compare.tables import format_tables
from pods.analysis.compare.text import verdicts
from pods_lab.audit.axes import axes
from pods_lab.audit.extras import best_checkpoints, remarks
from pods_lab.audit.units import unit_of


@pytest.mark.parametrize(("name", "values", "unit"), [
    ("accuracy", [0.0, 0.62], "share"),
    ("accuracy", [30.0, 62.0], "percent"),
    ("accuracy", [0.0, 62.0], "percent"),  # 0 % at the start
    ("accuracy", [0.4, 3.3], "percent"),
    ("eval/gsm8k/acc/mean@1", [12.5, 40.0], "percent"),
    ("GSM8K acc (%)", [30.0, 62.0], "percent"),
    ("solved_pct", [0.5, 2.0], "percent"),
    ("acc (%)", [0.3, 0.62], "score"),  # either may be meant
    ("reward", [0.1, 0.9], "share"),
    ("reward", [0.1, 1.169], "score"),
    ("reward", [-3.0, 5.0], "score"),
    ("eval_score", [1.0, 10.0], "score"),
    ("accuracy", [-1.0, 1.0], "score"),
    ("accuracy", [90.0, 130.0], "score"),
    ("raccoon", [30.0, 62.0], "score"),
    ("accuracy", [float("nan"), 0.5], "share"),
])  # fmt: skip
def test_the_unit_of_a_score(name, values, unit):
    assert unit_of(name, {"a": values, "b": values[::-1]}) == unit


def test_shares_beside_a_percent_are_refused_by_name():
    runs = {f"a{i}": [0.31, 0.6] for i in range(6)} | {"b": [31.0, 60.0], "c": [0.0, 0.0]}
    with pytest.raises(
        ValueError,
        match=r"a0, a1, a2, a3 and 2 more have no score above 1, as "
        r"shares, and b have, as percent: write all in one unit",
    ):
        unit_of("accuracy", runs)
    assert unit_of("accuracy", runs, "percent") == "percent"


@pytest.mark.parametrize(("unit", "values"), [("share", [0.1, 1.2]), ("percent", [50, 101]),
                                              ("percent", [-1, 9])])  # fmt: skip
def test_a_given_unit_that_no_score_can_have_is_refused(unit, values):
    with pytest.raises(ValueError, match=rf"unit={unit}: scores go from {values[0]:g} to "):
        unit_of("x", {"a": values}, unit)
    assert unit_of("x", {"a": values}, "score") == "score"


def scored(function, name="accuracy"):
    """The study in another unit, as a function of the share."""
    logs = study()
    for log in logs:
        log.rows[:] = [{"step": row["step"], name: function(row["accuracy"])} for row in log.rows]
    return logs


@pytest.mark.parametrize(("function", "name"), [
    (lambda share: share, "accuracy"),
    (lambda share: 100 * share, "accuracy"),
    (lambda share: 100 * share, "GSM8K acc (%)"),
    (lambda share: f"{100 * share:.2f} %", "accuracy"),
    (lambda share: f"{100 * share:.2f}%", "acc (%)"),
])  # fmt: skip
def test_a_percent_and_a_share_give_one_verdict(function, name):
    found = audited(scored(function, name), score=name)
    expected = compare(audited(study()).study, draws=9)
    got = compare(found.study, draws=9)
    assert got.contrasts.estimate.to_numpy() == pytest.approx(expected.contrasts.estimate, abs=1e-5)
    assert {*found.table.unit} == {"share" if "%" in str(function(0.5)) or function(1) == 1
                                   else "percent"}  # fmt: skip
    points = f"{100 * expected.contrasts.estimate[0]:.2f} points"
    assert points in verdicts(got)[0] and points.startswith("10.")


def test_a_score_of_its_own_unit_is_shown_as_it_is():
    found = audited(scored(lambda share: 40 * share - 25, "reward"))
    [one] = axes(found.study)
    got = compare(one, targets=[], draws=9)
    difference = 40 * compare(audited(study()).study, draws=9).contrasts.estimate[0]
    assert got.contrasts.estimate[0] == pytest.approx(difference)
    line = verdicts(got)[0]
    assert f"pods is {difference:.4g} units of the score above grpo" in line
    assert "points" not in line and "%" not in line.replace("95 %", "")
    shown = format_tables(got)
    assert "differences in units of the score" in shown and "percent" not in shown
    said = [*remarks(one, best_checkpoints(one))]
    assert said and all("units of the score above the last" in line for line in said)


def test_cells_with_and_without_a_percent_sign_are_refused():
    logs = scored(lambda share: f"{100 * share:.0f}%")
    logs[0].rows[0]["accuracy"] = 31
    with pytest.raises(ValueError, match="score=accuracy: 119 of 120 values have a percent sign"):
        audited(logs)


def test_luck_is_said_only_if_the_best_is_above_its_neighbours():
    rising = np.linspace(0.1, 0.9, 9) ** 0.5  # the last is the best, and below the line
    logs = [
        run_log(f"{method}-seed0", [{"step": i, "accuracy": x} for i, x in enumerate(scores)])
        for method, scores in (("a", rising), ("b", [0.1, 0.1, 0.5, 0.1, 0.1, 0.1]))
    ]
    one = audited(logs).study
    rise, peak = remarks(one, best_checkpoints(one))
    assert rise.startswith("a: the best of 9 checkpoints is on average 0.00 points above the last ("
                           "noise of a score: ")  # fmt: skip
    assert "40.00 points above the last, and 40.00 points above its neighbours, which is luck" in (
        peak
    )
