"""`pods advise`: costs and gains by hand, what is read of a pilot, and a pilot that runs."""

import json

import numpy as np
import pytest
from compose import composed
from rows import table
from safetensors.numpy import load_file
from studies import refused, write_rollouts

from pods.cli.main import main
from pods.config.compose import compose
from pods.launch import job, local_backend
from pods.launch.backend import Backend
from pods.runs.files import append, read_lines
from pods.runs.freeze import freeze
from pods_lab.advise import advice
from pods_lab.advise.advice import (
    Pilot,
    advise,
    cost_weights,
    form_warning,
    pays,
    read_pilot,
)
from pods_lab.advise.progress import MEASURED, expected_progress
from pods_lab.advise.text import advice_lines
from pods_lab.advise.verb import _menu, _pilot, _run_command

MENU = [(2, 2), (8, 2), (4, 2)]
STEPS = {(2, 2): [1.0] * 3, (8, 2): [2.0] * 3, (8, 8): [5.0] * 3}
# 1 s at n = m = 2, 1/6 s per rollout more, and 1/2 s per rollout kept more: 4/3 s at (4, 2)


def by_mean(menu, rates, scales, groups):
    """Progress (n / m) to the mean success rate: at the rate p a pair with n = 4 m has 4^p."""
    mean = (rates[:, 0] / rates.sum(1)).mean()
    return np.array([(n / m) ** mean for n, m in menu])


def advised(monkeypatch, progress, rates, steps=STEPS, menu=MENU):
    monkeypatch.setattr(advice, "expected_progress", progress)
    seconds = {pair: np.array(each) for pair, each in steps.items()}
    return advise(menu, Pilot(seconds, np.array(rates), groups=1), seed=0)


def test_gain_is_progress_over_cost(monkeypatch):
    found = advised(monkeypatch, by_mean, [[3.0, 1.0]])
    first, four, two = found.rows
    assert [row["seconds"] for row in (first, four, two)] == pytest.approx([1, 2, 4 / 3])
    assert [row["progress"] for row in (four, two)] == pytest.approx([4**0.75, 2**0.75])
    assert [row["gain"] for row in (four, two)] == pytest.approx([4**0.75 / 2, 2**0.75 * 3 / 4])
    assert (found.success, found.best) == (0.75, 1)
    assert [row["time"] for row in found.rows] == ["measured", "measured", "predicted"]


def test_intervals_are_of_resampled_prompts_and_steps(monkeypatch):
    """Of two prompts, at 0 and 1, a quarter of the resamples has only the one or the other."""
    found = advised(monkeypatch, by_mean, [[1e-9, 1.0], [1.0, 1e-9]], menu=MENU[:2])
    four = found.rows[1]
    got = four["gain_low"], four["gain"], four["gain_high"]
    assert got == pytest.approx((0.5, 1, 2), rel=1e-6)
    # 3 of 30 solved: 4 % of the resamples have none, more than the 2.5 % below the interval
    found = advised(monkeypatch, by_mean, [[1.0, 1e-9]] * 3 + [[1e-9, 1.0]] * 27, menu=MENU[:2])
    assert found.rows[1]["gain_low"] == pytest.approx(0.5)
    # of two steps, at 2 and 6 seconds, the median of a resample is 2, 4 or 6
    slow = {**STEPS, (8, 2): [2.0, 6.0]}
    four = advised(monkeypatch, by_mean, [[1.0, 1.0]], slow).rows[1]
    assert [four[f"seconds{end}"] for end in ("_low", "", "_high")] == pytest.approx([2, 4, 6])
    assert [four[f"progress{end}"] for end in ("_low", "", "_high")] == pytest.approx([2, 2, 2])
    assert [four[f"gain{end}"] for end in ("_low", "", "_high")] == pytest.approx([1 / 3, 1 / 2, 1])


def test_a_gain_is_advised_if_its_interval_is_above_1(monkeypatch):
    """Prompts at 0.4 and 1: resamples gain 0.87, 1.32 or 2; prompts at 3/4 all the same 1.41."""

    def said(rates, **options):
        found = advised(monkeypatch, by_mean, rates, **options)
        return found, "\n".join(advice_lines(found))

    found, text = said([[4e6, 6e6], [1e6, 1e-9]], menu=MENU[:2])
    assert text.endswith("Train with GRPO 2→2: no pair is surely better (8→2, the next, has 1.32 "
                         "[0.87, 2.00] times its progress per second).")  # fmt: skip
    assert _run_command(["model=tiny", "nm.m=4"], found) == "pods run model=tiny nm.n=2 nm.m=2"
    found, text = said([[3e6, 1e6]] * 2, menu=MENU[:2])
    assert text.endswith("Train with 8→2: the law expects 1.41 [1.41, 1.41] times the progress per "
                         "second of GRPO 2→2.")  # fmt: skip
    words = ["nm.groups=2", "study=x", "retry=all", "arm=pods"]
    assert _run_command(words, found) == "pods run nm.groups=2 arm=pods nm.n=8 nm.m=2"
    found, text = said([[1.0, 9.0]])
    assert "Train with GRPO 2→2: the law expects the most" in text and found.advised == 0
    assert text.count("GRPO") == 2  # in the units, and in what to do


