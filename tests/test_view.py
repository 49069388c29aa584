"""The choice of arms, metric, window and baseline, on studies made by hand."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compose import composed
from matplotlib.figure import Figure
from rows import table
from running import contents
from studies import BASE, A, B, refused, write_run

from pods.analysis.compare.compare import compare
from pods.analysis.compare.tables import compare_study
from pods.analysis.draw import draw
from pods.analysis.figures import specs, style
from pods.analysis.figures.specs import accuracy, difference, step_cost
from pods.analysis.figures.style import COLOURS, look_of, marker_and_colour, x_axis
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.numbers.contrasts import differences
from pods.analysis.numbers.tables import tables
from pods.analysis.writing import folder_for
from pods.cli.main import main
from pods.launch import sweep
from pods.launch.backend import Backend
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
    late = refused(capsys, "plot", "s", "--runs-dir", study, "--until", "12.5")
    assert late == "error: until=12.5: must be at or before the last evaluation, at 12 s"
    shown("plot --tables s --until 12")
    out = shown("compare --study s --metric both")
    assert "explores\n\nMean share correct and in the format: " in out
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


def test_tables_for_latex_are_what_the_screen_shows_in_ascii(tmp_path, capsys):
    """The standard error of 1 and 1/2 is 1/4; an arm has two learning rates."""
    for seed, points in enumerate((A, [*A[:2], (2, 12.0, 4)])):
        for rate in (0.5, 1e-4):
            write_run(tmp_path, points, "arm=pods", f"seed={seed}", f"update.lr={rate}")
    words = ["plot", "default", "--tables", "--latex", "--arms", "pods", "--runs-dir"]
    assert main([*words, str(tmp_path)]) == 0
    path = tmp_path / "default/figures/arms=pods/summary.tex"
    assert f"LaTeX: {path}" in capsys.readouterr().out
    text = path.read_text("ascii")
    begin, top, header, middle, *rows, bottom, _ = text.splitlines()
    assert [top, middle, bottom] == [rf"\{name}rule" for name in ("top", "mid", "bottom")]
    assert header.startswith(r"series & update.lr & runs & mean\_accuracy & final\_accuracy & ")
    for row, rate in zip(rows, ("0.0001", "0.5"), strict=True):
        series, value, runs, _, final, *_ = row.split(" & ")
        assert (series, value, runs) == (r"pods 64$\to$16", rate, "2")
        assert final == r"0.750 $\pm$ 0.250"
    columns = begin.partition("}{")[2].count("l")
    assert {line.count("&") + 1 for line in (header, *rows)} == {columns}


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
    """Return the lines with markers of the panel by colour."""
    lines = [line for line in spec.draw().axes[0].lines if len(line.get_xdata())]
    return {line.get_color(): line for line in lines if line.get_marker() not in ("", "None")}


def test_markers_stand_where_runs_were_evaluated_and_an_arm_keeps_its_colour(loaded):
    """The window ends at 10 s, so pods' third marker, at 12 s, is outside of the curve."""
    colours = {name: COLOURS[loaded.order.index(name)] for name in loaded.order}
    marks = curves_of(accuracy(loaded, tables(loaded)))
    grpo, pods = (marks[colours[name]] for name in ("grpo 16→16", "pods 64→16"))
    assert grpo.get_xdata().tolist() == [0.0, 10.0]
    assert grpo.get_ydata().tolist() == pytest.approx([0.0, 50.0])
    assert pods.get_xdata().tolist() == [0.0, 4.0]
    assert pods.get_ydata().tolist() == pytest.approx([25.0, 75.0])
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


def test_the_line_of_a_single_run_goes_through_its_evaluations(tmp_path):
    """At 3.1 s no point of a grid of 60 lies, and the line would cut the peak."""
    write_run(tmp_path, [(0, 0.0, 0), (1, 3.1, 8), (2, 12.0, 2)], "study=s",
              "checkpoint.every_train_seconds=3.0", "checkpoint.every_steps=null")  # fmt: skip
    loaded = load(tmp_path / "s", run_folders(tmp_path / "s"))
    lines = accuracy(loaded, tables(loaded)).draw().axes[0].lines
    [line] = [line for line in lines if len(line.get_xdata()) > 3]
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[3.1] == 100
    [marks] = curves_of(accuracy(loaded, tables(loaded))).values()
    assert marks.get_xdata().tolist() == [0.0, 3.1, 12.0]
    assert marks.get_ydata().tolist() == pytest.approx([0.0, 100.0, 25.0])


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
    assert ends == pytest.approx([75.0] * 4)
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 1 / 3
    inside, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert inside.x0 >= 0 and inside.x1 <= whole.x1


