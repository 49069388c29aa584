"""The choice of arms, metric, window and baseline, on studies made by hand."""

import pytest
from studies import A, B, write_run

from pods.analysis.comparison.compare import compare
from pods.analysis.study import load
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
    assert (study / "s/figures/metric=both/compare.csv").is_file()
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
        (["--metric", "lenient"], "metric=lenient: must be one of accuracy, format, both"),
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
