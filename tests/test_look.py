"""How a figure of the accuracy can be changed, and where its markers stand."""

import json

import matplotlib.colors
import pytest
from studies import A, B, draw_in_one_format, write_run

from pods.analysis import curve_plots, load, plots
from pods.analysis.figures import accuracy
from pods.analysis.look import PAPER, Look
from pods.analysis.tables import tables
from pods.analysis.view import View, choose
from pods.cli.main import main


@pytest.fixture
def study(tmp_path):
    """Return runs of pods evaluated at 0, 4 and 12 s, and of grpo at 0 and 10 s."""
    for seed in range(2):
        for arm, points in (("grpo", B), ("pods", A)):
            write_run(tmp_path, points, "study=s", f"arm={arm}", f"seed={seed}")
    return tmp_path


def drawn(study, look):
    return accuracy(study, tables(study), look).draw()


def test_markers_stand_where_runs_were_evaluated_and_nowhere_else(study):
    """The window ends at 10 s, so pods' third marker, at 12 s, is outside of the curve."""
    left = drawn(load(study / "s"), PAPER).axes[0]
    marks = {
        line.get_color(): line
        for line in left.lines
        if line.get_marker() != "" and len(line.get_xdata()) > 0
    }
    grpo, pods = (marks[plots.COLOURS[index]] for index in (0, 1))
    assert grpo.get_xdata().tolist() == [0.0, 10.0]
    assert grpo.get_ydata().tolist() == pytest.approx([0.0, 0.5])
    assert pods.get_xdata().tolist() == [0.0, 4.0, 12.0]
    assert pods.get_ydata()[:2] == pytest.approx([0.25, 0.75])


def test_markers_are_at_the_mean_time_of_the_kth_evaluation(tmp_path):
    for seed, at in enumerate((5.0, 7.0)):
        write_run(tmp_path, [(0, 0.0, 2), (1, at, 4), (2, 2 * at, 6)], "study=s", f"seed={seed}")
    found = load(tmp_path / "s")
    [series] = found.runs.series.unique()
    assert curve_plots.measured(found, "accuracy", series).tolist() == [0.0, 6.0, 12.0]
    assert len(curve_plots.measured(found, "generated_rollouts", series)) == 0  # of every step


def test_a_look_changes_what_it_names(study):
    found = load(study / "s")
    axes = drawn(found, Look(panel="accuracy", xlim=(1.0, 5.0), ylim=(0.2, 0.9), title="T")).axes
    assert len(axes) == 1
    assert (axes[0].get_xlim(), axes[0].get_ylim()) == ((1.0, 5.0), (0.2, 0.9))
    figure = drawn(found, PAPER)
    assert figure.get_figwidth() == 3.25 and figure.get_suptitle() == ""
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy"]
    bars = drawn(found, Look(panel="time")).axes[0]
    assert "time per step" in bars.get_xlabel()


def test_the_band_is_the_one_that_was_chosen(tmp_path):
    """Accuracies 0.25 and 0.75 at the end: stderr 0.25, and t(1 df) = 12.706 times that."""
    for seed, right in enumerate((2, 6)):
        write_run(tmp_path, [(0, 0.0, 0), (2, 10.0, right)], "study=s", f"seed={seed}")
    found = load(tmp_path / "s")
    for band, half in (("se", 0.25), ("t95", 0.25 * 12.7062)):
        [area] = [
            each
            for each in drawn(found, Look(panel="accuracy", band=band)).axes[0].collections
            if each.get_alpha() == 0.25
        ]
        top = max(y for x, y in area.get_paths()[0].vertices if x == 10.0)
        assert top == pytest.approx(0.5 + half, rel=1e-4)
    assert not [
        each
        for each in drawn(found, Look(panel="accuracy", band="none")).axes[0].collections
        if each.get_alpha() == 0.25
    ]