def test_a_legend_of_many_long_names_leaves_a_single_panel_its_place(tmp_path):
    same = ("task=gsm8k", "model=smollm2_135m", "arm=pods", "study=s", "dry_run=true")
    for grader, temperature, lr in itertools.product(
        ("exact", "lenient"), (0.9, 1.0), (1e-5, 3e-5)
    ):
        keys = (f"task.grader={grader}", f"sampling.temperature={temperature}", f"update.lr={lr}")
        write_run(tmp_path, [(0, 0.0, 0), (2, 10.0, 2)], *same, *keys)
    loaded = load(tmp_path / "s", run_folders(tmp_path / "s"), allow=True)
    curves = tables(loaded).curves
    slope = curves[curves.metric == "accuracy"]
    figure = specs._metrics(loaded, "training", "One panel.", slope).draw()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns if nothing is left for the panel
        figure.draw_without_rendering()
    assert figure.axes[0].get_window_extent().height > 2 * figure.dpi


def legend_of(figure):
    """Return the title and the labels of the legend in a figure's only panel."""
    (axes,) = figure.axes
    legend = axes.get_legend()
    return legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]


def test_accuracy_is_one_panel_in_percent_with_a_legend_in_the_order_of_the_ends(loaded):
    figure = accuracy(loaded, tables(loaded)).draw()
    title, labels = legend_of(figure)
    assert title == "mean ± 1 standard error, 2 seeds"
    assert labels == ["pods 64→16", "random 64→16", "grpo 16→16"]  # 93.75, 93.75 and 50 at 10 s
    assert figure.axes[0].get_ylabel() == "test accuracy (%)"
    assert figure.axes[0].get_xlabel() == "training time (s)"
    assert figure.axes[0].get_title() == ""
    assert accuracy(loaded, tables(loaded)).caption.endswith(
        "Each value is of 2 passes over 4 questions. s: 10 s per run, on A CPU."
    )


def test_a_legend_counts_the_seeds_of_each_arm_where_they_differ(study):
    grpo = [run for run in run_folders(study / "s") if "all-" in str(run)]
    some = [run for run in run_folders(study / "s") if run != grpo[1]]
    part = load(study / "s", some, allow=True)
    figure = accuracy(part, tables(part)).draw()
    title, labels = legend_of(figure)
    assert title == "mean ± 1 standard error"
    assert labels == ["pods 64→16 (2 seeds)", "random 64→16 (2 seeds)", "grpo 16→16 (1 seed)"]
    assert "INCOMPLETE: 1 missing" in figure.axes[0].get_title()
    alone = load(study / "s", grpo[:1])
    assert legend_of(accuracy(alone, tables(alone)).draw()) == ("1 seed", ["grpo 16→16"])


def test_the_axes_say_what_is_drawn_over_what(loaded):
    for end, label in ((299.0, "(s)"), (300.0, "(min)"), (7200.0, "(h)")):
        axes = Figure().subplots()
        x_axis(axes, loaded, end)
        assert axes.get_xlabel() == f"training time {label}"
    by_step = apply_filter(loaded, StudyFilter(x="steps", metric="pass@2"))
    axes = accuracy(by_step, tables(by_step)).draw().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training steps", "pass@2 (%)")
    reward = replace(
        loaded, metric="eval_reward", share=False
    )  # of another trainer: it need be no share
    axes = accuracy(reward, tables(reward)).draw().axes[0]
    assert axes.get_ylabel() == "eval_reward" and axes.get_ylim()[1] < 2


def test_differences_and_the_cost_of_a_step_are_figures_of_their_own(loaded):
    """By hand at 10 s: 0.75 + 0.25 * 6 / 8 against 0.5; steps of 6 s against 5 s."""
    figure = difference(loaded, differences(loaded)).draw()
    assert legend_of(figure) == ("mean, 95 % t interval, 2 seeds", ["pods 64→16", "random 64→16"])
    assert figure.axes[0].get_ylabel() == "points above grpo 16→16"
    ends = [line.get_ydata()[-1] for line in figure.axes[0].lines if len(line.get_xdata()) == 61]
    assert ends == pytest.approx([43.75, 43.75])
    (axes,) = step_cost(loaded, tables(loaded)).draw().axes
    assert axes.get_xlabel() == "time per step (s); ×: relative to grpo 16→16"
    assert {text.get_text() for text in axes.texts} == {" 5.00 s", " 6.00 s\n 1.20×"}


def test_a_legend_covers_no_curve(loaded, monkeypatch):
    """It stands below a panel that has too little room for it."""
    for height, below in ((style.HEIGHT, False), (1.6, True)):
        monkeypatch.setattr(style, "HEIGHT", height)
        with style.screen():
            figure = accuracy(loaded, tables(loaded)).draw()
            figure.draw_without_rendering()
        assert bool(figure.legends) == below
        legends = figure.legends or [figure.axes[0].get_legend()]
        box = legends[0].get_window_extent()
        curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
        assert curves
        for line in curves:
            assert not box.count_contains(line.get_transform().transform(line.get_xydata()))


def swept(folder, *words_of_each):
    """Finish some runs, and let a sweep of them end; return what is drawn of the study s."""
    configs = []
    for words in words_of_each:
        write_run(folder, A, "study=s", *words.split())
        configs.append(composed(f"runs_dir={folder}", *BASE, "study=s", *words.split()))
    sweep.run(configs, Backend(1, lambda jobs: False))
    return drawn_in(folder / "s" / "figures")


