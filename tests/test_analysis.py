"""Curves and tables against numbers worked out by hand, on run folders that the test writes."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import composed
from studies import A, B, draw_in_one_format, write_run

from pods.analysis import figures, plots
from pods.analysis.curves import _step_means, curves, on_grid
from pods.analysis.draw import draw
from pods.analysis.run_reader import open_run
from pods.analysis.series_names import ARM_KEYS, LABEL_KEYS, _implied, resolved, series_names
from pods.analysis.study import IncompleteStudy, load
from pods.analysis.tables import SHOWN, readable, tables
from pods.cli.main import main
from pods.config.compose import compose
from pods.config.schema import CONF
from pods.runs.identity import identity_keys


def test_nothing_is_extrapolated():
    found = on_grid(np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array([0.0, 2.0, 3.0, 4.0]))
    assert np.isnan(found[[0, 3]]).all() and found[1:3].tolist() == [0.5, 1.0]


def test_a_study_by_hand(tmp_path):
    stores = [write_run(tmp_path, A, "seed=0"), write_run(tmp_path, B, "seed=1")]
    study = load(tmp_path / "default", [store.folder for store in stores])
    assert study.evaluations.accuracy.tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]
    assert study.evaluations.both.tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]  # all are in form
    assert study.evaluations.repeats.tolist() == [2] * 5
    by_question = study.questions[study.questions.seed == 1]
    assert by_question.correct.tolist() == [0.5] * 4  # right in the first of two repeats
    curve = curves(study)
    assert set(curve.metric) == {"accuracy", "format", "both", "length", "reward"}
    accuracy = curve[curve.metric == "accuracy"]
    assert accuracy.train_seconds.iloc[-1] == 10.0  # where the first run ends
    last = accuracy.iloc[-1]  # a: 0.75 + 0.25 * 6 / 8 = 0.9375; b: 0.5
    assert last["mean"] == last.iqm == pytest.approx((0.9375 + 0.5) / 2)
    assert last.stderr == pytest.approx((0.9375 - 0.5) / 2)  # sd / sqrt(2) of two values
    assert last.t_high - last["mean"] == pytest.approx(12.7062 * last.stderr, rel=1e-5)  # t, 1 df
    assert (accuracy.n == 2).all()
    reward = curve[curve.metric == "reward"].set_index("train_seconds")
    # steps end at 4 s (a: 0.1), 1 s and 10 s (b: 0.1, 0.2); a is over after 4 s
    assert reward["mean"].loc[[0.0, 1.0, 2.0, 4.0, 5.0, 10.0]].tolist() == pytest.approx(
        [0.1, 0.1, 0.15, 0.15, 0.2, 0.2]
    )
    assert study.runs.prompts.tolist() == [2, 2]
    row = tables(study).summary.iloc[0]
    area_a = (4 * (0.25 + 0.75) / 2 + 6 * (0.75 + 0.9375) / 2) / 10
    assert row.mean_accuracy == pytest.approx((area_a + 0.25) / 2)
    assert row.final_accuracy == pytest.approx((0.9375 + 0.5) / 2)
    assert row.seconds == 10.0
    assert row.seconds_per_step == pytest.approx((12 / 2 + 10 / 2) / 2)
    assert row["seconds/generate"] == pytest.approx(0.75 * row.seconds_per_step)


def test_steps_between_grid_points_run_by_run(tmp_path):
    """Averaging all runs of an arm at once equals averaging them in turn, to the last bit."""
    rng = np.random.default_rng(0)
    grid = np.linspace(0.0, 9.0, 7)
    parts = []
    for place in rng.permutation(5):
        times = np.sort(rng.uniform(0, 6 + place, 4 * place + 1))
        reward = np.where(rng.uniform(size=len(times)) < 0.2, np.nan, rng.normal(size=len(times)))
        parts.append(
            pd.DataFrame(
                {
                    "run": f"run{place}",
                    "train_seconds": times,
                    "reward": reward,
                    "rollouts": rng.integers(9, size=len(times)),
                }
            )
        )
    found = _step_means(pd.concat(parts), ["reward", "rollouts"], grid)
    for metric in ("reward", "rollouts"):
        wanted = []
        for run in sorted(parts, key=lambda run: run.run.iloc[0]):
            place = np.searchsorted(grid, run.train_seconds)
            wanted.append(run[metric].groupby(place).mean().reindex(range(7)).bfill())
        assert np.array_equal(found[metric], np.stack(wanted), equal_nan=True)


def names(tmp_path, *runs):
    stores = [write_run(tmp_path, A, *overrides) for overrides in runs]
    runs = [open_run(store.folder) for store in stores]
    return series_names([(run.config, run.identity) for run in runs])


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


def test_an_arms_label_implies_what_its_file_sets_and_no_more():
    """Words that change what an arm selects are shown beside its label."""
    words = (("arm=grpo",), ("arm=pods_greso",), ("arm=cppo",), ("arm=pods", "prompts=mopps"))
    configs = [composed(*one) for one in words]
    assert series_names([(config, identity_keys(config)) for config in configs]) == [
        "grpo 16→16", "pods_greso 64→16", "cppo 64→16", "pods 64→16, prompts.selector=mopps",
    ]  # fmt: skip
    assert _implied("mine") == _implied("../config") == _implied("a" * 300) == {}
    unnamed = [composed(f"prompts={name}") for name in ("uniform", "greso")]
    assert series_names([(config, identity_keys(config)) for config in unnamed]) == [
        "max_variance 64→16, prompts.selector=uniform",
        "max_variance 64→16, prompts.selector=greso",
    ]


@pytest.mark.parametrize("arm", sorted(path.stem for path in (CONF / "arm").glob("*.yaml")))
def test_an_arms_label_implies_what_hydra_composes(arm):
    values = compose([f"arm={arm}"])
    for key, value in _implied(arm).items():
        group, name = key.split(".")
        assert values[group][name] == resolved(value, {"nm.m": values["nm"]["m"]})
    assert set(_implied(arm)) == set(ARM_KEYS)
    groups = yaml.safe_load((CONF / f"arm/{arm}.yaml").read_text()).items()
    own = {f"{group}.{name}" for group, keys in groups if isinstance(keys, dict) for name in keys}
    assert own <= {*ARM_KEYS, *LABEL_KEYS}


def test_a_seed_that_one_series_lacks_is_missing(tmp_path):
    runs = (["arm=pods"], ["arm=pods", "seed=1"], ["arm=grpo"])
    folders = [write_run(tmp_path, A, *overrides).folder for overrides in runs]
    with pytest.raises(IncompleteStudy, match="grpo 16→16 seed 1: never run"):
        load(tmp_path / "default", folders)
    study = load(tmp_path / "default", folders, allow_missing=True)
    assert study.missing == ["grpo 16→16 seed 1: never run"]


def test_a_study_of_no_steps(tmp_path, monkeypatch):
    draw_in_one_format(monkeypatch)
    store = write_run(tmp_path, [(0, 0.0, 2)], "budget.max_steps=0")
    text = list(draw(tmp_path / "default", [store.folder]))
    assert "0.250" in text[0]


def panels(study):
    """What the axes of the figure on everything but accuracy are called."""
    drawn = {drawing.name: drawing for drawing in figures.drawings(study, tables(study))}
    return [axes.get_ylabel() for axes in drawn["training"].draw().axes]


def test_the_authors_grader_has_columns_of_its_own(tmp_path):
    """One more of 8 answers than are right; at the end, two more have no number."""
    unanswered = ("none", "none", "timeout")
    stores = [write_run(tmp_path, points, f"seed={seed}", lenient=1, unanswered=unanswered)
              for seed, points in enumerate((A, B))]  # fmt: skip
    study = load(tmp_path / "default", [store.folder for store in stores])
    found = study.evaluations
    assert found.lenient.tolist() == [3 / 8, 7 / 8, 1.0, 1 / 8, 5 / 8]
    assert found.accuracy.tolist() == found.both.tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]
    assert found.no_answer.tolist() == [2 / 8, 2 / 8, 0, 2 / 8, 2 / 8]
    assert found.timeouts.tolist() == [1 / 8, 0, 0, 1 / 8, 1 / 8]
    made = tables(study)
    assert made.runs.lenient.tolist() == [1.0, 5 / 8]
    assert made.runs.no_answer.tolist() == [0, 2 / 8]
    assert made.runs.timeouts.tolist() == [0, 1 / 8]
    [row] = made.summary.to_dict("records")
    assert (row["lenient"], row["no_answer"], row["timeouts"]) == (13 / 16, 1 / 8, 1 / 16)
    curve = made.curves[made.curves.metric == "lenient"]
    assert curve["mean"].iloc[0] == (3 / 8 + 1 / 8) / 2 and (curve.n == 2).all()
    shown = readable(made.summary).iloc[0]
    assert shown["authors' grader at end"] == "0.812" and shown["timeouts"] == "0.062"
    assert panels(study)[0] == plots.LABELS["lenient"]


def test_the_right_format_and_the_right_answer_are_counted_apart(tmp_path):
    """Of 8 answers 2 are right; one of those and one of the others are not in form."""
    store = write_run(tmp_path, A)
    path = store.evaluation_path(0)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in (rows[1], rows[7]):
        row["format"], row["length"] = False, 9
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = load(tmp_path / "default", [store.folder]).evaluations.iloc[0]
    assert (first.accuracy, first.format, first.both) == (2 / 8, 6 / 8, 1 / 8)
    assert first.length == (6 * 5 + 2 * 9) / 8


def test_a_run_with_something_missing_is_in_no_mean(tmp_path):
    whole, late = write_run(tmp_path, A), write_run(tmp_path, B, "seed=1")
    late.evaluation_path(2).unlink()
    folders = [whole.folder, late.folder]
    made = tables(load(tmp_path / "default", folders, allow_missing=True))
    [row] = made.summary.to_dict("records")
    # a alone, until 12 s: (4 x 0.5 + 8 x 0.875) / 12
    assert (row["n"], row["seconds"], row["final_accuracy"]) == (1, 12.0, 1.0)
    assert row["mean_accuracy"] == pytest.approx(0.75) and row["steps"] == 2
    assert row["seconds_per_step"] == 6.0 and row["seconds/update"] == 1.5


def test_a_column_that_no_run_has_is_left_out(tmp_path):
    """A task without the authors' grader, and every answer right or wrong."""
    study = load(tmp_path / "default", [write_run(tmp_path, A).folder])
    made = tables(study)
    for table in (study.evaluations, made.runs, made.summary):
        assert "lenient" not in table
    for table in (made.runs, made.summary):
        assert not {"no_answer", "timeouts"} & {*table}
    assert "lenient" not in set(made.curves.metric)
    assert not {*SHOWN.values()} & {*readable(made.summary)}
    assert plots.LABELS["lenient"] not in panels(study)


