"""Differences to the baseline along the curves, beside SciPy's tests."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from studies import B, draw_in_one_format, write_run

from pods.analysis.curve_plots import fallen
from pods.analysis.differences import differences
from pods.analysis.draw import draw
from pods.analysis.figures import drawings
from pods.analysis.study import load
from pods.analysis.tables import tables
from pods.analysis.view import View, choose
from pods.runs.store import run_folders

OURS, THEIRS = (4, 7, 6), (1, 3, 4)  # right answers of 8 at 10 s, by seed; all have 0 at 0 s


@pytest.fixture
def study(tmp_path):
    for arm, rights in (("pods", OURS), ("grpo", THEIRS)):
        for seed, right in enumerate(rights):
            points = [(0, 0.0, 0), (2, 10.0, right)]
            write_run(tmp_path, points, "study=s", f"arm={arm}", f"seed={seed}")
    return load(tmp_path / "s", run_folders(tmp_path / "s"))


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_at_a_grid_point_is_that_of_scipy(study, paired):
    """Halfway, at 5 s, each run is on its line, at half of what it has in the end."""
    ours, theirs = np.array(OURS) / 16, np.array(THEIRS) / 16
    test = stats.ttest_rel if paired else lambda a, b: stats.ttest_ind(a, b, equal_var=False)
    interval = test(ours, theirs).confidence_interval()
    row = differences(replace(study, seeded=paired)).set_index("train_seconds").loc[5.0]
    assert row.design == ("paired" if paired else "unpaired")
    expected = [(ours - theirs).mean(), *interval]
    assert [row.estimate, row.low, row.high] == pytest.approx(expected)


def test_an_arm_of_one_run_or_a_study_without_baseline_has_no_difference(study):
    assert differences(choose(study, View(arms=("pods",)))).empty
    runs = study.runs[study.runs.run.isin([*study.runs.run[study.runs.arm == "grpo"]][:1])]
    only = study.runs[study.runs.arm == "pods"]
    assert differences(replace(study, runs=pd.concat([runs, only]))).empty


def test_the_differences_are_written_beside_the_figure(study, tmp_path, monkeypatch):
    draw_in_one_format(monkeypatch)
    write_run(tmp_path, B, "study=s", "arm=random")
    list(draw(tmp_path / "s", run_folders(tmp_path / "s"), allow_missing=True))
    written = pd.read_csv(tmp_path / "s/figures/accuracy_vs_time.differences.csv")
    assert {name.split()[0] for name in written.series} == {"pods"}  # random has one run
    assert written.estimate.iloc[-1] == pytest.approx(9 / 24)


@pytest.mark.parametrize(
    ("ends", "name"),
    [
        ((0.8, 0.7, 0.1), "c"),  # the others span 0.2 of 0.7
        ((0.8, 0.7, 0.39), "c"),  # 0.2 of 0.41
        ((0.8, 0.7, 0.41), None),  # 0.2 of 0.39: more than half
        ((0.7, 0.65, 1.0), None),  # an arm above the others is not cut off
        ((0.8, 0.1, 0.1), None),  # two have fallen
        ((0.6, 0.6, 0.1), None),  # the others are one line, which spans no axis
    ],
)
def test_one_fallen_arm_does_not_set_the_axis(ends, name):
    rows = [(arm, mean) for arm, end in zip("abc", ends, strict=True) for mean in (0.6, end)]
    assert fallen(pd.DataFrame(rows, columns=["series", "mean"])) == name
    assert fallen(pd.DataFrame(rows[2:], columns=["series", "mean"])) is None  # two arms


def test_the_axes_are_those_of_the_others_and_name_the_fallen_arm(tmp_path):
    """Of 100 answers: grpo 60 to 70, pods 60 to 80, max_reward 60 to 10, in both seeds."""
    for seed in range(2):
        for arm, right in (("grpo", 70), ("pods", 80), ("max_reward", 10)):
            points, made = [(0, 0.0, 60), (2, 10.0, right)], ("study=s", "task.test_size=50")
            write_run(tmp_path, points, *made, f"arm={arm}", f"seed={seed}", questions=50)
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    left, _, below = next(drawings(study, tables(study))).draw().axes
    assert left.get_ylim() == pytest.approx((0.59, 0.81))  # a margin of 5 % of 0.6 to 0.8
    assert below.get_ylim() == pytest.approx((-0.5, 10.5))  # pods is 0 to 10 points above
    assert [text.get_text() for text in left.texts] == [
        "max_reward 64→16 falls to 0.1, below this axis"
    ]
