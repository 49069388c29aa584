"""`pods advise`: gains and thresholds by hand, what is read of a pilot, and a pilot that runs."""

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
from pods.method.progress import expected_progress
from pods.runs.files import append, read_lines
from pods.runs.freeze import freeze
from pods_lab.advise import advice
from pods_lab.advise.advice import Pilot, advise, cost_weights, read_pilot
from pods_lab.advise.text import advice_lines
from pods_lab.advise.verb import _pilot, _run_command

MENU = [(2, 2), (8, 2), (4, 2)]
STEPS = {(8, 2): [2.0] * 3, (2, 2): [1.0] * 3, (8, 8): [5.0] * 3}
# 1 s at n = m = 2, 1/6 s per rollout more, and 1/2 s per rollout kept more: 4/3 s at (4, 2)


def by_mean(menu, rates, scales, groups):
    """Progress (n / m) to the mean success rate: at the rate p a pair with n = 4 m gains 4^p."""
    mean = (rates[:, 0] / rates.sum(1)).mean()
    return np.array([(n / m) ** mean for n, m in menu])


def at_both_ends(menu, rates, scales, groups):
    mean = (rates[:, 0] / rates.sum(1)).mean()
    return np.array([(n / m) ** abs(2 * mean - 1) for n, m in menu])


def advised(monkeypatch, progress, rates, steps=STEPS, menu=MENU, scales=((4.0, 0.1, 3.0),) * 2):
    monkeypatch.setattr(advice, "expected_progress", progress)
    seconds = {pair: np.array(each) for pair, each in steps.items()}
    return advise(menu, Pilot(seconds, np.array(rates), np.array(scales), 1), seed=0)


def test_gain_is_progress_over_cost_and_thresholds_are_where_they_meet(monkeypatch):
    """4^p / 2 is 1 at p = 1/2; 2^p / (4/3) is 1 at p = log2(4/3) = 0.415."""
    found = advised(monkeypatch, by_mean, [[3.0, 1.0]])
    first, four, two = found.rows
    assert [row["seconds"] for row in (first, four, two)] == pytest.approx([1, 2, 4 / 3])
    assert [row["gain"] for row in (four, two)] == pytest.approx([4**0.75 / 2, 2**0.75 * 3 / 4])
    assert (four["pays_below"], two["pays_below"]) == (0, 0)
    assert four["pays_above"] == pytest.approx(0.5, abs=0.0011)
    assert two["pays_above"] == pytest.approx(0.415, abs=0.0011)
    assert (found.success, found.best, found.later) == (0.75, 1, 1)
    assert [row["time"] for row in found.rows] == ["measured", "measured", "predicted"]


def test_a_pair_may_pay_at_both_ends_everywhere_or_nowhere(monkeypatch):
    """4^|2p - 1| / 2 is 1 at 1/4 and 3/4; at less than the price it always pays, at 5 never."""
    found = advised(monkeypatch, at_both_ends, [[1.0, 9.0]], menu=[(2, 2), (8, 2), (8, 8)])
    _, both, never = found.rows
    assert both["pays_below"] == pytest.approx(0.25, abs=0.0011)
    assert both["pays_above"] == pytest.approx(0.75, abs=0.0011)
    assert (never["pays_below"], never["pays_above"]) == (0, 1)
    text = "\n".join(advice_lines(found))
    assert "8→2 is faster than GRPO 2→2 below 25% or above 75%" in text
    assert "at no success rate" in text
    cheap = advised(monkeypatch, at_both_ends, [[1.0, 9.0]], {**STEPS, (8, 2): [0.9] * 3})
    assert "at any success rate" in advice_lines(cheap)[0]


