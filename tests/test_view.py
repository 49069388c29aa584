"""The choice of arms, metric, window and baseline, on studies made by hand."""

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rows import table
from studies import A, B, refused, write_run

from pods.analysis.compare.compare import compare
from pods.analysis.figures.specs import accuracy
from pods.analysis.figures.style import COLOURS, look_of, marker_and_colour
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.numbers.tables import tables
from pods.cli.main import main
from pods.runs.store import run_folders


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        for arm, points in (("grpo", B), ("pods", A), ("random", A)):
            write_run(folder, points, "study=s", f"arm={arm}", f"seed={seed}")
    return folder


@pytest.fixture(scope="module")
def loaded(study):
    return load(study / "s", run_folders(study / "s"))


def test_window_and_baseline_by_hand(loaded):
    """Accuracies 2/8 at 0, 6/8 at 4 s; and 0 at 0, 4/8 at 10 s, so 0.2 at 4 s."""
    result = compare(apply_filter(loaded, StudyFilter(("pods", "grpo"), until=4.0))).contrasts
    rows = result.set_index("outcome")
    assert [*rows.loc["mean_accuracy", ["mean", "baseline_mean"]]] == pytest.approx([0.5, 0.1])
    assert [*rows.loc["final_accuracy", ["mean", "baseline_mean"]]] == pytest.approx([0.75, 0.2])
    contrasts = compare(apply_filter(loaded, StudyFilter(baseline="random"))).contrasts
    assert {name.split()[0] for name in contrasts.baseline} == {"random"}
    assert {name.split()[0] for name in contrasts.series} == {"grpo", "pods"}


def test_a_metric_that_one_run_lacks_is_no_choice(loaded):
    rows = loaded.evaluations
    some = replace(loaded, evaluations=rows.assign(format=rows.format.mask(rows.seed == 1)))
    with pytest.raises(ValueError, match="metric=format: must be one of accuracy, both"):
        apply_filter(some, StudyFilter(metric="format"))


def test_a_choice_has_its_own_folder_and_name(study, capsys):
    def files():
        return {path.name: path.read_bytes() for path in (study / "s/figures").glob("*.csv")}

    def shown(command):
        assert main([*command.split(), "--runs-dir", str(study)]) == 0
        return capsys.readouterr().out

    shown("plot --tables s")
    before = files()
    out = shown("plot --tables s --arms pods,grpo --until 4")
    assert "figures/arms=pods,grpo,until=4" in out
    out = shown("compare --study s --metric both")
    assert out.startswith("Mean share correct and in the format: ")
    assert "accuracy" not in out.replace("mean_accuracy", "").replace("final_accuracy", "")
    assert (study / "s/figures/metric=both/compare.csv").is_file()
    assert "correct and in the format at 10 s" in shown("plot --tables s --metric both")
    assert "accuracy in percent from 0 steps to 2 steps" in shown("compare --study s --x steps")
    assert files() == before
    for words, there in (("--by mean", True), ("", False)):
        shown(f"compare --study s {words}")
        assert (study / "s/figures/compare.ranking.csv").exists() == there
    names = {StudyFilter((arm,)).folder for arm in ("a/b", "a b", "a-b", "x" * 200, "x" * 201)}
    assert len(names) == 5 and "/" not in "".join(names)


def test_pass_at_k_takes_the_place_of_accuracy(study):
    """At least 1 of 2 answers to each question: pods 2/4, 1, 1 at 0, 4, 12 s; grpo 0, 1 at 10 s."""

    def typed(words):
        command = [f"{sys.prefix}/bin/pods", *words.split(), "--runs-dir", study]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    said = typed("compare pods grpo --study s --metric pass@2")
    assert "Mean pass@2: pods 64→16 is 40.00 points above grpo 16→16" in said  # 0.9 and 0.5
    assert "final_accuracy: pass@2 at 10 s" in typed("plot --tables s --metric pass@2")
    for name in ("runs", "summary"):
        table = pd.read_csv(study / f"s/figures/metric=pass@2/{name}.csv")
        found = table.groupby("series")[["mean_accuracy", "pass@1", "pass@2"]].mean()
        assert found.to_numpy().tolist() == [[0.5, 0.5, 1], [0.9, 1, 1], [0.9, 1, 1]]


@pytest.mark.parametrize(("typed", "line"), table("bad_choice"))
def test_bad_choice_gives_one_line(study, capsys, typed, line):
    twice = ["compare", "pods", "grpo", "--study", "s", "--arms", "pods"]
    words = twice if typed is None else ["plot", "--tables", "s", *typed]
    assert line in refused(capsys, *words, "--runs-dir", study)


