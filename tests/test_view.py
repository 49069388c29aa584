"""The choice of arms, metric, window and baseline, on studies made by hand."""

import numpy as np
import pytest
from studies import A, B, draw_in_one_format, write_run

from pods.analysis.comparison.compare import compare
from pods.analysis.study import load
from pods.analysis.tables import tables
from pods.analysis.view import View, choose
from pods.cli.main import main
from pods.runs.store import run_folders


@pytest.fixture
def study(tmp_path):
    for seed in range(2):
        for arm, points in (("grpo", B), ("pods", A), ("random", A)):
            write_run(tmp_path, points, "study=s", f"arm={arm}", f"seed={seed}")
    return tmp_path


def test_window_by_hand(study):
    """Accuracies 2/8 at 0, 6/8 at 4 s; and 0 at 0, 4/8 at 10 s, so 0.2 at 4 s."""
    loaded = load(study / "s", run_folders(study / "s"))
    result = compare(choose(loaded, View(("pods", "grpo"), until=4.0))).contrasts
    rows = result.set_index("outcome")
    assert [*rows.loc["mean_accuracy", ["mean", "baseline_mean"]]] == pytest.approx([0.5, 0.1])
    assert [*rows.loc["final_accuracy", ["mean", "baseline_mean"]]] == pytest.approx([0.75, 0.2])


def test_baseline_is_the_named_arm(study):
    loaded = load(study / "s", run_folders(study / "s"))
    contrasts = compare(choose(loaded, View(baseline="random"))).contrasts
    assert {name.split()[0] for name in contrasts.baseline} == {"random"}
    assert {name.split()[0] for name in contrasts.series} == {"grpo", "pods"}


def test_a_choice_has_its_own_folder(study, capsys):
    where = ["--runs-dir", str(study)]
    assert main(["aggregate", "s", *where]) == 0
    before = {path.name: path.read_bytes() for path in (study / "s/figures").glob("*.csv")}
    assert main(["aggregate", "s", *where, "--arms", "pods,grpo", "--until", "4"]) == 0
    assert "figures/arms=pods,grpo,until=4" in capsys.readouterr().out
    assert main(["compare", "--study", "s", *where, "--metric", "both"]) == 0
    shown = capsys.readouterr().out
    assert "in mean share correct and in the format" in shown
    assert "\nshare correct and in the format in percent from 0 s to 10 s" in shown
    assert "accuracy" not in shown.replace("mean_accuracy", "").replace("final_accuracy", "")
    assert (study / "s/figures/metric=both/compare.csv").is_file()
    assert main(["aggregate", "s", *where, "--metric", "both"]) == 0
    assert "share correct and in the format at 10 s" in capsys.readouterr().out
    after = {path.name: path.read_bytes() for path in (study / "s/figures").glob("*.csv")}
    assert before == after


def test_folders_of_two_choices_differ():
    names = {View((arm,)).folder for arm in ("a/b", "a b", "a-b", "x" * 200, "x" * 201)}
    assert len(names) == 5
    assert all("/" not in name for name in names)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--arms", "pods,nothing"], "arm 'nothing' is unknown: must be one of "),
        (["--arms", "pods,pods"], "arms=pods,pods: must be different ones"),
        (
            ["--metric", "lenient"],
            "metric=lenient: must be one of accuracy, format, both, length, reward",
        ),
        (["--x", "tokens"], "x=tokens: must be one of train_seconds, steps, generated_tokens, tra"),
        (["--x", "rollouts"], "x=rollouts: must be one of train_seconds, steps, generated_tokens"),
        (
            ["--x", "steps", "--until", "0.5"],
            "must be at or after the first evaluation, at 1 steps",
        ),
        (["--until", "3"], "until=3: must be at or after the first evaluation, at 4 s"),
        (["--arms", "pods,random", "--baseline", "grpo"], "baseline=grpo: must be among the arms"),
    ],
)
def test_bad_choice_gives_one_line(study, capsys, typed, line):
    assert main(["aggregate", "s", "--runs-dir", str(study), *typed]) == 2
    error = capsys.readouterr().err.strip()
    assert line in error
    assert "\n" not in error


