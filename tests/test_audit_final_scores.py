"""`pods audit` of a table with one row for each run, under headers that no trainer uses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pods.analysis.numbers.sequential import interval_at_every_look
from pods.cli.main import main

SEEDS = range(6)
BASELINE = np.array([60.7, 61.2, 61.4, 58.4, 59.9, 61.0])  # percent right
GAINS = np.array([1.5, 3.5, 2.0, 4.5, 0.5, 3.0])
OTHER = BASELINE + GAINS


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write the table with these hours of the two methods, and stand in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(baseline_hours, other_hours):
        lines = ["Trainer variant,Random init #,Held-out correct [%],Elapsed wall clock [h]"]
        for name, scores, hours in (
            ("vanilla", BASELINE, baseline_hours),
            ("trick", OTHER, other_hours),
        ):
            lines += [f"{name},{seed},{scores[seed]},{hours[seed]}" for seed in SEEDS]
        (tmp_path / "results.csv").write_text("\n".join(lines))

    return write


def verdict(capsys, *words):
    assert main(["audit", "results.csv", *words]) == 0
    return capsys.readouterr().out


def test_the_verdict_is_the_paired_t_test_of_scipy(table, capsys):
    table([3.0] * 6, [3.0] * 6)
    said = verdict(capsys)
    test = stats.ttest_rel(OTHER, BASELINE)
    low, high = test.confidence_interval()
    assert f"is {np.mean(OTHER - BASELINE):.2f} points above vanilla" in said
    assert f"(95 % interval {low:.2f} to {high:.2f}, p = {test.pvalue:.2g})" in said
    assert "'Trainer variant' says of which run a row is" in said
    assert "nothing is compared" not in said  # all hours are equal


def test_a_final_score_is_told_once(tmp_path, monkeypatch, capsys):
    """A mean over a time of no length is the final score, and was said twice."""
    monkeypatch.chdir(tmp_path)
    rows = [f"a,{seed},{BASELINE[seed] / 100}" for seed in SEEDS]
    rows += [f"b,{seed},{OTHER[seed] / 100}" for seed in SEEDS]
    (tmp_path / "results.csv").write_text("\n".join(["method,seed,accuracy", *rows]))
    said = verdict(capsys)
    assert said.count("Told apart") == 1 and "mean_accuracy" not in said
    assert "\naccuracy in percent at 1 steps: mean over runs" in said
    assert "What is before" not in said
    page = (tmp_path / "pods-audit/report.html").read_text()
    [arms] = re.findall("<h2>Arms</h2>.*?</table>", page, flags=re.DOTALL)
    assert "final_accuracy" in arms and "mean_accuracy" not in arms


def test_the_mean_of_one_score_is_not_printed_beside_it(table, capsys):
    table([3.0] * 6, [3.0] * 6)
    text = verdict(capsys)
    sentences = [line for line in text.splitlines() if "points above vanilla" in line]
    assert [line.partition(":")[0] for line in sentences] == ["Over seconds", "Over steps"]
    assert text.count("Final Held-out correct [%]") == len(sentences)
    assert "mean_accuracy" not in text and "Mean Held-out" not in text
    content = json.loads(Path("pods-audit/audit.json").read_text())
    over = content["over"]["steps"]
    assert over["settings"]["primary_outcome"] == "final_accuracy"
    assert len(over["verdicts"]) == len(over["decisions"]) == 1


def test_hours_that_no_two_runs_share_are_said_and_nothing_is_compared_over_them(table, capsys):
    table([2.91, 2.97, 2.98, 3.02, 2.95, 2.99], [3.1, 3.11, 3.12, 3.13, 3.14, 3.15])
    said = verdict(capsys)
    assert "nothing is compared over seconds, since no span of them is covered by all" in said
    assert "vanilla 0 ends at 10,476, and the first score of trick 5 is at 11,340" in said
    assert "Over steps: Told apart" in said and "Over seconds" not in said


def test_a_mapping_that_init_wrote_can_be_used_as_it_is(table, capsys):
    table([3.0] * 6, [3.0] * 6)
    assert main(["audit", "results.csv", "--init"]) == 0
    assert "points above vanilla" in verdict(capsys, "--map", "pods-audit.yaml")


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Approach,Replicate,solve rate", "solve rate"),
        ("algo,seed,test accuracy", "test accuracy"),
        ("agent,rng,Win rate", "Win rate"),
    ],
)
def test_other_headers_are_understood(header, key, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"a,{seed},{BASELINE[seed] / 100}" for seed in SEEDS]
    rows += [f"b,{seed},{OTHER[seed] / 100}" for seed in SEEDS]
    (tmp_path / "results.csv").write_text("\n".join([header, *rows]))
    said = verdict(capsys)
    assert f"score: {key} (proposed)" in said
    assert "a is 2.50 points below b" in said


def test_a_plan_is_judged_and_without_one_all_explores(table, capsys):
    table([3.0] * 6, [3.0] * 6)
    assert verdict(capsys).startswith("no plan: what follows explores\n\nOver seconds: ")
    Path("plan.yaml").write_text(
        'contrasts: ["trick over vanilla: ahead by 1 to 2"]\noutcome: final_accuracy\nx: steps\n'
    )
    heading, line, *_ = verdict(capsys, "--plan", "plan.yaml").splitlines()
    assert re.match("plan [0-9a-f]{12}, of which nothing tells if it was made before", heading)
    low, high = interval_at_every_look(GAINS, 0.05)
    assert low < 0 and line.startswith(
        "Final Held-out correct [%]: trick over vanilla is open after 6 seeds: 2.50 points above "
        f"(95 %: {low:.2f} to {high:.2f}); about "
    )
    assert line.endswith("about 1 more seed would decide it; expected ahead by 1 to 2.")
    assert json.loads(Path("pods-audit/audit.json").read_text())["planned"] == [heading, line]
    for text, said in (
        (
            "contrast: [a over b]",
            "plan.contrast=['a over b']: no such key; did you mean ",
        ),
        ("margin: -1", "plan.margin=-1: must be a number >= 0"),
        ("contrasts: [a]", "plan.contrasts=['a']: 'a' must be ARM over BASELINE"),
        ("{", "--plan=plan.yaml: must be a YAML file of a plan: "),
        ("x: tokens", "plan.x=tokens: must be one of train_seconds, steps"),
    ):
        Path("plan.yaml").write_text(text)
        assert main(["audit", "results.csv", "--plan", "plan.yaml"]) == 2
        assert said in capsys.readouterr().err