def test_x_is_the_step_of_each_evaluation(loaded):
    """Run a is evaluated at steps 0, 1 and 2, run b at 0 and 2."""
    chosen = apply_filter(loaded, StudyFilter(("pods", "grpo"), x="steps"))
    at = chosen.evaluations.groupby("run").steps.agg(list)
    assert sorted(map(tuple, at)) == [(0, 1, 2)] * 2 + [(0, 2)] * 2
    made = tables(chosen)
    curve = made.curves.query("metric == 'accuracy' and series.str.startswith('pods')")
    middle = curve.iloc[(curve.steps - 1).abs().argmin()]
    assert middle["mean"] == pytest.approx(np.interp(middle.steps, (0, 1, 2), (2 / 8, 6 / 8, 1.0)))
    assert curve.steps.iloc[-1] == 2 and set(made.summary.end_steps) == {2}
    assert made.summary.seconds_per_step.tolist() == [6.0, 5.0]  # 12 and 10 s in two steps


def test_arms_are_compared_and_drawn_over_steps(loaded, study, one_format, capsys):
    """By hand: (0.25, 0.75, 1) at steps 0, 1, 2 has a mean of 0.6875, and (0, 0.5) one of 0.25."""
    result = compare(apply_filter(loaded, StudyFilter(("pods", "grpo"), x="steps")))
    assert result.arms.mean_accuracy.tolist() == [0.6875, 0.25]
    peak = result.speedups.query("kind == 'peak'").iloc[0]  # 99 % of 0.5
    assert [peak.steps, peak.baseline_steps] == pytest.approx([0.49, 1.98])
    assert main(["plot", "s", "--runs-dir", str(study), "--x", "steps"]) == 0
    shown = capsys.readouterr().out
    assert "figures/x=steps/accuracy_vs_steps" in shown and "accuracy at 2 steps" in shown


def curves_of(spec):
    """Return the lines with markers of the first panel by colour."""
    lines = [line for line in spec.draw().axes[0].lines if len(line.get_xdata())]
    return {line.get_color(): line for line in lines if line.get_marker() not in ("", "None")}


def test_markers_stand_where_runs_were_evaluated_and_an_arm_keeps_its_colour(loaded):
    """The window ends at 10 s, so pods' third marker, at 12 s, is outside of the curve."""
    colours = {name: COLOURS[loaded.order.index(name)] for name in loaded.order}
    marks = curves_of(accuracy(loaded, tables(loaded)))
    grpo, pods = (marks[colours[name]] for name in ("grpo 16→16", "pods 64→16"))
    assert grpo.get_xdata().tolist() == [0.0, 10.0]
    assert grpo.get_ydata().tolist() == pytest.approx([0.0, 0.5])
    assert pods.get_xdata().tolist() == [0.0, 4.0, 12.0]
    assert pods.get_ydata()[:2] == pytest.approx([0.25, 0.75])
    shown = apply_filter(loaded, StudyFilter(("random", "pods")))
    expected = {colours[name] for name in ("random 64→16", "pods 64→16")}
    assert set(curves_of(accuracy(shown, tables(shown)))) == expected


def test_order_and_colour_are_the_studys_whatever_runs_are_drawn_in_whatever_order(study):
    """A sweep draws its own runs in the order of its words, and other verbs draw all."""
    folders = run_folders(study / "s")
    whole, last_first = (load(study / "s", some) for some in (folders, folders[::-1]))
    assert [*whole.runs.series.unique()] == [*last_first.runs.series.unique()] == [*whole.order]
    some = load(study / "s", [folder for folder in folders if "max_variance" in str(folder)])
    assert look_of(some, "pods 64→16") == look_of(whole, "pods 64→16") == marker_and_colour(1)


def test_the_band_is_one_standard_error_and_long_names_leave_the_curves_their_place(tmp_path):
    """Accuracies 0.25 and 0.75 at the end of each arm: a standard error of 0.25."""
    same = ("task=gsm8k", "model=smollm2_135m", "arm=pods", "study=s", "dry_run=true")
    for seed, right in enumerate((2, 6)):
        for grader, temperature in itertools.product(("exact", "lenient"), (0.9, 1.0)):
            keys = (f"task.grader={grader}", f"sampling.temperature={temperature}", f"seed={seed}")
            write_run(tmp_path, [(0, 0.0, 0), (2, 10.0, right)], *same, *keys)
    loaded = load(tmp_path / "s", run_folders(tmp_path / "s"), allow=True)
    figure = accuracy(loaded, tables(loaded)).draw()
    areas = [each for each in figure.axes[0].collections if each.get_alpha() == 0.25]
    ends = [max(y for x, y in area.get_paths()[0].vertices if x == 10.0) for area in areas]
    assert ends == pytest.approx([0.75] * 4)
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 1 / 3
    inside, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert inside.x0 >= 0 and inside.x1 <= whole.x1