def test_arms_are_given_once(study, capsys):
    where = ["--study", "s", "--runs-dir", str(study)]
    assert main(["compare", "pods", "grpo", *where, "--arms", "pods"]) == 2
    assert "must be given once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("x", "ends"),
    [("steps", (1, 2)), ("generated_tokens", (100, 300)), ("trained_tokens", (40, 120))],
)
def test_x_is_the_sum_until_each_evaluation(study, x, ends):
    """Step s generates 100 s tokens and trains on 40 s of them; run a is evaluated at 0, 1, 2."""
    loaded = load(study / "s", run_folders(study / "s"))
    chosen = choose(loaded, View(("pods", "grpo"), x=x))
    at = chosen.evaluations.groupby("run")[x].agg(list)
    assert sorted(map(tuple, at)) == [(0, *ends)] * 2 + [(0, ends[1])] * 2
    made = tables(chosen)
    curve = made.curves.query("metric == 'accuracy' and series.str.startswith('pods')")
    middle = curve.iloc[(curve[x] - ends[0]).abs().argmin()]
    assert middle["mean"] == pytest.approx(np.interp(middle[x], (0, *ends), (2 / 8, 6 / 8, 1.0)))
    assert curve[x].iloc[-1] == ends[1]
    assert set(made.summary[f"end_{x}"]) == {ends[1]}
    assert made.summary.seconds_per_step.tolist() == [6.0, 5.0]  # 12 and 10 s in two steps


def test_the_figure_over_steps_says_so(study, monkeypatch, capsys):
    draw_in_one_format(monkeypatch)
    assert main(["plot", "s", "--runs-dir", str(study), "--x", "steps"]) == 0
    shown = capsys.readouterr().out
    assert "figures/x=steps/accuracy_vs_steps" in shown
    assert "accuracy at 2 steps" in shown


def test_arms_are_compared_over_steps(study, capsys):
    """By hand: (0.25, 0.75, 1) at steps 0, 1, 2 has a mean of 0.6875, and (0, 0.5) one of 0.25."""
    loaded = load(study / "s", run_folders(study / "s"))
    result = compare(choose(loaded, View(("pods", "grpo"), x="steps")))
    assert result.arms.mean_accuracy.tolist() == [0.6875, 0.25]
    peak = result.speedups.query("kind == 'peak'").iloc[0]  # 99 % of 0.5
    assert [peak.steps, peak.baseline_steps] == pytest.approx([0.49, 1.98])
    assert main(["compare", "--study", "s", "--runs-dir", str(study), "--x", "steps"]) == 0
    shown = capsys.readouterr().out
    assert "accuracy in percent from 0 steps to 2 steps: mean" in shown
    assert "median steps to a target" in shown


def test_the_training_reward_is_the_mean_of_the_steps_since_the_last_evaluation(study):
    """Step s has reward 0.1 s; run a is evaluated after steps 1 and 2, run b after step 2."""
    loaded = load(study / "s", run_folders(study / "s"))
    rows = choose(loaded, View(("pods", "grpo"), "reward")).evaluations
    assert rows[rows.series.str.startswith("pods")].accuracy.tolist() == pytest.approx(
        [0.1, 0.2] * 2
    )
    assert rows[rows.series.str.startswith("grpo")].accuracy.tolist() == pytest.approx([0.15] * 2)


@pytest.mark.parametrize("metric", ["length", "reward"])
def test_length_and_reward_are_drawn_and_not_compared(study, metric, capsys, monkeypatch):
    draw_in_one_format(monkeypatch)
    where = ["--runs-dir", str(study), "--metric", metric]
    assert main(["plot", "s", *where]) == 0
    svg = study / f"s/figures/metric={metric}/accuracy_vs_time.svg"
    assert {"length": "completion tokens", "reward": "training reward"}[metric] in svg.read_text()
    capsys.readouterr()
    assert main(["compare", "--study", "s", *where]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("must be a share here: accuracy, lenient, format, both")
    )
