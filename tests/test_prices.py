"""Prices by hand: the clock of recorded steps, what shows it, and what cannot be priced."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import composed
from studies import pods, refused, write_run

from pods.analysis.compare.compare import compare
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.imports import Imported
from pods.analysis.loading.load import load
from pods.analysis.loading.prices import at_prices, step_cost
from pods.analysis.numbers.planned import judgements_of
from pods.config.price_card import CARDS, PriceCard, read_card
from pods.runs.plan import register
from pods.runs.store import run_folders
from pods_lab.published.tables import write_import

BY_STEPS = ("budget.train_seconds=null", "budget.max_steps=3", "checkpoint.every_steps=1",
            "checkpoint.every_train_seconds=null", "study=s")  # fmt: skip
EVERY = [(0, 0.0, 0), (1, 1.0, 2), (2, 2.0, 4), (3, 3.0, 8)]  # of 8 answers
NAMES = ("generated_rollouts", "trained_rollouts", "generated_tokens", "trained_tokens")
PODS = [dict(zip(NAMES, row, strict=True)) for row in
        ((128, 32, 1000, 300), (128, 16, 900, 100), (192, 32, 1500, 250))]  # fmt: skip
GRPO = [dict(zip(NAMES, row, strict=True)) for row in
        ((32, 32, 400, 400), (32, 0, 500, None), (32, 32, 600, 600))]  # fmt: skip
SECONDS = {"unit": "s", "per_step": 2, "per_generated_rollout": 0.25, "per_trained_rollout": 0.5,
           "fitted_to": "nothing, by hand", "does_not_cover": "anything"}  # fmt: skip
DOLLARS = SECONDS | {
    "unit": "$", "per_step": 0, "per_generated_rollout": 0, "per_trained_rollout": 0,
    "per_generated_token": 2.0e-6, "per_trained_token": 3.0e-6,
}  # fmt: skip
# pods: 2 + 128/4 + 32/2 = 50, 2 + 128/4 + 16/2 = 42, 2 + 192/4 + 32/2 = 66; grpo: 26, 10, 26
BY_HAND = {"pods": [0, 50, 92, 158], "grpo": [0, 26, 36, 62]}
# pods: 2 x 1000 + 3 x 300 = 2900, 2100, 3750 millionths; grpo: 2000, 2 x 500 + 3 x 0, 3000
IN_DOLLARS = {"pods": [0, 0.0029, 0.005, 0.00875], "grpo": [0, 0.002, 0.003, 0.006]}


def card(tmp_path, content, name="mine"):
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def study(tmp_path, seeds=(0,), more=(), pods_points=EVERY, grpo_points=EVERY):
    runs_dir = tmp_path / "runs"
    for seed in seeds:
        words = (*BY_STEPS, *more, f"seed={seed}")
        write_run(runs_dir, pods_points, *words, "arm=pods", busy=0.5, amounts=PODS)
        write_run(runs_dir, grpo_points, *words, "arm=grpo", busy=0.5, amounts=GRPO)
    return runs_dir / "s"


def loaded(folder):
    return load(folder, run_folders(folder), priced=True)


@pytest.mark.parametrize(
    ("content", "x", "by_hand", "pods_at_end", "label"),
    # both curves end with GRPO: at 62, after (62 - 50) / (92 - 50) of the way of PODS from 2 to 4
    # of 8 right answers, or at 0.006, after 0.001 / 0.00375 of its way from 4 to 8
    [(SECONDS, "train_seconds", BY_HAND, 0.25 + 0.25 * 12 / 42, "training time at prices mine"),
     (DOLLARS, "dollars", IN_DOLLARS, 0.5 + 0.5 * 1 / 3.75, "cost at prices mine")])  # fmt: skip
def test_three_steps_of_two_runs_cost_in_every_table_what_they_cost_on_paper(
    tmp_path, capsys, content, x, by_hand, pods_at_end, label
):
    folder = study(tmp_path)
    file = card(tmp_path, content)
    assert pods("plot", "s", "--all", "--runs-dir", folder.parent, "--prices", file) == 0
    out = capsys.readouterr().out
    figures = folder / "figures" / "prices=mine"
    name = "accuracy_vs_time" if x == "train_seconds" else "accuracy_vs_dollars"

    drawn = pd.read_csv(figures / f"{name}.runs.csv")
    for arm, costs in by_hand.items():
        assert list(drawn[drawn.arm == arm][x]) == pytest.approx(costs, rel=1e-5), arm

    curve = pd.read_csv(figures / f"{name}.csv")
    assert (curve[x] >= 0).all() and set(curve.clock) == {"at prices mine"}
    for arm, value in {"grpo": 1.0, "pods": pods_at_end}.items():
        last = curve[curve.arm == arm].iloc[-1]
        assert (last[x], last["mean"]) == pytest.approx((by_hand["grpo"][-1], value), rel=1e-5), arm

    runs = pd.read_csv(figures / "runs.csv").set_index("arm")
    per_step = "seconds_per_step" if x == "train_seconds" else "dollars_per_step"
    assert runs[per_step].grpo == pytest.approx(by_hand["grpo"][-1] / 3, rel=1e-5)
    nearest = 1 if x == "train_seconds" else 2  # to the end of the span: 50 to 62, 0.005 to 0.006
    assert runs.steps.pods == nearest and runs.steps.grpo == 3
    assert runs[per_step].pods == pytest.approx(by_hand["pods"][nearest] / nearest, rel=1e-5)

    about = json.loads((figures / f"{name}.json").read_text())
    assert f"against {label}" in about["caption"]
    assert about["prices"]["fitted_to"] == "nothing, by hand"
    assert "not what was measured" in about["note"] and "at prices mine" in out


def test_a_plan_is_judged_by_the_prices_as_they_were_when_it_was_registered(tmp_path):
    folder = study(tmp_path)
    file = card(tmp_path, SECONDS)
    register([composed(f"runs_dir={folder.parent}", "study=s",
                       f'plan.contrasts=["pods over grpo at {file}"]')])  # fmt: skip
    card(tmp_path, SECONDS | {"per_generated_rollout": 0})
    [judgement] = judgements_of(load(folder, run_folders(folder)))
    # until 62: GRPO's area is 26/8 + 10 x 3/8 + 26 x 3/4, that of PODS 50/8 + 12 x (1/4 + 9/28)/2
    grpo_area = 26 / 8 + 10 * 3 / 8 + 26 * 3 / 4
    pods_area = 50 / 8 + 12 * (1 / 4 + 9 / 28) / 2
    assert judgement.estimate == pytest.approx((pods_area - grpo_area) / 62)
    assert str(file) in str(judgement.question)


def test_no_measured_time_is_in_a_table_at_prices(tmp_path, capsys):
    folder = study(tmp_path)
    file = card(tmp_path, DOLLARS)
    at = ("--runs-dir", folder.parent, "--prices", file)
    assert pods("plot", "s", "--all", *at) == 0
    assert pods("compare", "--study", "s", *at) == 0
    assert pods("report", "s", *at) == 0
    figures = folder / "figures" / "prices=mine"
    assert [path.name for path in folder.glob("figures/*")] == ["prices=mine"]
    columns = set()
    for path in figures.glob("*.csv"):
        table = pd.read_csv(path)
        columns |= {*table}
        assert table.empty or set(table.clock) == {"at prices mine"}, path.name
    assert "dollars_per_step" in columns
    assert not [name for name in columns if "second" in name or "cpu" in name]

    runs = json.loads((figures / "compare.json").read_text())["runs"]
    assert not {"train_seconds", "budget_seconds", "cpu_share", "clock"} & {*runs[0]}
    page = (figures / "report.html").read_text()
    assert "Accuracy at equal dollars at prices mine" in page
    assert "seconds/" not in page and "The CPU was used" not in page


def test_what_is_compared_at_prices_says_so_in_each_sentence(tmp_path, capsys):
    folder = study(tmp_path, seeds=(0, 1, 2))
    assert pods("compare", "--study", "s", "--runs-dir", folder.parent,
                "--prices", card(tmp_path, DOLLARS)) == 0  # fmt: skip
    out = capsys.readouterr().out
    sentences = [line for line in out.splitlines() if "pods 64→16 is" in line]
    assert len(sentences) == 2 and all("accuracy at prices mine: " in line for line in sentences)
    assert "from $0 to $0.006 at prices mine" in out and "how many times as cheap" in out


def test_the_name_of_a_card_stands_on_the_axis():
    from matplotlib.figure import Figure

    from pods.analysis.figures.style import x_axis

    steps = pd.DataFrame(
        {"series": "a", "seed": 0, "run": "r", "step": [1, 2], "generated_rollouts": [10, 10],
         "trained_rollouts": [2, 4], "generated_tokens": 1e6, "trained_tokens": 1e6})  # fmt: skip
    for name, label in {"l40s": "training time at prices l40s (s)",
                        "hosted": "cost at prices hosted ($)"}.items():  # fmt: skip
        axes = Figure().subplots()
        x_axis(axes, at_prices(logged(steps), read_card(name)), 100.0)
        assert axes.get_xlabel() == label


def logged(steps, evaluated=(0, 2)):
    """Return a study of one run with these steps."""
    from pods.analysis.loading.study import Study

    key = {"series": "a", "seed": 0, "run": "r"}
    runs = pd.DataFrame([key | {"arm": "a", "n": 2, "m": 1, "prompts": 1, "complete": True,
                                "machine": "A CPU", "cpu_share": 0.1}])  # fmt: skip
    rows = [key | {"step": step, "train_seconds": 0.1 * step, "accuracy": 0.5, "repeats": 1,
                   "questions": 4} for step in evaluated]  # fmt: skip
    return Study("a study", runs, pd.DataFrame(rows), steps, ["A CPU"], "2 steps", [], [], ["a"])


LOG = pd.DataFrame({"series": "a", "seed": 0, "run": "r", "step": [2, 1, 3],
                    "generated_rollouts": [8, 4, 8], "trained_rollouts": [1, 2, 4]})  # fmt: skip
BY_ROLLOUTS = PriceCard(name="mine", unit="s", per_step=1, per_generated_rollout=1,
                        per_trained_rollout=10, fitted_to="x", does_not_cover="y")  # fmt: skip


def test_the_order_of_the_lines_of_a_log_does_not_matter():
    priced = at_prices(logged(LOG, evaluated=(0, 1, 3)), BY_ROLLOUTS)
    # 1 + 4 + 20 = 25, then 1 + 8 + 10 = 19, then 1 + 8 + 40 = 49
    assert list(priced.steps.train_seconds) == [44, 25, 93]
    assert list(priced.evaluations.train_seconds) == [0, 25, 93]
    assert "cpu_share" not in priced.runs and np.isinf(priced.until)
    again = at_prices(priced, replace(BY_ROLLOUTS, per_step=2))
    assert list(again.evaluations.train_seconds) == [0, 26, 96]


@pytest.mark.parametrize(
    ("steps", "evaluated", "said"),
    [(LOG.drop(columns="trained_rollouts"), (0, 3), "must log trained_rollouts of each step"),
     (LOG.assign(generated_rollouts=[8, None, 8]), (0, 3), "must log generated_rollouts of each"),
     (LOG[LOG.step > 1], (0, 3), "must log every step from the first, and lacks step 1"),
     (LOG[LOG.step != 2], (0, 3), "must log every step from the first, and lacks step 2"),
     (LOG, (0, 4), "must log every step up to its evaluation at 4"),
     (LOG.iloc[:0], (0, 3), "must log generated_rollouts of each step")])  # fmt: skip
def test_a_run_that_does_not_log_what_has_a_price_is_named(steps, evaluated, said):
    with pytest.raises(ValueError, match=rf"^prices=mine: a seed 0 {said}[^\n]*$"):
        at_prices(logged(steps, evaluated), BY_ROLLOUTS)


def test_a_step_that_generated_nothing_is_not_free():
    without_base = replace(BY_ROLLOUTS, per_step=0)
    nothing = LOG.assign(generated_rollouts=[0, 4, 8], trained_rollouts=0)
    with pytest.raises(ValueError, match="a seed 0 must pay for each step, and step 2 is free"):
        at_prices(logged(nothing), without_base)


def test_imported_logs_without_steps_have_no_prices(tmp_path, capsys):
    table = {"run": ["a"], "series": "a", "seed": 0}
    about = {"machines": ["A GPU"], "budget": "1 h", "note": "", "missing": [], "until": 60}
    runs = pd.DataFrame(table | {"arm": "a", "rule": "all", "n": 4, "m": 4, "groups": 1,
                                 "prompts": 1, "machine": "A GPU", "complete": True})  # fmt: skip
    rows = pd.DataFrame(table | {"step": 3, "train_seconds": 60.0, "accuracy": 0.5, "format": 1.0,
                                 "both": 0.5, "length": 9, "repeats": 1,
                                 "questions": 4})  # fmt: skip
    write_import(Imported(runs, rows, about), tmp_path / "logs")
    line = refused(capsys, "plot", "logs", "--runs-dir", tmp_path, "--prices", "l40s")
    assert "prices=l40s: a seed 0 must log generated_rollouts of each step" in line


@pytest.mark.parametrize("name", [path.stem for path in sorted(CARDS.glob("*.yaml"))])
def test_each_card_prices_a_step_says_what_it_is_of_and_what_it_is_not(name):
    found = read_card(name)
    step = pd.DataFrame({"generated_rollouts": [64], "trained_rollouts": [16],
                         "generated_tokens": [64 * 300], "trained_tokens": [16 * 300]})  # fmt: skip
    small = step // 4 * 1.0
    cheaper = small.assign(trained_rollouts=4)
    assert step_cost(found, step)[0] > step_cost(found, cheaper)[0] > 0
    assert len(found.fitted_to) > 40 and "20" in found.fitted_to  # a year
    assert len(found.does_not_cover) > 40 and found.formula()


def test_the_prices_of_the_l40s_are_the_published_fit():
    # 4.4 + 0.058 x 64 + 0.123 x 16 = 4.4 + 3.712 + 1.968
    step = pd.DataFrame({"generated_rollouts": [64], "trained_rollouts": [16]})
    assert step_cost(read_card("l40s"), step) == pytest.approx([10.08])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"per_step": 0, "per_generated_rollout": 0},
      "per_step=0.0: must be a number > 0, or per_generated_rollout or per_generated_token"),
     ({"per_step": -1}, "per_step=-1: must be a number >= 0"),
     ({"per_step": float("nan")}, "per_step=nan: must be a number >= 0"),
     ({"per_trained_rollout": float("inf")}, "per_trained_rollout=inf: must be a number >= 0"),
     ({"per_generated_rollout": "0.1 s"}, "per_generated_rollout=0.1 s: must be a number >= 0"),
     ({"per_step": True}, "per_step=True: must be a number >= 0"),
     ({"per_step": None}, "per_step=null: must be a number >= 0"),
     ({"unit": "h"}, "unit=h: must be one of s, $"),
     ({"prompts_per_step": 0}, "prompts_per_step=0: must be an integer >= 1, or null"),
     ({"per_rollout": 1}, "per_rollout=1: no such key; a card has unit, per_step, "),
     ({"name": "l40s"}, "name=l40s: no such key; a card has unit, per_step, "),
     ({"fitted_to": ""}, "fitted_to=: must say it in words"),
     ({"fitted_to": "two\nlines"}, "fitted_to=two\\nlines: must be text on one line"),
     ({"fitted_to": ...}, "fitted_to=: missing: what prices were fitted to, with source"),
     ({"does_not_cover": ...}, "does_not_cover=: missing: for which runs the prices are wrong"),
     ({"per_trained_rollout": ...}, "per_trained_rollout=: missing: further price of a rollout")],
)  # fmt: skip
def test_a_card_that_says_what_cannot_be_is_refused_in_a_line(tmp_path, capsys, change, said):
    content = {key: value for key, value in (SECONDS | change).items() if value is not ...}
    file = card(tmp_path, content)
    line = refused(capsys, "plot", "s", "--runs-dir", tmp_path, "--prices", file)
    assert line.startswith("error: prices=") and said in line


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "must be a YAML file of prices: "),
     ("4.4", "must be a YAML file with lines such as per_step: 4.4"),
     ("", "must be a YAML file with lines such as per_step: 4.4"),
     ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
     ("per_step: 1\nper_step: 2", "must have each key once"),
     ("1: 2", "1=2: no such key; a card has unit, "),
     (b"\xff\xfe\xfa", "must be a YAML file of prices: ")],
)  # fmt: skip
def test_a_file_that_is_no_card_is_refused_in_a_line(tmp_path, capsys, text, said):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert said in refused(capsys, "compare", "--runs-dir", tmp_path, "--prices", file)


def test_a_card_that_is_not_there_is_refused_with_those_that_are(tmp_path, capsys):
    names = ", ".join(sorted(path.stem for path in CARDS.glob("*.yaml")))
    line = refused(capsys, "report", "s", "--runs-dir", tmp_path, "--prices", "l41s")
    assert f"prices=l41s: must be one of {names}, or a YAML file such as ./mine.yaml" in line
    line = refused(capsys, "plot", "s", "--runs-dir", tmp_path, "--prices", tmp_path)
    assert "must be a YAML file, not a folder or a pipe" in line
    line = refused(capsys, "plot", "s", "--runs-dir", tmp_path, "--prices", "no.yaml")
    assert "prices=no.yaml: must be a YAML file of prices: [Errno 2]" in line


def test_steps_have_no_prices(tmp_path, capsys):
    line = refused(capsys, "plot", "--runs-dir", tmp_path, "--prices", "l40s", "--x", "steps")
    assert "x=steps: must be train_seconds with prices=l40s" in line


def test_the_run_that_ends_the_span_is_named_with_the_steps_that_it_lacks(tmp_path, capsys):
    folder = study(tmp_path, seeds=(0, 1))
    at = ("--runs-dir", folder.parent, "--prices", card(tmp_path, SECONDS))
    # GRPO's mean step costs 62 / 3, so that the 158 of PODS take it 158 / (62 / 3) = 7.6 steps
    span = ("At prices mine the span is 0 to 62 s, where grpo 16→16 seed 0 ends after 3 steps; "
            "8 steps would cover the 2 min 38 s of pods 64→16 seed 0.")  # fmt: skip
    assert pods("plot", "s", "--tables", *at) == 0
    assert span in capsys.readouterr().out.splitlines()
    assert pods("compare", "--study", "s", *at) == 0
    assert f"- {span}" in capsys.readouterr().out.splitlines()
    assert pods("plot", "s", "--tables", "--arms", "pods", *at) == 0
    alone = (
        "At prices mine the span is 0 to 2 min 38 s, where pods 64→16 seed 0 ends after 3 steps."
    )
    assert alone in capsys.readouterr().out.splitlines()


def test_a_chosen_span_must_be_covered_by_all(tmp_path, capsys):
    folder = study(tmp_path)
    at = ("--runs-dir", folder.parent, "--prices", card(tmp_path, SECONDS))
    # 62 / 3 a step: 100 take 4.8 steps
    said = ("until=100: must be covered by all runs; grpo 16→16 seed 0 ends at 62 s after 3 steps "
            "and needs 5 at prices mine")  # fmt: skip
    assert said in refused(capsys, "plot", "s", "--tables", "--until", "100", *at)
    assert said in refused(capsys, "compare", "--study", "s", "--until", "100", *at)
    assert pods("plot", "s", "--tables", "--until", "60", *at) == 0
    assert "accuracy averaged until 60 s" in capsys.readouterr().out
    assert (folder / "figures/prices=mine,until=60/curves.csv").is_file()


def test_a_run_without_an_evaluation_in_the_span_is_named(tmp_path, capsys):
    last_alone = [EVERY[0], EVERY[3]]
    more = ("checkpoint.every_steps=3",)
    folder = study(tmp_path, more=more, pods_points=last_alone, grpo_points=last_alone)
    at = ("--runs-dir", folder.parent, "--prices", card(tmp_path, SECONDS))
    line = refused(capsys, "plot", "s", "--tables", *at)
    assert ("pods 64→16 seed 0 has no evaluation after step 0 until 62 s, where grpo 16→16 seed 0 "
            "ends at prices mine") in line  # fmt: skip


def on(folder, **environment):
    """Let one of the runs have another environment."""
    path = run_folders(folder)[0] / "attempts/001/environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | environment))


def test_another_machine_is_no_inconsistency_at_prices(tmp_path, capsys):
    folder = study(tmp_path)
    on(folder, cpu="Another CPU")
    words = ("plot", "s", "--tables", "--runs-dir", folder.parent)
    assert pods(*words) == 2
    assert "machine: Another CPU" in capsys.readouterr().err
    assert pods(*words, "--prices", card(tmp_path, SECONDS)) == 0


def test_another_version_is_an_inconsistency_at_prices_too(tmp_path, capsys):
    folder = study(tmp_path)
    on(folder, packages={"torch": "2.12.0"})
    words = ("plot", "s", "--tables", "--runs-dir", folder.parent)
    assert pods(*words, "--prices", card(tmp_path, SECONDS)) == 2
    assert "torch: 2.1" in capsys.readouterr().err


def test_prices_of_other_prompts_per_step_are_said_to_be(tmp_path):
    chosen = StudyFilter(prices=replace(BY_ROLLOUTS, prompts_per_step=8))
    priced = apply_filter(loaded(study(tmp_path)), chosen)
    assert "The prices are those of prompts_per_step=8, and these runs have 2." in priced.note
    fitting = StudyFilter(prices=replace(BY_ROLLOUTS, prompts_per_step=2))
    assert "prompts_per_step" not in apply_filter(loaded(study(tmp_path / "2")), fitting).note


def test_prices_that_made_the_measured_clock_give_the_measured_comparison(tmp_path):
    priced = apply_filter(loaded(study(tmp_path)), StudyFilter(prices=read_card(
        str(card(tmp_path, SECONDS)))))  # fmt: skip
    timed = {
        arm: [(step, float(BY_HAND[arm][step]), right) for step, _, right in EVERY]
        for arm in BY_HAND
    }
    folder = study(tmp_path / "timed", pods_points=timed["pods"], grpo_points=timed["grpo"])
    measured = load(folder, run_folders(folder))
    assert measured.prices is None and measured.clock == "measured"
    ours, theirs = compare(priced), compare(measured)
    assert ours.window == theirs.window
    pd.testing.assert_frame_equal(ours.contrasts, theirs.contrasts)
    pd.testing.assert_frame_equal(ours.speedups, theirs.speedups)
