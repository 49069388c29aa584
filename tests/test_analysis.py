"""Curves and tables against numbers worked out by hand, on run folders that the test writes."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compose import composed

from pods.analysis.curves import curves, mean_and_stderr, on_grid, paired, summary
from pods.analysis.load import IncompleteStudy, _open, load, series_names
from pods.analysis.study import draw
from pods.cli import main
from pods.runs import checkpoint
from pods.runs.attempts import new_attempt
from pods.runs.files import append
from pods.runs.frozen import freeze
from pods.runs.store import RunStore

BASE = ("evaluation.repeats=2", "task.test_size=4", "task.train_size=4", "budget.train_seconds=10")


def write_run(runs_dir: Path, points, *overrides: str) -> RunStore:
    """A finished run with (step, train_seconds, accuracy of each of 2 repeats x 4 questions)."""
    config = composed(f"runs_dir={runs_dir}", *BASE, *overrides)
    store = freeze(config)
    for step, seconds, right in points:
        checkpoint.commit(
            store.checkpoint(step), partial(store.write_clock, step=step, train_seconds=seconds,
                                            evaluation=True)
        )  # fmt: skip
        rows = [(repeat, question) for repeat in range(2) for question in range(4)]
        append(store.evaluation_path(step), [
            {"repeat": r, "question": f"q{q}", "correct": k < right, "format": True, "length": 5}
            for k, (r, q) in enumerate(rows)
        ])  # fmt: skip
    for step in (1, 2):
        store.append_metrics({"step": step, "seconds/generate": 0.2 * step, "seconds/update": 0.1})
    (new_attempt(store) / "environment.json").write_text(json.dumps({"gpus": [], "cpu": "A CPU"}))
    store.set_status(state="done", accuracy=0.5, step=points[-1][0])
    return store


# of 8 answers: run a goes 2, 6, 8 at 0, 4, 12 s; run b goes 0, 4 at 0, 10 s
A, B = [(0, 0.0, 2), (1, 4.0, 6), (2, 12.0, 8)], [(0, 0.0, 0), (2, 10.0, 4)]


def test_mean_and_stderr_by_hand():
    mean, stderr = mean_and_stderr(np.array([[1.0, 1.0], [2.0, np.nan], [6.0, np.nan]]))
    assert mean.tolist() == [3.0, 1.0]
    assert stderr[0] == pytest.approx(np.sqrt((4 + 1 + 9) / 2 / 3))
    assert np.isnan(stderr[1])


def test_nothing_is_extrapolated():
    found = on_grid(np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array([0.0, 2.0, 3.0, 4.0]))
    assert np.isnan(found[[0, 3]]).all() and found[1:3].tolist() == [0.5, 1.0]


def test_a_study_by_hand(tmp_path):
    stores = [write_run(tmp_path, A, "seed=0"), write_run(tmp_path, B, "seed=1")]
    study = load([store.folder for store in stores])
    assert study.evaluations.accuracy.tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]
    assert study.evaluations.repeats.tolist() == [2] * 5
    curve = curves(study.evaluations)
    assert curve.train_seconds.iloc[-1] == 10.0  # where the first run ends
    last = curve.iloc[-1]  # a: 0.75 + 0.25 * 6 / 8 = 0.9375; b: 0.5
    assert last["mean"] == pytest.approx((0.9375 + 0.5) / 2)
    assert last.stderr == pytest.approx((0.9375 - 0.5) / 2)  # sd / sqrt(2) of two values
    assert (curve.n == 2).all()
    row = summary(study.evaluations, study.steps, curve).iloc[0]
    area_a = (4 * (0.25 + 0.75) / 2 + 6 * (0.75 + 0.9375) / 2) / 10
    assert row.mean_accuracy == pytest.approx((area_a + 0.25) / 2)
    assert row.accuracy == pytest.approx((0.9375 + 0.5) / 2)
    assert row.seconds == 10.0
    assert row["seconds/generate"] == pytest.approx(0.3)
    assert row.seconds_per_step == pytest.approx(0.4)


def test_paired_differences_by_hand(tmp_path):
    # at 10 s: a 0.9375 and 0.5 (seeds 0, 1), b 0.5 and 0.5; seed 2 is b's alone
    runs = [(A, "arm=pods"), (B, "arm=pods", "seed=1"), (B, "arm=grpo"), (B, "arm=grpo", "seed=1"),
            (A, "arm=grpo", "seed=2")]  # fmt: skip
    folders = [write_run(tmp_path, points, *overrides).folder for points, *overrides in runs]
    study = load(folders, allow_missing=True)
    row = paired(study.evaluations, curves(study.evaluations)).iloc[0]
    assert (row.series, row.minus, row.n) == ("pods 64→16", "grpo 16→16", 2)
    assert row.accuracy == pytest.approx(0.4375 / 2)
    assert row.accuracy_stderr == pytest.approx(0.4375 / 2)
    assert (row.accuracy_higher, row.mean_accuracy_higher) == (1, 1)


def names(tmp_path, *runs):
    stores = [write_run(tmp_path, A, *overrides) for overrides in runs]
    return series_names([_open(store.folder) for store in stores])


def test_curves_are_kept_apart_by_every_science_key_that_differs(tmp_path):
    found = names(tmp_path, ["arm=pods"], ["arm=pods", "seed=1"], ["arm=grpo"], ["update.lr=1e-3"])
    assert found[0] == found[1] == "pods 64→16, update.lr=0.0001"
    assert found[2:] == ["grpo 16→16, update.lr=0.0001", "max_variance 64→16, update.lr=0.001"]
    assert names(tmp_path / "2", ["arm=pods"], ["arm=grpo"]) == ["pods 64→16", "grpo 16→16"]


def test_one_label_on_two_rules_makes_two_curves(tmp_path):
    found = names(tmp_path, ["arm=pods"], ["arm=pods", "sampler=random"])
    assert found == ["pods 64→16, sampler.rule=max_variance", "pods 64→16, sampler.rule=random"]


def test_two_labels_on_one_config_make_one_curve(tmp_path):
    assert names(tmp_path, [], ["arm=pods", "seed=1"]) == ["pods 64→16"] * 2


def test_a_seed_that_one_series_lacks_is_a_hole(tmp_path):
    runs = (["arm=pods"], ["arm=pods", "seed=1"], ["arm=grpo"])
    folders = [write_run(tmp_path, A, *overrides).folder for overrides in runs]
    with pytest.raises(IncompleteStudy, match="grpo 16→16 seed 1: never run"):
        load(folders)
    assert load(folders, allow_missing=True).holes == ["grpo 16→16 seed 1: never run"]


def test_machines_are_not_mixed_unasked(tmp_path):
    stores = [write_run(tmp_path, A, f"seed={seed}") for seed in (0, 1)]
    other = {"gpus": ["unused here"], "cpu": "Another CPU"}
    (stores[1].folder / "attempts/001/environment.json").write_text(json.dumps(other))
    folders = [store.folder for store in stores]
    with pytest.raises(ValueError, match=r"different machines .*'A CPU', 'Another CPU'"):
        load(folders)
    assert load(folders, allow_mixed=True).machines == ["A CPU", "Another CPU"]


def test_a_study_of_no_steps(tmp_path):
    store = write_run(tmp_path, [(0, 0.0, 2)])
    store.metrics_path.unlink()
    text = list(draw(tmp_path / "default", [store.folder]))
    assert "0.250" in text[0]


def test_holes_are_named_and_never_averaged(tmp_path):
    good, bad = write_run(tmp_path, A, "seed=0"), write_run(tmp_path, A, "seed=1")
    folders = [good.folder, bad.folder]
    lines = bad.evaluation_path(1).read_text().splitlines(keepends=True)
    for damaged in (lines[:-1], [*lines[:-1], lines[0]], []):
        bad.evaluation_path(1).write_text("".join(damaged))
        with pytest.raises(IncompleteStudy, match="step 1"):
            load(folders)
    assert len(load(folders, allow_missing=True).evaluations) == 5
    shutil.rmtree(bad.checkpoint(2))  # the last one: its step is known from the status
    with pytest.raises(IncompleteStudy, match="step 2: no checkpoint"):
        load(folders)
    bad.set_status(state="failed")
    with pytest.raises(IncompleteStudy, match="seed 1: run is failed"):
        load(folders)
    with pytest.raises(IncompleteStudy, match="no finished run"):
        load([bad.folder], allow_missing=True)


def test_different_budgets_never_share_a_figure(tmp_path):
    stores = [write_run(tmp_path, A), write_run(tmp_path, A, "budget.train_seconds=11", "seed=1")]
    with pytest.raises(ValueError, match="different budgets"):
        load([store.folder for store in stores])


def test_the_figure_and_its_tables_are_written_with_stable_bytes(tmp_path):
    folders = [write_run(tmp_path, A, f"seed={s}", f"arm={arm}").folder
               for s in (0, 1) for arm in ("pods", "grpo")]  # fmt: skip
    study = tmp_path / "default"
    text = list(draw(study, folders))
    assert "pods 64→16" in text[0] and "accuracy_vs_time.png" in text[1]
    names = ["accuracy_vs_time.png", "accuracy_vs_time.pdf", "accuracy_vs_time.csv"]
    first = [(study / "figures" / name).read_bytes() for name in names]
    list(draw(study, folders))
    assert [(study / "figures" / name).read_bytes() for name in names] == first
    table = pd.read_csv(study / "figures" / "accuracy_vs_time.csv")
    assert list(table.columns) == ["series", "train_seconds", "mean", "stderr", "n"]


def test_verbs(tmp_path, capsys):
    store = write_run(tmp_path, A)
    here = ["default", "--runs-dir", str(tmp_path)]
    assert main(["status", *here]) == 0
    assert "done" in capsys.readouterr().out
    assert main(["plot", *here]) == 0
    assert main(["aggregate", *here]) == 0
    assert main(["plot", "nothing", "--runs-dir", str(tmp_path)]) == 2
    assert "studies there: default" in capsys.readouterr().err
    store.set_status(state="failed", error="ValueError: so")
    assert main(["status", *here, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["error"] == "ValueError: so"
    assert main(["plot", *here]) == 2