def test_intervals_are_of_resampled_prompts_and_rounds(monkeypatch):
    """Of two prompts, at 0 and 1, a quarter of the resamples has only the one or the other."""
    found = advised(monkeypatch, by_mean, [[1e-9, 1.0], [1.0, 1e-9]], menu=MENU[:2])
    four = found.rows[1]
    got = four["gain_low"], four["gain"], four["gain_high"]
    assert got == pytest.approx((0.5, 1, 2), rel=1e-6)
    # 3 of 30 solved: 4 % of the resamples have none, more than the 2.5 % below the interval
    found = advised(monkeypatch, by_mean, [[1.0, 1e-9]] * 3 + [[1e-9, 1.0]] * 27, menu=MENU[:2])
    assert found.rows[1]["gain_low"] == pytest.approx(0.5)
    # rounds that are slow together, at 1 and 3 times the price, change no gain
    slow = {pair: [seconds[0], 3 * seconds[0]] for pair, seconds in STEPS.items()}
    four = advised(monkeypatch, by_mean, [[1.0, 1.0]], slow).rows[1]
    assert [four[f"seconds{end}"] for end in ("_low", "", "_high")] == pytest.approx([2, 4, 6])
    assert [four[f"gain{end}"] for end in ("_low", "", "_high")] == pytest.approx([1, 1, 1])


def test_an_interval_that_contains_1_is_not_settled_and_the_command_names_pair_or_menu(monkeypatch):
    """Prompts at 0.4 and 1: resamples gain 0.87, 1.32 or 2; prompts at 3/4 all the same 1.41."""

    def said(rates, **options):
        found = advised(monkeypatch, by_mean, rates, **options)
        return found, "".join(advice_lines(found))

    found, text = said([[4e6, 6e6], [1e6, 1e-9]], menu=MENU[:2])
    assert "8→2 makes 1.32 [0.87, 2.00] times" in text and "not settled" in text
    assert _run_command([], found).endswith("'nm.menu=[n2_m2,n8_m2]' nm.n=8 nm.m=2")
    _, text = said([[3e6, 1e6]] * 2, menu=MENU[:2])
    assert "8→2 makes 1.41 [1.41, 1.41] times" in text and "not settled" not in text
    found, text = said([[1.0, 9.0]])
    assert "GRPO 2→2 is best there" in text and "At a success of 95% 8→2 is best" in text
    command = "pods run model=tiny arm=adaptive 'nm.menu=[n2_m2,n8_m2]' nm.n=8 nm.m=2"
    assert _run_command(["model=tiny", "nm.m=4"], found) == command
    words = ["nm.groups=2", "nm.menu=[n2_m2,n4_m2]", "study=x", "retry=all", "arm=pods"]
    command = _run_command(words, said([[9.0, 1.0]])[0])
    assert command == "pods run nm.groups=2 arm=pods nm.n=8 nm.m=2"


def test_a_course_that_is_nearly_over_changes_no_more(monkeypatch):
    """A larger n gains up to a success of 96 % only, and prompts are solved in 97 %."""

    def progress(menu, rates, scales, groups):
        return by_mean(menu, rates, scales, groups) ** (rates[:, 0].sum() < 0.96 * rates.sum())

    found = advised(monkeypatch, progress, [[97.0, 3.0]])
    assert (found.best, found.later, found.changes()) == (0, 1, False)
    assert advised(monkeypatch, progress, [[2.0, 8.0]]).changes()


def test_costs_that_no_step_can_have_or_that_are_an_accident_decide_nothing(monkeypatch):
    """At 0.1 + (n - 2) + 0.3 (m - 2) seconds a step of (1, 1) would take less than none."""
    steps = {(8, 2): [6.1], (2, 2): [0.1], (8, 8): [7.9]}
    found = advised(monkeypatch, by_mean, [[1.0, 1.0]], steps, [(2, 2), (1, 1), (4, 2)])
    assert np.isnan(found.rows[1]["gain"]) and "unknown" in advice_lines(found)[0]
    assert found.rows[2]["seconds"] == pytest.approx(2.1)
    steps = {**STEPS, (8, 2): [2.0, 90.0, 2.0]}
    assert advised(monkeypatch, by_mean, [[1.0, 1.0]], steps).rows[1]["gain"] == pytest.approx(1)
    pilot = [(64, 16), (16, 16), (64, 64)]
    seconds = [1 + 0.1 * n + 0.2 * m for n, m in pilot]  # a plane is reproduced
    assert cost_weights(pilot, [(128, 8)]) @ seconds == pytest.approx(1 + 12.8 + 1.6)