def test_the_prices_here_and_those_at_which_a_pair_pays(monkeypatch):
    """1/2 s fixed of 1 s at (2, 2) if a generated rollout is 1/8 s, and a trained one as much."""
    steps = {(2, 2): [1.0], (8, 2): [1.75], (8, 8): [2.5]}
    found = advised(monkeypatch, by_mean, [[3.0, 1.0]], steps)
    price = found.price
    assert (price.ratio, price.fixed, price.fixed_share) == pytest.approx((1, 4, 0.5))
    # 8→2 has 2.8 times the progress: 4 + 8 + 2 r < 2.8 (4 + 2 + 2 r) at any r > 0; and 4→2 1.7
    # times: 4 + 4 + 2 r < 1.7 (4 + 2 + 2 r)
    _, four, two = found.rows
    assert (four["pays_from"], four["pays_to"]) == (0, np.inf)
    assert (two["pays_from"], two["pays_to"]) == (0, np.inf)
    lines = "\n".join(advice_lines(found))
    assert "Here it is 1.00, and 50% of a step of GRPO 2→2 is fixed" in lines
    assert lines.count("anything") == 2

    def one(gained, fixed=0.0, pair=(64, 16)):
        return pays(pair, (16, 16), gained, fixed)

    assert one(1.25) == pytest.approx((11, np.inf))  # 64 + 16 r < 20 + 20 r
    assert one(1.25, fixed=16.0) == pytest.approx((10, np.inf))  # 80 + 16 r < 40 + 20 r
    assert one(0.9, pair=(8, 8)) == (0, np.inf)  # 8 (1 + r) < 14.4 (1 + r)
    assert one(0.4, pair=(8, 16)) == pytest.approx((np.nan, np.nan), nan_ok=True)
    assert one(0.8, pair=(8, 16)) == pytest.approx((0, 1.5))  # 8 + 16 r < 12.8 (1 + r)
    assert np.isnan(one(1.0)).all() and one(1.0, pair=(8, 16)) == (0, np.inf)
    steps = {(2, 2): [2.0], (8, 2): [1.0], (8, 8): [3.0]}
    text = "\n".join(advice_lines(advised(monkeypatch, by_mean, [[1.0, 1.0]], steps)))
    assert "too noisy to tell it" in text and "nan" not in text
    assert "never" not in text and np.isnan(one(1.25, fixed=np.nan)).all()


def test_costs_and_progress_stand_side_by_side(monkeypatch):
    """By the law 8→8 makes less progress a step than 16→16, and here costs less than half."""
    steps = {(16, 16): [1.0], (64, 16): [2.0], (64, 64): [5.0]}
    pilot = Pilot({pair: np.array(each) for pair, each in steps.items()}, np.array([[3.0, 7.0]]), 2)
    found = advise(_menu(16, ()), pilot, seed=0)
    [half] = [row for row in found.rows if (row["n"], row["m"]) == (8, 8)]
    expected = expected_progress([(16, 16), (8, 8)], np.array([[3.0, 7.0]]), MEASURED, 2)
    assert half["progress"] == pytest.approx(expected[1] / expected[0]) and half["progress"] < 1
    assert half["seconds"] == pytest.approx(1 - 8 / 48 - 8 * (3 / 48))
    line = next(line for line in advice_lines(found) if line.startswith("8→8 "))
    assert f"{half['seconds']:.3g} [" in line and f"{half['progress']:.2f} [" in line


def test_the_menu_is_the_words_or_nine_pairs_with_half_of_m():
    assert _menu(16, ()) == [(16, 16), (32, 16), (64, 16), (128, 16),
                             (8, 8), (16, 8), (32, 8), (64, 8), (128, 8)]  # fmt: skip
    assert _menu(2, ()) == [(2, 2), (4, 2), (8, 2), (16, 2)]
    assert _menu(16, ["8,4", "16,16"]) == [(16, 16), (8, 4)]


def test_costs_that_no_step_can_have_or_that_are_an_accident_decide_nothing(monkeypatch):
    """At 0.1 + (n - 2) + 0.3 (m - 2) seconds a step of (1, 1) would take less than none."""
    steps = {(2, 2): [0.1], (8, 2): [6.1], (8, 8): [7.9]}
    found = advised(monkeypatch, by_mean, [[1.0, 1.0]], steps, [(2, 2), (1, 1), (4, 2)])
    assert np.isnan(found.rows[1]["gain"]) and "unknown" in "\n".join(advice_lines(found))
    assert found.rows[2]["seconds"] == pytest.approx(2.1)
    steps = {**STEPS, (8, 2): [2.0, 90.0, 2.0]}
    assert advised(monkeypatch, by_mean, [[1.0, 1.0]], steps).rows[1]["gain"] == pytest.approx(1)
    pilot = [(16, 16), (64, 16), (64, 64)]
    seconds = [1 + 0.1 * n + 0.2 * m for n, m in pilot]  # a plane is reproduced
    assert cost_weights(pilot, [(128, 8)]) @ seconds == pytest.approx(1 + 12.8 + 1.6)