def test_labels_stand_in_legend_table_and_comparison(study, capsys):
    found = choose(load(study / "s"), View(("pods", "grpo"), labels={"pods": "PODS (ours)"}))
    legend = drawn(found, PAPER).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "PODS (ours)  (n=2)", "grpo 16→16  (n=2)",  # in the order of the choice
    ]  # fmt: skip
    words = ["--study", "s", "--runs-dir", str(study), "--label", "pods=PODS (ours)"]
    assert main(["compare", *words]) == 0
    assert "PODS (ours) vs grpo 16→16" in capsys.readouterr().out


def test_the_file_is_the_one_that_was_named(study, tmp_path, capsys, monkeypatch):
    draw_in_one_format(monkeypatch)
    style = tmp_path / "mine.mplstyle"
    style.write_text("lines.linewidth: 7\naxes.facecolor: ff0000\n")
    out = tmp_path / "fig1.svg"
    verb = ["plot", "s", "--runs-dir", str(study)]
    assert main([*verb, "--paper", "--style", str(style), "--out", str(out)]) == 0
    assert "caption: Accuracy against training time. " in capsys.readouterr().out
    assert (
        "stroke-width: 7" in out.read_text() and matplotlib.colors.to_hex("red") in out.read_text()
    )
    assert json.loads(out.with_suffix(".json").read_text())["figure"] == "accuracy_vs_time"
    before = sorted(path.name for path in (study / "s/figures").iterdir())
    assert "accuracy_vs_time.svg" not in before


def test_long_names_leave_the_curves_their_place(tmp_path):
    """Names of over 50 characters: the curves keep a third of the width, the legend is inside."""
    for seed in range(2):
        for lenient in ("exact", "lenient"):
            for temperature in (0.9, 1.0):
                for where in ("one", "sampling"):
                    keys = (f"task.grader={lenient}", f"sampling.temperature={temperature}")
                    keys += ("task=gsm8k", "model=smollm2_135m", "arm=pods", "study=s")
                    keys += (f"update.logprob_temperature={where}", "dry_run=true")
                    write_run(tmp_path, A, *keys, f"seed={seed}")
    found = load(tmp_path / "s", allow_mixed=True)
    assert min(map(len, found.runs.series)) > 50
    figure = drawn(found, Look())
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 1 / 3
    [legend] = figure.legends
    inside, whole = legend.get_window_extent(), figure.bbox
    assert inside.x0 >= 0 and inside.x1 <= whole.x1


def test_the_caption_of_a_figure_without_title_says_what_is_missing(study):
    gone = next((study / "s").glob("*/*/seed1-*/evaluations/step-000002.jsonl"))
    gone.unlink()
    found = load(study / "s", allow_missing=True)
    assert accuracy(found, tables(found), PAPER).caption.endswith("INCOMPLETE: 1 missing")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--width 0.5", "width=0.5: must be 1.5 to 40 inches"),
        ("--xlim 3", "xlim=3: must be LOW,HIGH, two numbers"),
        ("--ylim 1,0", "ylim=1,0: must be LOW,HIGH"),
        ("--panel left", "panel=left: must be one of all, accuracy, differences, time"),
        ("--band sd", "band=sd: must be one of se, t95, none"),
        ("--style nowhere", "style=nowhere: must be a matplotlib style file"),
        ("--out fig.gif", "out=fig.gif: must end in .png, .pdf, .svg"),
        ("--paper --all", "--overlay and --all: cannot be combined with the look of one figure"),
        ("--label pods", "label=pods: must be ARM=TEXT"),
        ("--label pods=grpo 16→16", "must be a text that no other arm has"),
        ("--label nothing=x", "arm 'nothing' is unknown"),
        ("--paper --panel differences --arms pods", "panel=differences: needs a baseline"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(study, words, line, capsys):
    typed = words.split(" ", 3) if words.startswith("--label pods=") else words.split()
    if words.startswith("--label pods="):
        typed = ["--label", words.removeprefix("--label ")]
    assert main(["plot", "s", "--runs-dir", str(study), *typed]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and line in shown
