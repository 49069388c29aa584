"""A study's plan: what is asked stands before the runs, and seeds stop once it is answered."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from compose import composed
from curves import ramps, study
from scipy import integrate, stats
from studies import BASE, start_policy, write_run

from pods.analysis.compare.planned import planned_lines
from pods.analysis.draw import draw
from pods.analysis.loading.load import load
from pods.analysis.numbers.planned import judge, judgements_of
from pods.analysis.numbers.sequential import interval_at_every_look, state_of, units_to_decide
from pods.cli.main import main
from pods.config.plan import PlanConfig, question
from pods.launch import sweep
from pods.launch.backend import Backend
from pods.launch.decisions import undecided, unknown_arms
from pods.launch.dry_run import show
from pods.runs.plan import Registered, changes, prices_of, read_plans, register
from pods.runs.store import RunStore, run_folders
from pods.system.signals import stop_on_signals

ALPHA = 0.05
ASKED = "pods 64->16 over grpo 16->16"
KEYS = ("plan.margin=3", "plan.seeds=9")
ARMS = ("arm=pods", "arm=grpo")
SIZE = ("evaluation.repeats=5", "evaluation.questions=100")


def plan_of(*contrasts, **keys):
    values = {"outcome": "mean_accuracy", "x": "train_seconds", "unit": "seed", "margin": 0.0,
              "seeds": None, "without": [], "stop": "seeds"}  # fmt: skip
    return PlanConfig(contrasts=list(contrasts), **(values | keys))


def registered(*contrasts, runs=0, **keys):
    plan = plan_of(*contrasts, **keys)
    return Registered("2026-01-01T00:00:00+00:00", "0" * 64, runs, plan, prices_of(plan))


def said_of(study):
    return planned_lines(study, judgements_of(study))


def bayes_factor(values, mean):
    """Integrate the ratio of the densities of t over the effects that are expected: N(0, 4)."""
    count = len(values)
    t = math.sqrt(count) * (values.mean() - mean) / values.std(ddof=1)

    def weighted(effect):
        density = stats.nct.pdf(t, count - 1, math.sqrt(count) * effect)
        return density * stats.norm.pdf(effect, 0, 2)

    total, _ = integrate.quad(weighted, -12, 12, limit=300, points=[0, t / math.sqrt(count)])
    return total / stats.t.pdf(t, count - 1)


@pytest.mark.parametrize("count", [5, 7, 12])
def test_at_both_ends_of_the_interval_the_evidence_is_one_over_alpha(count):
    values = np.random.default_rng(count).normal(0.4, 1.3, count)
    for end in interval_at_every_look(values, ALPHA):
        assert bayes_factor(values, end) == pytest.approx(1 / ALPHA, rel=1e-4)


def test_the_interval_by_hand():
    # mean 2, deviation 1, 1 + 4 x 4 = 17; k = (sqrt(17) / 0.05)^(2/4) = 9.0808
    values = np.array([2 - math.sqrt(1.5), 2, 2, 2 + math.sqrt(1.5)])
    half = 1 / 2 * math.sqrt(3 * 8.0808 / (1 - 9.0808 / 17))
    assert interval_at_every_look(values, 0.05) == pytest.approx((2 - half, 2 + half), rel=1e-4)
    assert interval_at_every_look(values[:3], 0.05) == (-math.inf, math.inf)  # k = 17.4 > 13
    for nothing in ([1.0], [], [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, math.nan, 2.0, 3.0, 4.0]):
        assert interval_at_every_look(np.array(nothing), 0.05) == (-math.inf, math.inf)


def test_what_would_probably_decide():
    values = np.array([0.4, 1.6, 0.9, 1.5, -0.2, 1.8])
    needed = units_to_decide(values, ALPHA, 0.0)
    ends = []
    for count in (needed - 1, needed):  # the same mean and deviation from so many
        spread = math.sqrt((count - 1) / (count - count % 2)) * values.std(ddof=1)
        signs = np.array(([-1, 1] * count)[: count - count % 2] + [0] * (count % 2))
        more = values.mean() + spread * signs
        assert more.std(ddof=1) == pytest.approx(values.std(ddof=1))
        ends.append(interval_at_every_look(more, ALPHA)[0])
    assert ends[0] < 0 < ends[1] and needed > 6
    assert units_to_decide(np.array([1.0]), ALPHA, 0.0) is None
    assert units_to_decide(np.array([1.0, -1.0]), ALPHA, 0.0) is None  # no number of them
    assert units_to_decide(np.array([1.0, 1.0]), ALPHA, 0.0) is None  # nothing tells the spread
    assert units_to_decide(np.array([1.0, np.nan]), ALPHA, 0.0) is None


@pytest.mark.parametrize(("text", "found"), [
    ("pods over grpo", ("pods", "grpo", None, None, None, None)),
    ("pods 64→16 over grpo 16->16: behind", ("pods 64->16", "grpo 16->16", "behind", None, None,
                                             None)),
    ("a over b: ahead by 0.5 to 2 at l40s", ("a", "b", "ahead", 0.5, 2.0, "l40s")),
    ("a over b: equal at cpu", ("a", "b", "equal", None, None, "cpu")),
])  # fmt: skip
def test_a_contrast_is_read(text, found):
    one = question(text)
    assert (one.arm, one.baseline, one.expected, one.low, one.high, one.prices) == found


@pytest.mark.parametrize(("words", "line"), [
    (["plan.contrasts=[pods]"], "plan.contrasts=['pods']: 'pods' must be ARM over BASELINE"),
    (['plan.contrasts=["a over b: better"]', "plan.margin=-1"], "plan.margin=-1: must be a number"),
    (['plan.contrasts=["a over b: ahead by 2 to 1"]'], "must give a range from a lower to"),
    (['plan.contrasts=["a over b", "a over b: ahead"]'], "must ask each contrast once"),
    (['plan.contrasts=["a over a"]'], "a over a: must be of two arms"),
    (['plan.contrasts=["a over b at l40"]'], "prices=l40: must be one of cpu, h100x8"),
    (['plan.contrasts=["a over b at cpu"]', "plan.x=steps"], "plan.x=steps: must be train_seconds"),
    (["plan.stop=decided"], "plan.stop=decided: must be seeds without plan.contrasts"),
    (['plan.contrasts=["a over b"]', "plan.stop=decided", "plan.unit=start"], "if plan.unit=start"),
])  # fmt: skip
def test_a_plan_that_is_not_allowed_is_refused_in_a_line(words, line):
    with pytest.raises(ValueError, match="plan") as error:
        composed(*words)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_an_expected_side_is_one_of_three():
    with pytest.raises(ValueError, match="must be ARM over BASELINE"):
        question("a over b: better by 1 to 2 points")  # the colon belongs to what is expected


def noisy(size, gap=0.0, spread=0.02, seed=0):
    """Return final accuracies of two arms, by seed."""
    rng = np.random.default_rng(seed)
    baseline = 0.5 + rng.normal(0, spread, size)
    return baseline + gap + rng.normal(0, spread / 3, size), baseline


def runs_of(arm, baseline, **settings):
    made = study({"pods 64→16": ramps(*arm), "grpo 16→16": ramps(*baseline)}, **settings)
    return replace(made, seeds=sorted(set(made.runs.seed)))


def test_a_contrast_is_decided_at_the_first_look_that_decides_and_stays_so():
    arm, baseline = noisy(12, gap=0.04)
    differences = (arm - baseline) / 2  # the mean of a ramp from 0 is half of its end
    first = next(
        n for n in range(2, 13)
        if state_of(*interval_at_every_look(differences[:n], ALPHA), 0.0) != "open"
    )  # fmt: skip
    assert 2 < first < 12
    for size in range(1, 13):
        [found] = judge(runs_of(arm[:size], baseline[:size]), registered(ASKED))
        assert found.state == ("ahead" if size >= first else "open")
        assert found.units == min(size, first)
        assert found.estimate == pytest.approx(differences[: found.units].mean())
    low, high = interval_at_every_look(differences[:first], ALPHA)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_alpha_is_shared_by_the_contrasts_and_the_margin_is_in_points():
    arm, baseline = noisy(9, gap=0.04)
    made = runs_of(arm, baseline)
    [one] = judge(made, registered(ASKED, margin=0.0))
    two = judge(made, registered(ASKED, "grpo 16->16 over pods 64->16"))
    values = ((arm - baseline) / 2)[: two[0].units]
    assert (two[0].low, two[0].high) == pytest.approx(interval_at_every_look(values, ALPHA / 2))
    assert two[1].state == "behind" and two[1].estimate == -two[0].estimate
    assert one.units <= two[0].units

    arm, baseline = noisy(9, gap=0.0)
    [narrow] = judge(runs_of(arm, baseline), registered(ASKED, margin=0.01))
    [wide] = judge(runs_of(arm, baseline), registered(ASKED, margin=3.0))
    assert (narrow.state, wide.state) == ("open", "equal")


def test_a_missing_failed_or_nan_run_is_never_a_decision():
    arm, baseline = noisy(12, gap=0.04)
    whole = runs_of(arm, baseline)
    [all_of_them] = judge(whole, registered(ASKED))
    gone = whole.runs[(whole.runs.series == "pods 64→16") & (whole.runs.seed == 2)].run.item()
    rows = whole.evaluations.run != gone
    missing = replace(whole, runs=whole.runs[whole.runs.run != gone],
                      evaluations=whole.evaluations[rows])  # fmt: skip
    unfinished = replace(whole, runs=whole.runs.assign(complete=whole.runs.run != gone))
    values = whole.evaluations.accuracy.where(rows | (whole.evaluations.step == 0))
    nan = replace(whole, evaluations=whole.evaluations.assign(accuracy=values))
    for made, why in ((missing, "pods 64→16 has no complete run of seed 2"),
                      (unfinished, "pods 64→16 has no complete run of seed 2"),
                      (nan, "a run has a value that is no number")):  # fmt: skip
        [found] = judge(made, registered(ASKED))
        assert (found.state, found.why) == ("open", why) and found.needed != 0
        assert why in said_of(replace(made, plans=[registered(ASKED)]))[1]
    [left_out] = judge(missing, registered(ASKED, without=[2]))
    assert left_out.state == "ahead" and left_out.units <= 11 and all_of_them.state == "ahead"
    lines = said_of(replace(missing, plans=[registered(ASKED, without=[2])]))
    assert lines[-1] == "left out by the plan: seed 2"


def test_an_arm_without_runs_is_open_and_named():
    [found] = judge(runs_of([0.5], [0.4]), registered("rloo over grpo"))
    assert found.state == "open" and "arm 'rloo' is unknown" in found.why


@pytest.mark.parametrize(("expected", "said"), [
    (": ahead", "expected ahead, and so it is."),
    (": ahead by 1 to 3", "expected ahead by 1 to 3, and so it is."),
    (": ahead by 7 to 9", "expected ahead by 7 to 9: the side is right and the size is not."),
    (": behind", "expected behind, which failed."),
    (": equal", "expected equal, which failed."),
    ("", ")."),
])  # fmt: skip
def test_what_was_expected_stands_beside_what_came_out(expected, said):
    arm, baseline = noisy(10, gap=0.04)
    made = replace(runs_of(arm, baseline), plans=[registered(ASKED + expected)])
    heading, line = said_of(made)
    assert heading == "plan 000000000000 of 2026-01-01T00:00:00+00:00, before the first run:"
    assert line.startswith(f"Mean accuracy: {ASKED} is settled after ") and line.endswith(said)
    [found] = judge(made, made.plans[0])
    inside = f"{100 * found.estimate:.2f} points ahead (95 %: {100 * found.low:.2f} to "
    assert inside in line


def test_contrasts_that_were_asked_after_runs_and_changes_are_shown_as_such():
    arm, baseline = noisy(10, gap=0.04)
    other = "grpo 16->16 over pods 64->16"
    added = [registered(ASKED), registered(ASKED, other, runs=7)]
    lines = said_of(replace(runs_of(arm, baseline), plans=added))
    assert lines[0].endswith("before the first run:")  # the first plan
    assert " is settled after " in lines[1]
    assert " was asked after 7 runs had begun, and is decided after " in lines[2]
    assert lines[3].endswith(f"after 7 runs had begun: added {other}")
    moved = [registered(ASKED), registered(ASKED, margin=1.0, runs=7)]
    lines = said_of(replace(runs_of(arm, baseline), plans=moved))
    assert "was asked after 7 runs" in lines[1] and "plan.margin 0.0 -> 1.0" in lines[2]
    late = [registered(ASKED, runs=3)]
    lines = said_of(replace(runs_of(arm, baseline), plans=late))
    assert lines[0].endswith("after 3 runs had begun:") and "settled" not in "".join(lines)


def test_the_seeds_that_would_decide_are_beside_those_that_the_plan_has():
    arm, baseline = noisy(4, gap=0.01, spread=0.06)
    made = runs_of(arm, baseline)
    [found] = judge(made, registered(ASKED))
    assert found.state == "open" and found.needed > 5
    more = f"about {found.needed - 4} more seeds would decide it"
    for seeds, said in ((found.needed, f"{more}."), (5, f"{more}, but the plan ends at 5 seeds.")):
        _, line = said_of(replace(made, plans=[registered(ASKED, seeds=seeds)]))
        assert line.endswith(said)


def with_starts(arms):
    """Return a study whose runs begin from two start policies, which their curves name."""
    made = study(arms)
    start = made.runs.series.str.rpartition("=")[2]
    runs = made.runs.assign(weights=start, arm=made.runs.series.str.split(" ").str[0])
    return replace(made, runs=runs, seeds=sorted(set(runs.seed)))


def test_a_unit_is_a_seed_or_a_start_policy():
    rng = np.random.default_rng(3)
    starts = [f"s{k}" for k in range(6)]
    ends = {start: rng.normal(0.5, 0.1, (2, 3)) for start in starts}  # both arms, three seeds
    arms = {}
    for start, (arm, baseline) in ends.items():
        arms[f"pods 64→16, weights={start}"] = ramps(*arm)
        arms[f"grpo 16→16, weights={start}"] = ramps(*baseline)
    made = with_starts(arms)
    per_start = np.array([(arm - baseline).mean() / 2 for arm, baseline in ends.values()])
    per_seed = np.mean([(arm - baseline) / 2 for arm, baseline in ends.values()], axis=0)
    [found] = judge(made, registered(ASKED, unit="start", margin=100.0))
    seen = per_start[: found.units]
    assert (found.state, found.estimate) == ("equal", pytest.approx(seen.mean()))
    [found] = judge(made, registered(ASKED))
    assert found.units == 3 and found.estimate == pytest.approx(per_seed.mean())


def test_a_start_policy_of_each_seeds_own_is_one_unit(tmp_path):
    for seed in range(4):
        start = start_policy(tmp_path / f"s{seed}")
        for arm, right in (("pods", 340 + 10 * seed), ("grpo", 300)):
            finished(tmp_path, right, f"arm={arm}", f"seed={seed}", *start)
    made = load_all(tmp_path)
    [by_start] = judge(made, registered(ASKED, unit="start"))
    [by_seed] = judge(made, registered(ASKED))
    assert by_start.units == 4 and replace(by_start, question=by_seed.question) == by_seed


def configs_of(tmp_path, seeds, *words, contrasts=(ASKED,)):
    asked = f"plan.contrasts={json.dumps(list(contrasts))}"
    every = [*BASE, *SIZE, f"runs_dir={tmp_path}", asked, *KEYS, *words]
    return [composed(*every, arm, f"seed={seed}") for seed in seeds for arm in ARMS]


def test_a_plan_is_registered_before_the_runs_and_each_change_is_kept(tmp_path):
    configs = configs_of(tmp_path, range(2))
    register(configs)
    folder = tmp_path / "default"
    register(configs)
    [first] = read_plans(folder)
    assert (first.runs, first.plan) == (0, configs[0].plan)
    register([composed(f"runs_dir={tmp_path}")])  # without a plan
    write_run(tmp_path, [(0, 0.0, 2), (1, 10.0, 4)], "arm=pods")
    register(configs_of(tmp_path, range(2), "plan.margin=1"))
    first, second = read_plans(folder)
    assert (second.runs, second.plan.margin) == (1, 1.0)
    assert [line.partition(": ")[2] for line in changes([first, second])] == [
        "plan.margin 3.0 -> 1.0"
    ]
    path = folder / "plan.jsonl"
    path.write_text(path.read_text().replace('"margin": 1.0', '"margin": 9.0'))
    with pytest.raises(ValueError, match="was edited after it was registered"):
        read_plans(folder)


def test_a_contrast_is_judged_by_the_prices_that_were_registered(tmp_path):
    card = tmp_path / "mine.yaml"
    asked = f"{ASKED} at {card}"
    text = "unit: s\nper_step: 0\nper_generated_rollout: {}\nper_trained_rollout: {}\n"
    words = "fitted_to: {}\ndoes_not_cover: the rest\n"
    free_updates = text.format(1.0, 0.0) + words.format("nothing")

    card.write_text("unit: s\nper_step: fast\n")
    with pytest.raises(ValueError, match=r"plan.contrasts=.*per_step=fast: must be a number >= 0"):
        configs_of(tmp_path, [0], contrasts=[asked])
    card.write_text(free_updates)
    configs = configs_of(tmp_path, [0], contrasts=[asked])
    register(configs)

    card.write_text(text.format(1.0, 0.0) + words.format("nothing, said otherwise"))
    register(configs)
    [first] = read_plans(tmp_path / "default")
    assert first.prices[str(card)].fitted_to == "nothing"

    card.write_text(text.format(0.0, 1.0) + "per_generated_token: 0.001\n" + words.format("it"))
    write_run(tmp_path, [(0, 0.0, 2), (1, 10.0, 4)], "arm=pods")
    assert first.prices[str(card)].per_trained_rollout == 0
    register(configs)
    first, second = read_plans(tmp_path / "default")
    assert (first.runs, second.runs, second.prices[str(card)].per_trained_rollout) == (0, 1, 1.0)
    [change] = changes([first, second])
    assert "1 s per rollout generated -> 1 s per rollout trained on" in change
    path = tmp_path / "default/plan.jsonl"
    path.write_text(
        path.read_text().replace('"per_trained_rollout": 1.0', '"per_trained_rollout": 2.0')
    )
    with pytest.raises(ValueError, match="was edited after it was registered"):
        read_plans(tmp_path / "default")


def test_an_arm_that_no_run_has_is_named_before_the_runs(tmp_path, capsys):
    contrasts = (ASKED, "podz over grpo", "random 64->16 over pods")
    asked = configs_of(tmp_path, range(2), contrasts=contrasts)
    named = [line.partition("is ")[2] for line in unknown_arms(asked)]
    assert named == ["'podz': podz over grpo", "'random 64->16': random 64->16 over pods"]
    write_run(tmp_path, [(0, 0.0, 2), (1, 10.0, 4)], *SIZE, "arm=random", repeats=5, questions=100)
    assert [*unknown_arms(asked)] == [
        "warning: plan.contrasts: no run here or in the study is 'podz': podz over grpo"
    ]
    assert "'podz'" in "".join(show(asked))
    sweep.run(asked, Backend(2, Machine(tmp_path).run), figure=False)
    assert "'podz'" in capsys.readouterr().out.partition("jobs,")[0]


def test_more_seeds_than_planned_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"plan.seeds=9: the study has 10 seeds"):
        register(configs_of(tmp_path, range(10)))
    assert not (tmp_path / "default").exists()
    write_run(tmp_path, [(0, 0.0, 2), (1, 10.0, 4)], "arm=pods", "seed=77")
    with pytest.raises(ValueError, match=r"the study has 10 seeds"):
        register(configs_of(tmp_path, range(9)))
    register(configs_of(tmp_path, range(9), "plan.without=[77]"))


def finished(tmp_path, right, *words):
    """Write a run of 500 answers that ends with so many right ones, from 200 at the start."""
    points = [(0, 0.0, 200), (4, 10.0, right)]
    write_run(tmp_path, points, *SIZE, *words, repeats=5, questions=100)


class Machine:
    """A backend that writes finished runs, in which pods gains a few points over grpo."""

    def __init__(self, tmp_path, stops_after=None, fails=()):
        self.tmp_path, self.stops_after, self.fails = tmp_path, stops_after, fails
        self.made = []

    def run(self, jobs):
        with stop_on_signals():
            for each in jobs:
                if len(self.made) == self.stops_after:
                    return True
                config = each.config
                key = (config.arm, config.seed)
                self.made.append(key)
                if key in self.fails:
                    each.store.set_status(state="failed", error="mine", exit_code=1)
                    continue
                luck = np.random.default_rng(config.seed).integers(0, 3)
                own = np.random.default_rng([config.seed, ord(config.arm[0])]).integers(0, 9)
                right = 300 + 20 * luck + own + (40 if config.arm == "pods" else 0)
                words = (f"arm={config.arm}", f"seed={config.seed}")
                finished(self.tmp_path, int(right), *words)
        return False


def go(tmp_path, machine, seeds=range(9), **settings):
    configs = configs_of(tmp_path, seeds, "plan.stop=decided", **settings)
    sweep.run(configs, Backend(2, machine.run), figure=False)


def test_seeds_stop_when_the_plan_is_decided(tmp_path, capsys):
    machine = Machine(tmp_path)
    go(tmp_path, machine)
    said = capsys.readouterr().out
    seeds = len(machine.made) // 2
    assert 3 < seeds < 9 and machine.made == [(a[4:], s) for s in range(seeds) for a in ARMS]
    assert f"{ASKED} is settled after {seeds} seeds" in said
    assert f"is open after {seeds - 1} seeds" in said and "more seed" in said
    go(tmp_path, machine)  # again: nothing is left to do
    assert len(machine.made) == 2 * seeds
    assert f"{2 * seeds} of {2 * seeds} jobs done" in capsys.readouterr().out
    folder = tmp_path / "default"
    found = said_of(load(folder, run_folders(folder)))
    assert "is settled after" in found[1]
    assert main(["compare", "--runs-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.index("is settled") < said.index("not in the plan, so that it explores")
    assert "settled" not in said[said.index("explores") :]
    [row] = pd.read_csv(folder / "figures/compare.plan.csv").to_dict("records")
    [judgement] = judge(load(folder, run_folders(folder)), registered(ASKED))
    assert (row["contrast"], row["units"], row["state"]) == (ASKED, seeds, judgement.state)
    assert [row["low"], row["high"]] == pytest.approx([judgement.low, judgement.high], rel=1e-5)


def test_a_plan_is_said_of_the_whole_study_and_of_no_part(tmp_path):
    go(tmp_path, Machine(tmp_path), range(2))
    folder = tmp_path / "default"
    whole = run_folders(folder)
    assert ASKED in "\n".join(draw(folder, whole, drawn="none"))
    part = [run for run in whole if "max_variance" in str(run)]
    assert len(part) == 2 and ASKED not in "\n".join(draw(folder, part, drawn="none"))


def test_a_contrast_that_is_settled_is_said_once_while_others_are_open(tmp_path, capsys):
    contrasts = json.dumps([ASKED, "random 64->16 over grpo 16->16"])
    every = [*BASE, *SIZE, f"runs_dir={tmp_path}", f"plan.contrasts={contrasts}"]
    configs = [
        composed(*every, "plan.stop=decided", f"seed={seed}", f"arm={arm}")
        for seed in range(7)
        for arm in ("pods", "grpo", "random")
    ]
    sweep.run(configs, Backend(2, Machine(tmp_path).run), figure=False)
    said = capsys.readouterr().out
    assert said.count(f"{ASKED} is settled after") == 1
    assert said.count("random 64->16 over grpo 16->16 is open after") >= 5


def test_a_sweep_that_is_stopped_ends_with_the_same_decisions(tmp_path):
    whole = Machine(tmp_path / "whole")
    go(tmp_path / "whole", whole)
    parts = Machine(tmp_path / "parts", stops_after=5)
    with pytest.raises(sweep.SweepFailed):
        go(tmp_path / "parts", parts)
    assert len(parts.made) == 5
    parts.stops_after = None
    go(tmp_path / "parts", parts)
    assert parts.made == whole.made


def test_a_run_that_fails_leaves_its_contrast_open_until_it_is_made(tmp_path, capsys):
    machine = Machine(tmp_path, fails=[("grpo", 1)])
    with pytest.raises(sweep.SweepFailed):
        go(tmp_path, machine)
    assert len(machine.made) == 18  # no decision by what is left
    assert "grpo 16→16 has no complete run of seed 1" in capsys.readouterr().out


@pytest.mark.parametrize("own_starts", [False, True])
def test_an_arm_stops_alone_and_one_that_is_not_asked_about_goes_on_while_any_is_open(
    tmp_path, own_starts
):
    starts = [start_policy(tmp_path / f"s{seed}") if own_starts else () for seed in range(7)]
    made = {"pods": 40, "grpo": 0, "random": 20}
    for seed in range(6):
        luck = int(np.random.default_rng(seed).integers(0, 4))
        for arm, gain in made.items():
            wobble = int(np.random.default_rng([seed, ord(arm[0])]).integers(-25, 25))
            right = 300 + 5 * luck + gain + (wobble if arm == "random" else wobble // 12)
            words = (f"arm={arm}", f"seed={seed}", *starts[seed])
            finished(tmp_path, right, *words)
    contrasts = (ASKED, "random 64->16 over grpo 16->16")
    asked = f"plan.contrasts={json.dumps(contrasts)}"
    every = [*BASE, *SIZE, f"runs_dir={tmp_path}", asked, "plan.stop=decided"]
    every += ["seed=6", *starts[6]]  # which has not run yet
    arms = [composed(*every, f"arm={arm}") for arm in (*made, "rloo")]
    register(arms)
    [plan] = read_plans(tmp_path / "default")
    states = [one.state for one in judge(load_all(tmp_path), plan)]
    assert states == ["ahead", "open"]
    labels = [config.arm for config in undecided(arms)]
    assert labels == ["grpo", "random", "rloo"]
    one = f"plan.contrasts={json.dumps([ASKED])}"
    decided = [composed(*every, one, f"arm={arm}") for arm in (*made, "rloo")]
    register(decided)
    assert undecided(decided) == []


def test_an_arm_that_stopped_lacks_no_seed_but_one_between(tmp_path):
    for arm, seeds in (("grpo", range(4)), ("pods", (0, 2))):
        for seed in seeds:
            finished(tmp_path, 300 + seed, f"arm={arm}", f"seed={seed}")
    folder = tmp_path / "default"
    for stop, missing in (("seeds", {1, 3}), ("decided", {1})):
        register(configs_of(tmp_path, range(4), f"plan.stop={stop}"))
        with pytest.raises(ValueError, match="never run") as error:
            load(folder, run_folders(folder))
        named = {seed for seed in range(4) if f"pods 64→16 seed {seed}: never" in str(error.value)}
        assert named == missing
    finished(tmp_path, 301, "arm=pods", "seed=1")
    assert len(load(folder, run_folders(folder)).complete) == 7


def load_all(tmp_path):
    folder = tmp_path / "default"
    return load(folder, run_folders(folder), allow=True)


def test_the_status_of_what_was_never_asked_for_is_not_there(tmp_path):
    """A seed that a plan saves leaves no folder that waits."""
    go(tmp_path, Machine(tmp_path))
    states = {RunStore(folder).status()["state"] for folder in run_folders(tmp_path / "default")}
    assert states == {"done"}


def test_a_sweep_over_studies_registers_the_plan_of_each_and_stops_none(tmp_path):
    configs = configs_of(tmp_path, [0], "study=a") + configs_of(tmp_path, [0], "study=b")
    register(configs)
    assert [len(read_plans(tmp_path / name)) for name in "ab"] == [1, 1]
    configs = [replace(one, plan=replace(one.plan, stop="decided")) for one in configs]
    with pytest.raises(ValueError, match=r"plan\.stop=decided: must be seeds if a sweep has"):
        register(configs)
    configs[0] = replace(configs[0], plan=replace(configs[0].plan, margin=9.0))
    with pytest.raises(ValueError, match="plan=: must be the same in all runs of a sweep"):
        register(configs)