def test_progress_is_that_of_the_law_with_its_measured_constants(monkeypatch):
    def progress(menu, rates, scales, groups):
        return np.array([1, scales.noise * scales.ratio * scales.shared * groups, 1])

    gain = advised(monkeypatch, progress, [[1.0, 1.0]]).rows[1]
    assert gain["gain"] == pytest.approx(2.7 * 0.06 * 0.25 / 2)


def test_a_reward_with_a_form_part_is_warned_of():
    assert form_warning(composed()) is None
    assert form_warning(composed("task.reward=[correct]")) is None
    assert "task.reward=['correct', 'format']" in form_warning(
        composed("task.reward=[correct,format]")
    )
    words = ("task=gsm8k", "model=hub", "model.hub=a/b", "dry_run=true")
    assert "additive" in form_warning(composed(*words, "task.format_reward=additive"))
    assert form_warning(composed(*words, "task.format_reward=none")) is None


def test_a_pilot_is_read_from_its_run_folders(tmp_path):
    """Each step has 1 of 4 right of each of the same two prompts: 4 of 16 after four steps."""
    stores = []
    for n, m, clock in ((4, 4, [1.0, 3.5]), (16, 4, [2.0, 5.0])):
        store = freeze(composed(f"runs_dir={tmp_path}", f"nm.n={n}", f"nm.m={m}"))
        for step, seconds in enumerate(clock, start=1):
            line = {"step": step, "train_seconds": seconds, "prompts": ["a", "b"]}
            append(store.metrics_path, [line])
            write_rollouts(store, step)
        stores.append(store)
    pilot = read_pilot(stores)
    seconds = {pair: each.tolist() for pair, each in pilot.seconds.items()}
    assert seconds == {(4, 4): [1.0, 2.5], (16, 4): [2.0, 3.0]}
    assert pilot.posteriors.tolist() == [[4.5, 12.5], [4.5, 12.5]] and pilot.groups == 2
    # it may be repeated
    for values, retry in ((compose(["retry=all"]), "all"), (compose(["arm=pods"]), "failed")):
        assert {config.retry for config in _pilot(values, m=16, steps=2)} == {retry}


def test_a_pilot_runs_once_and_its_advice_is_written(tmp_path, monkeypatch, capsys):
    ran = []

    def in_this_process(jobs):
        ran.extend(one.store for one in jobs)
        for one in jobs:
            job.execute(one.store.folder)
        return False

    monkeypatch.setattr(local_backend, "local_backend", lambda _: Backend(1, in_this_process))
    words = ["advise", "nm.m=4", f"runs_dir={tmp_path}", "--steps", "2", "--nm", "8,4"]
    assert main(words) == 0
    pairs = [(store.config().nm.n, store.config().nm.m) for store in ran]
    assert sorted(pairs) == [(4, 4), (16, 4), (16, 16)]
    assert {len(read_lines(store.metrics_path)) for store in ran} == {2}
    prompts = [str(read_lines(store.metrics_path)[0]["prompts"]) for store in ran]
    assert len({*prompts}) == 3  # each run sees others
    for store in ran:  # the policy stood still
        folders = [store.checkpoint(step) for step in (0, 2)]
        start, end = (load_file(next(each.glob("policy/*.safetensors"))) for each in folders)
        for name, weights in start.items():
            assert end[name] == pytest.approx(weights, abs=1e-10)
    text = capsys.readouterr().out
    command = text.splitlines()[-2]  # before the table's path
    assert command.startswith(f"pods run runs_dir={tmp_path} nm.n=")
    assert main(words) == 0
    assert len(ran) == 3  # the second time the pilot was there
    [csv], [about] = ([*tmp_path.glob(f"advice/figures/*.{end}")] for end in ("csv", "json"))
    found = json.loads(about.read_text())
    assert [(row["n"], row["m"]) for row in found["rows"]] == [(4, 4), (8, 4)]
    assert 0 < found["success"] < 1
    assert found["rows"][0]["seconds"] > 0
    assert csv.read_text().startswith("n,m,time,seconds,")
    assert not [*tmp_path.glob("advice/figures/*.png")]


@pytest.mark.parametrize(("words", "line"), table("bad_advice"))
def test_bad_input_is_one_line_before_anything_runs(words, line, tmp_path, capsys):
    assert line in refused(capsys, "advise", *words, f"runs_dir={tmp_path / 'runs'}")
    assert not (tmp_path / "runs").exists()