def test_a_series_without_the_authors_grader_has_no_curve_of_it(tmp_path):
    folders = [write_run(tmp_path, A, "arm=pods", lenient=0).folder,
               write_run(tmp_path, A, "arm=grpo").folder]  # fmt: skip
    made = tables(load(tmp_path / "default", folders))
    assert set(made.curves[made.curves.metric == "lenient"].series) == {"pods 64→16"}
    ours, theirs = made.summary.lenient
    assert ours == 1.0 and np.isnan(theirs)
    assert readable(made.summary)["authors' grader at end"].tolist() == ["1.000", ""]


def test_figures_and_tables_are_written_with_stable_bytes(tmp_path):
    folders = [write_run(tmp_path, A, f"seed={s}", f"arm={arm}").folder
               for s in (0, 1) for arm in ("pods", "random", "grpo", "grpo_ga")]  # fmt: skip
    study = tmp_path / "default"
    text = list(draw(study, folders, details=True))
    assert "pods 64→16" in text[0] and "accuracy_vs_time.png" in text[1]
    assert text[2] == "also: seconds_per_step, training, rules"
    first = {path.name: path.read_bytes() for path in (study / "figures").iterdir()}
    for name in ("accuracy_vs_time", "seconds_per_step", "training", "rules"):
        for suffix in (".png", ".pdf", ".svg", ".csv", ".runs.csv", ".json"):
            assert first[f"{name}{suffix}"], name
    list(draw(study, folders, details=True))
    assert {path.name: path.read_bytes() for path in (study / "figures").iterdir()} == first
    about = json.loads(first["accuracy_vs_time.json"])
    assert [run["run"] for run in about["runs"]] == [folder.name for folder in folders]
    assert about["runs"][0]["versions"] == "torch 2.13.0" and about["missing"] == []
    drawn = pd.read_csv(study / "figures" / "rules.csv")
    assert drawn.rule.tolist() == ["max_variance", "random"]
    assert drawn.mean_accuracy_mean.tolist() == [0.75] * 2  # (4 * 0.5 + 8 * 0.875) / 12


