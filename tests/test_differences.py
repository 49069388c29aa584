"""Differences to the baseline along the curves, beside SciPy's tests."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from studies import B, draw_in_one_format, write_run

from pods.analysis.differences import differences
from pods.analysis.draw import draw
from pods.analysis.study import load
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