def drawn_in(figures):
    """Return each curve of the tables beside a figure, with the number of its runs."""
    summary = pd.read_csv(figures / "summary.csv")
    about = json.loads((figures / "accuracy_vs_time.json").read_text())
    assert len(about["runs"]) == summary.runs.sum()
    return dict(zip(summary.arm, summary.runs, strict=True))


def test_a_sweep_of_new_seeds_or_a_new_arm_draws_the_whole_study(tmp_path, one_format, capsys):
    first = [f"arm={arm} seed={seed}" for seed in (0, 1) for arm in ("pods", "grpo")]
    assert swept(tmp_path, *first) == {"pods": 2, "grpo": 2}
    assert swept(tmp_path, "arm=pods seed=2", "arm=grpo seed=2") == {"pods": 3, "grpo": 3}
    more = [f"arm=random seed={seed}" for seed in (0, 1, 2)]
    assert swept(tmp_path, *more) == {"pods": 3, "grpo": 3, "random": 3}
    assert not [path for path in (tmp_path / "s" / "figures").iterdir() if path.is_dir()]
    assert "cannot be drawn" not in capsys.readouterr().out


def test_a_sweep_whose_study_has_gaps_draws_its_own_runs_in_a_folder_of_their_own(
    tmp_path, one_format, capsys
):
    """The other arm lacks a seed; the questions are asked at another temperature."""
    whole = swept(tmp_path, "arm=pods seed=0", "arm=grpo seed=0")
    before = contents(tmp_path / "s" / "figures")
    for words, reason in (
        ("arm=pods seed=1", "grpo 16→16 seed 1: never run"),
        ("arm=pods seed=1 evaluation.temperature=0.5", "temperature"),
    ):
        capsys.readouterr()
        assert swept(tmp_path, words) == whole
        said = capsys.readouterr().out
        assert reason in said and f"`pods plot {tmp_path / 's'}` says all" in said
        (line,) = [line for line in said.splitlines() if line.startswith("figure: ")]
        part = Path(line.split()[1]).parent
        assert re.fullmatch("runs=1-[0-9a-f]{8}", part.name)
        assert list(drawn_in(part).values()) == [1]
    after = contents(tmp_path / "s" / "figures")
    assert {name: after[name] for name in before} == before


def test_a_sweep_over_studies_draws_each(tmp_path, one_format):
    configs = []
    for study in ("a", "b"):
        write_run(tmp_path, A, f"study={study}")
        configs.append(composed(f"runs_dir={tmp_path}", *BASE, f"study={study}"))
    sweep.run(configs, Backend(1, lambda jobs: False))
    for study in ("a", "b"):
        assert drawn_in(tmp_path / study / "figures") == {"max_variance": 1}


def test_a_comparison_of_named_arms_leaves_the_tables_of_all_arms(study, capsys):
    def compared(*words):
        assert main(["compare", "--study", "s", "--runs-dir", str(study), *words]) == 0
        folder = Path(capsys.readouterr().out.splitlines()[-1].removeprefix("tables: ")).parent
        return folder, set(pd.read_csv(folder / "compare.arms.csv").arm)

    everything = compared()
    assert everything == (study / "s" / "figures", {"grpo", "pods", "random"})
    before = contents(everything[0])
    folder, arms = compared("grpo", "random")
    assert (folder.name, arms) == ("compare=grpo,random", {"grpo", "random"})
    folder, arms = compared("random", "--until", "4")  # with the GRPO arm
    assert (folder.name, arms) == ("until=4,compare=random", {"grpo", "random"})
    folder, _ = compared("pods 64->16", "grpo")
    assert folder.name.startswith("compare=pods-64--16,grpo-")
    after = contents(everything[0])
    assert {name: after[name] for name in before} == before


def test_some_of_a_studys_runs_are_written_apart_whoever_writes(study, one_format):
    """Paths may be absolute or not, and the runs in any order."""
    runs = run_folders(study / "s")
    assert folder_for(study / "s", runs[::-1], StudyFilter()) == study / "s" / "figures"
    few = [run for run in runs if "seed0" in run.name]
    (*_, line) = draw(study / "s", few)
    assert Path(line.split()[1]).parent.name.startswith("runs=3-")
    (*_, line) = compare_study(study / "s", few, StudyFilter(("pods", "grpo")))
    assert Path(line.split()[-1]).parent.name.startswith("arms=pods,grpo,runs=3-")


@pytest.mark.parametrize(
    ("command", "words"),
    [("plot s", "final_accuracy"), ("compare --study s", "pods 64→16 is 45.63 points above")],
)
def test_what_was_found_is_printed_where_nothing_can_be_written(
    study, tmp_path, capsys, command, words
):
    shutil.copytree(study / "s", tmp_path / "s", ignore=shutil.ignore_patterns("figures"))
    (tmp_path / "s" / "figures").write_text("a file, so that no folder can be made")
    assert main([*command.split(), "--runs-dir", str(tmp_path)]) != 0
    printed = capsys.readouterr()
    assert words in printed.out
    assert "figures: Not a directory" in printed.err