@pytest.mark.parametrize(("by", "sizes"), [("n", ["16_m16", "32_m16", "64_m16"]),
                                           ("m", ["64_m64", "64_m16", "64_m4"])])  # fmt: skip
def test_scaling_figures_include_the_runs_that_keep_everything(tmp_path, by, sizes, monkeypatch):
    draw_in_one_format(monkeypatch)
    folders = [write_run(tmp_path, A, f"nm=n{size}").folder for size in sizes]
    list(draw(tmp_path / "default", folders))
    table = pd.read_csv(tmp_path / "default" / "figures" / f"{by}_scaling.csv")
    assert table[by].tolist() == sorted(int(size.split("_m")["nm".index(by)]) for size in sizes)


def test_verbs(tmp_path, capsys, monkeypatch):
    draw_in_one_format(monkeypatch)
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
    assert not list((tmp_path / "default").glob("figures/*.tmp*"))


def test_leftovers_of_a_killed_process_are_removed(tmp_path, monkeypatch):
    draw_in_one_format(monkeypatch)
    store = write_run(tmp_path, A)
    figures = tmp_path / "default" / "figures"
    figures.mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (figures / f"curves.csv.tmp{dead.pid}").write_text("half")
    living = figures / f"curves.csv.tmp{os.getppid()}"
    living.write_text("half")
    list(draw(tmp_path / "default", [store.folder]))
    assert list(figures.glob("*.tmp*")) == [living]