def test_progress_is_that_of_the_adaptive_arm(monkeypatch):
    """Two kept of two known to be solved half of the time are mixed in 1/2, of four in 7/8.

    It is asked with the pilot's scales and groups, here a noise ratio of 3, and the interval has
    what is not known of them.
    """

    def progress(menu, rates, scales, groups):
        return np.array([1, scales.noise * scales.ratio * scales.shared * groups, 1])

    gain = advised(monkeypatch, progress, [[1.0, 1.0]]).rows[1]
    assert [gain[f"gain{end}"] for end in ("_low", "", "_high")] == pytest.approx([0.6] * 3)
    gain = advised(monkeypatch, progress, [[1.0, 1.0]], scales=np.empty((0, 3))).rows[1]
    assert gain["gain"] == pytest.approx(2.7 * 0.06 * 0.25 / 2)
    ends = (gain["gain_low"], gain["gain_high"])
    assert ends == pytest.approx((0, 8 * 0.6 / 2))  # of 72, the largest but one
    known = np.array([[1e6, 1e6]])
    found = advised(monkeypatch, expected_progress, known, menu=[(2, 2), (4, 2)])
    assert found.rows[1]["gain"] == pytest.approx((7 / 8 / (1 / 2)) ** 0.5 / (4 / 3), rel=1e-4)


def test_a_pilot_is_read_from_its_run_folder(tmp_path):
    """Each step has 1 of 4 right of each of the same two prompts: 4 of 16 after four steps."""
    menu = "nm.menu=[n4_m4,n16_m4]"
    store = freeze(composed(f"runs_dir={tmp_path}", "arm=adaptive", menu, "nm.n=16", "nm.m=4"))
    for step, (pair, seconds) in enumerate([(0, 1.0), (1, 3.5), (0, 6.0), (1, 9.0)], start=1):
        line = {"step": step, "train_seconds": seconds, "adaptive/pair": pair}
        append(store.metrics_path, [line | {"prompts": ["a", "b"]}])
        write_rollouts(store, step)
    pilot = read_pilot(store)
    seconds = {pair: each.tolist() for pair, each in pilot.seconds.items()}
    assert seconds == {(4, 4): [1.0, 2.5], (16, 4): [2.5, 3.0]}
    assert pilot.posteriors.tolist() == [[4.5, 12.5], [4.5, 12.5]]
    assert (pilot.scales.shape, pilot.groups) == ((0, 3), 2)
    # it takes equal groups at once, and may be repeated
    own = compose(["nm.allocation=json:loads", "retry=all"])
    for values, retry in ((own, "all"), (compose(["arm=pods"]), "failed")):
        made = _pilot(values, m=16, steps=2)
        assert (made.retry, made.nm.allocation) == (retry, None)


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
    [store] = ran
    lines = read_lines(store.metrics_path)
    pairs = store.config().nm.pairs()
    taken = [pairs[line["adaptive/pair"]] for line in lines]
    assert taken == [(4, 4), (16, 4), (16, 16)] * 2
    start, end = (load_file(next(store.checkpoint(k).glob("policy/*.safetensors"))) for k in (0, 6))
    for name, weights in start.items():  # the policy stood still
        assert end[name] == pytest.approx(weights, abs=1e-10)
    text = capsys.readouterr().out
    assert f"Run: pods run runs_dir={tmp_path} " in text
    assert main(words) == 0
    assert len(ran) == 1  # the second time the pilot was there
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
