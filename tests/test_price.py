"""The price of a study that has not run: by hand, from named sources, NaN where there is none."""

import dataclasses
import math
import re
import subprocess
import sys
from collections import Counter

import pytest
from compose import ROOT, compose_once, composed
from studies import A, B, write_run
from test_presets import PRESETS, jobs

from pods.analysis.cost.plan import PlanRequest
from pods.analysis.cost.price import plan_preset, price, queue
from pods.analysis.cost.roofline import (
    GPUS,
    evaluated_answers,
    evaluation_bound,
    generation_bound,
    step_bound,
)
from pods.analysis.cost.schedule import Job
from pods.analysis.cost.step_time import StepTime, step_time
from pods.cli.main import main
from pods.config.presets import presets, sweep_of
from pods.memory.shape import read_shape
from pods.runs.evaluations import due

pytestmark = pytest.mark.xdist_group("presets")  # both files compose the same jobs
WEIGHTS_3B, ADAPTERS_3B = 3_085_938_688, 119_734_272


@pytest.fixture(autouse=True)
def composed_once(monkeypatch):
    """Compose each preset once: most tests use the same ones."""
    monkeypatch.setattr("pods.config.presets.compose", compose_once)


@pytest.fixture(autouse=True)
def no_weights(tmp_path, monkeypatch):
    """Hide the weights that this machine may have fetched."""
    monkeypatch.setenv("PODS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: None)


def priced(preset, hardware, tokens=100, **options):
    sweep = sweep_of(preset, hardware, **options)
    shape = read_shape(sweep.configs[0].model)
    return {arm.name: arm for arm in price(sweep.configs, shape, GPUS.get(hardware), tokens, None)}


def report(preset, hardware, seeds=None, **options) -> str:
    sweep = sweep_of(preset, hardware, seeds)
    return "\n".join(plan_preset(preset, sweep, PlanRequest(**options), None).lines)


def price_at(monkeypatch, config, seconds):
    """Price one config whose steps take so long."""
    monkeypatch.setattr(
        "pods.analysis.cost.price.step_time", lambda config, source: StepTime(seconds, "not known")
    )
    [arm] = price([config], read_shape(config.model), None, 10, None)
    return arm


@pytest.mark.parametrize("preset", PRESETS)
def test_the_jobs_are_those_of_a_sweep(preset):
    own = composed(f"experiment={preset}", "dry_run=true").hardware.name
    overrides, configs = list(jobs(preset)), sweep_of(preset, own).configs
    assert len(configs) == len(overrides) and presets() == PRESETS
    assert configs[0] == composed(f"experiment={preset}", *overrides[0], "dry_run=true")
    assert configs[-1] == composed(f"experiment={preset}", *overrides[-1], "dry_run=true")
    seeds = Counter(word for job in overrides for word in job if word.startswith("seed="))
    assert Counter(f"seed={config.seed}" for config in configs) == seeds
    assert [c.seed for c in configs] == sorted(c.seed for c in configs)


@pytest.mark.parametrize(
    ("preset", "hardware", "gpus", "machine"),
    [
        ("gsm8k_l40s", "l40s", 1, 1),
        ("gsm8k_l40s", "h100x8", 1, 8),
        ("gsm8k_h100x8", "h100x8", 8, 8),
        ("gsm8k_h100x8", "h200", 1, 1),
        ("quickstart", "cpu", 1, 1),
    ],
)
def test_a_job_takes_the_gpus_of_its_preset_or_all_of_the_machine(preset, hardware, gpus, machine):
    sweep = sweep_of(preset, hardware, seeds=1)
    assert (sweep.gpus, sweep.machine) == (gpus, machine)
    assert {c.hardware.processes for c in sweep.configs} == {gpus}
    assert {c.hardware.name for c in sweep.configs} == {hardware}


def test_the_main_study_by_hand():
    arms = priced("gsm8k_l40s", "l40s")
    assert list(arms) == ["grpo 16→16", "pods 64→16"]
    for name, seconds in (("grpo 16→16", 7.56), ("pods 64→16", 10.12)):
        arm = arms[name]
        assert (arm.jobs, arm.gpus, arm.gpu_hours) == (8, 1, 48.0)  # 8 x 6 h
        assert arm.step.seconds == seconds and arm.step.source.startswith("the PODS authors' runs")
        assert arm.steps == math.ceil(21_600 / seconds)
        assert arm.evaluations == 13  # every half hour, and the start
        assert arm.disk["checkpoints"] == 13 * 4 * ADAPTERS_3B
        assert arm.disk["optimizer"] == 2 * 8 * ADAPTERS_3B
        assert arm.disk["evaluations"] == 13 * 5 * 1319 * 171
    rollouts = arms["pods 64→16"].disk["rollouts"]
    assert rollouts == pytest.approx(2135 / 50 * 64 * 512 * 4)
    assert queue(list(arms.values()), math.nan) == [
        Job(name, 6.0, 1, 0.5) for _ in range(8) for name in arms
    ]
    assert queue(list(arms.values()), 360.0)[0].hours == pytest.approx(6.1)


def test_eight_gpus_a_run():
    arms = priced("gsm8k_h100x8", "h100x8")
    assert {name: arm.step.seconds for name, arm in arms.items()} == {
        "grpo_ga 32→32 x16": 78.8,
        "pods 128→32 x4": 49.0,
        "aliased 128→32 x4": 49.0,
    }
    assert [arm.gpu_hours for arm in arms.values()] == pytest.approx([5 * 8 * 2 / 3] * 3)
    assert arms["grpo_ga 32→32 x16"].steps == 31  # 2,400 / 78.8 = 30.5
    assert "aliased" in arms["pods 128→32 x4"].step.source
    assert "aliased" not in arms["grpo_ga 32→32 x16"].step.source
    assert arms["pods 128→32 x4"].disk["checkpoints"] == 21 * 4 * WEIGHTS_3B


@pytest.mark.parametrize(
    ("preset", "hardware"),
    [
        ("gsm8k_l40s", "h100x8"),
        ("gsm8k_l40s", "h200"),
        ("llama_l40s", "l40s"),
        ("gsm8k_h100x8", "a100x8"),
        ("gsm8k_h100x8", "l40s"),
        ("greso_math", "h200"),
        ("quickstart", "cpu"),
    ],
)
def test_a_step_that_nobody_timed_is_not_known(preset, hardware):
    for arm in priced(preset, hardware).values():
        assert math.isnan(arm.step.seconds) and arm.step.source.startswith("not known")
        assert math.isnan(arm.steps) and math.isnan(arm.disk["rollouts"])
        assert arm.gpu_hours > 0  # the budget is known all the same


def test_only_rules_that_the_authors_timed_have_a_published_time():
    arms = priced("rules", "l40s")
    known = {name: arm.step.seconds for name, arm in arms.items() if arm.steps > 0}
    assert known == {"pods 64→16": 10.12, "max_reward 64→16": 14.89, "random 64→16": 10.52}
    assert len(arms) == 7
    math_arms = priced("math_l40s", "l40s")
    assert [arm.step.seconds for arm in math_arms.values()] == [7.87, 10.12]
    config = composed("experiment=gsm8k_l40s", "nm.n=48", "dry_run=true")
    between = step_time(config, None)  # not one of theirs: on the line through them
    assert between.source.startswith("fit of the PODS") and 7.95 < between.seconds < 10.12


def test_a_run_that_ends_by_steps_has_no_time_until_a_step_has(monkeypatch):
    config = composed("experiment=cost_grid", "nm=n16_m4", "dry_run=true")
    arm = price_at(monkeypatch, config, math.nan)
    assert arm.steps == 60 and math.isnan(arm.train_seconds) and math.isnan(arm.step_bound)
    with pytest.raises(ValueError, match=r"^seconds: max_variance 16→4 ends by steps, whose time"):
        queue([arm], math.nan)
    arm = price_at(monkeypatch, config, 0.5)
    assert arm.train_seconds == 30.0 and arm.evaluations == 2


def test_checkpoints_that_are_placed_by_steps(monkeypatch):
    config = composed("experiment=gsm8k_l40s_v1", "dry_run=true")
    arm = price_at(monkeypatch, config, math.nan)
    assert math.isnan(arm.evaluations) and math.isnan(arm.disk["checkpoints"])
    assert queue([arm], math.nan)[0].checkpoint_hours == math.inf
    arm = price_at(monkeypatch, config, 36.0)
    assert arm.steps == 600 and arm.evaluations == 7  # every 100
    assert queue([arm], math.nan)[0].checkpoint_hours == pytest.approx(1.0)


def test_a_step_that_is_longer_than_the_interval_has_one_checkpoint():
    arms = priced("gsm8k_a100x8", "a100x8")  # 2,400 s, every 120: room for 20
    assert {name: (arm.steps, arm.evaluations) for name, arm in arms.items()} == {
        "grpo_ga 32→32 x16": (10, 11),
        "pods 128→32 x4": (17, 18),
        "aliased 128→32 x4": (17, 18),
    }
    pods = arms["pods 128→32 x4"]
    assert pods.disk["checkpoints"] == 18 * 4 * 7_615_616_512 and not pods.at_most
    assert queue([pods], math.nan)[0].checkpoint_hours == pytest.approx(148.5 / 3600)
    config = pods.config
    saved = {due(config.checkpoint, k, 148.5 * (k - 1), 148.5 * k) for k in range(1, 18)}
    assert saved == {True}  # as the run itself decides


def test_with_unknown_steps_the_checkpoints_are_an_upper_bound():
    [arm, _] = priced("gsm8k_l40s", "h100x8").values()
    assert (arm.evaluations, arm.at_most) == (13, True)
    text = report("gsm8k_l40s", "h100x8")
    assert "≤ 13  ≤ 8.16 GB + ?" in text and "for this number of them" in text
    assert "disk: ≤ 130.51 GB + ? = checkpoints 99.62 GB" in text
    assert "≤" not in report("gsm8k_l40s", "l40s")


def test_the_lower_bound_of_a_step_by_hand():
    config = composed("experiment=gsm8k_l40s", "arm=pods", "dry_run=true")
    shape, gpu = read_shape(config.model), GPUS["l40s"]
    bound = step_bound(config, shape, gpu, tokens=200)
    # 64 rows decode at once: 200 times the weights, 2 bytes each, at 0.864 TB/s
    assert bound.generate == pytest.approx(200 * 2 * WEIGHTS_3B / 0.864e12)
    # 16 x 200 tokens: forward, and backward to the inputs; adapters three times
    per_token = 4 * WEIGHTS_3B + 6 * ADAPTERS_3B
    assert bound.update == pytest.approx(16 * 200 * per_token / 362e12)
    assert bound.step == bound.generate + bound.update
    # 6,595 answers, 256 at once
    waves = 5 * 1319 / 256
    assert evaluation_bound(config, shape, gpu, 200) == pytest.approx(waves * bound.generate)
    engine = dataclasses.replace(config.engine, max_rows=10**6)
    arithmetic = generation_bound(dataclasses.replace(config, engine=engine), shape, gpu, 6595, 200)
    assert arithmetic == pytest.approx(2 * WEIGHTS_3B * 6595 * 200 / 362e12)


def test_the_lower_bound_of_eight_processes_is_that_of_one_of_them():
    config = composed("experiment=gsm8k_a100x8", "arm=pods", "dry_run=true")
    shape, gpu = read_shape(config.model), GPUS["a100x8"]
    weights = shape.parameters - 152_064 * 3584  # the embedding is only looked up
    bound = step_bound(config, shape, gpu, tokens=100)
    assert bound.update == pytest.approx(4 * 32 * 100 * 6 * weights / 312e12)  # one prompt each
    assert bound.generate == pytest.approx(512 * 100 * 2 * weights / 312e12)  # 512 rows at once
    engine = dataclasses.replace(config.engine, max_rows=128)
    reading = step_bound(dataclasses.replace(config, engine=engine), shape, gpu, tokens=100)
    assert reading.generate == pytest.approx(4 * 100 * 2 * weights / 2.04e12)  # four times
    few = step_bound(dataclasses.replace(config, prompts_per_step=2), shape, gpu, tokens=100)
    assert few.update == pytest.approx(bound.update / 4)  # 2 x 4 groups: one each, not four
    update = dataclasses.replace(config.update, activation_checkpointing=True)
    recomputed = step_bound(dataclasses.replace(config, update=update), shape, gpu, tokens=100)
    assert recomputed.update == pytest.approx(bound.update * 8 / 6)


@pytest.mark.parametrize("preset", ["gsm8k_l40s", "gsm8k_h100x8", "gsm8k_a100x8", "n_scaling"])
def test_no_published_step_is_below_its_lower_bound(preset):
    """The bound is that of the longest completions."""
    hardware = composed(f"experiment={preset}", "dry_run=true").hardware.name
    longest = 512 if hardware == "l40s" else 1024
    for arm in priced(preset, hardware, tokens=longest).values():
        assert 0 < arm.step_bound < arm.step.seconds


def test_answers_of_an_evaluation():
    assert evaluated_answers(composed("experiment=gsm8k_l40s", "dry_run=true")) == 6595
    assert evaluated_answers(composed("evaluation.questions=7", "evaluation.repeats=2")) == 14
    further = ("evaluation.sets=[amc23,aime24]", "evaluation.questions=35")  # 35, 35 and 30
    assert evaluated_answers(composed("experiment=gsm8k_l40s", "dry_run=true", *further)) == 500


def test_the_report_names_its_sources_and_what_is_not_known():
    text = report("gsm8k_l40s", "h100x8")
    assert "2 arms x 8 seeds = 16 jobs, 1 GPU each; at most 8 at a time per machine" in text
    assert "GPU-hours of training clock: 96.0" in text
    assert re.search(r"^grpo 16→16 .*  not known for qwen2_5_3b by all on h100x8$", text, re.M)
    assert "start, checkpoints and evaluation: not known" in text and "rollouts not known" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines()[-5:-1]}
    assert [rows[count][1] for count in ("1", "8", "64", "512")] == ["96", "12", "6", "6"]
    assert rows["64"][-6] == "75.0" and "fits H100 SXM (79 GiB)" in text


def test_failures_and_a_cluster_too_small_for_a_job():
    options = {"seeds": 2, "seconds": 3600.0, "gpus": (4, 16), "failures": 0.02}
    text = report("gsm8k_h100x8", "h100x8", **options)
    assert "too few GPUs for a job, which needs 8: 4" in text
    assert "3 arms x 2 seeds = 6 jobs, 8 GPUs each" in text
    assert "lost GPU-hours" in text
    assert "failures: 0.02 per GPU-hour, GPUs back after 10 min" in text
    assert report("gsm8k_h100x8", "h100x8", **options) == text  # the same draws each time
    assert "GPU-hours of training clock: 48.0" in text  # 6 jobs of an hour on 8


def test_a_cluster_too_small_for_every_job_has_no_schedule():
    text = report("gsm8k_h100x8", "h100x8", gpus=(1, 4))
    assert "too few GPUs for a job, which needs 8: 1, 4" in text and "idle" not in text


def test_the_memory_of_the_host_is_named_where_processes_share_the_weights():
    # 8 x (the model and the engine's copy of it), 4 bytes a number; two moments
    line = (
        "host memory per machine: at least 92.0 GiB at the start (8 processes x 11.5), "
        "23.0 GiB when a checkpoint is saved"
    )
    assert line in report("gsm8k_h100x8", "h100x8").splitlines()
    assert "host memory" not in report("gsm8k_l40s", "h100x8")


def test_a_plan_that_does_not_fit_names_what_to_change():
    assert "does not fit L40S (45 GiB); to fit: " in report("gsm8k_h100x8", "l40s")


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    runs_dir = tmp_path_factory.mktemp("price")
    for arm in ("pods", "grpo", "grpo_ga"):
        for seed, points in enumerate((A, B)):
            write_run(runs_dir, points, f"arm={arm}", f"seed={seed}")
    return runs_dir


def test_step_times_from_a_finished_study(runs_dir, capsys):
    words = ["plan", "quickstart", "--hardware", "cpu", "--from", "default", "--gpus", "2"]
    assert main([*words, "--runs-dir", str(runs_dir)]) == 0
    text = capsys.readouterr().out
    # two steps in 12 s and in 10 s: 5.5 s per step, six steps to 30 s
    [row] = [line for line in text.splitlines() if line.startswith("pods 64→16")]
    assert re.split(r"  +", row)[3:7] == ["30 s", "5.50 s", "not known", "6"]
    assert "fit of default" in text and "as measured (" in text
    other = ["plan", "gsm8k_l40s", "--hardware", "l40s", "--from", "default"]
    assert main([*other, "--runs-dir", str(runs_dir)]) == 2
    message = "error: from=default: its runs have model=tiny, must be qwen2_5_3b\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--hardware", "l40s"], "study=x: must be a preset, one of cost_grid, dapo_math, "),
        (["rules", "--hardware", "x"], "hardware=x: must be one of a100x8, cpu, h100x8, h200, "),
        (["rules", "--gpus", "8"], "--gpus: needs --hardware"),
        (["rules", "--from", "x"], "--from: needs --hardware"),
        (["rules", "--hardware", "l40s", "--nm", "8,8"], "--nm: not with --hardware"),
        (["rules", "--hardware", "l40s", "--gpus", "8,x"], "gpus=8,x: must be whole numbers"),
        (["rules", "--hardware", "l40s", "--gpus", "0"], "gpus=0: must be whole numbers"),
        (["rules", "--hardware", "l40s", "--seeds", "0"], "seeds=0: must be at least 1"),
        (["rules", "--hardware", "l40s", "--tokens", "0"], "tokens=0: must be at least 1"),
        (["rules", "--hardware", "l40s", "--failures", "-1"], "failures=-1: must be a number >= 0"),
        (["rules", "--hardware", "l40s", "--seconds", "0"], "seconds=0: must be a number > 0"),
        (["rules", "--hardware", "l40s", "--from", "x"], "study=x: no runs in"),
        (["gsm8k_l40s", "--hardware", "l40s", "--failures", "50"], "failures=50: must be at most"),
        (["x", "--published", "--hardware", "l40s"], "--published: not with --hardware"),
        (["cost_grid", "--hardware", "cpu"], "seconds: max_variance 16→4 ends by steps"),
    ],
)
def test_a_bad_option_ends_in_one_line(words, message, capsys, tmp_path):
    assert main(["plan", *words, "--runs-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1


def test_the_verb_loads_no_torch_and_takes_the_study_either_way(tmp_path):
    code = (
        "import sys; from pods.cli.main import main\n"
        "assert main(['plan', '--hardware', 'h100x8', '--study', 'gsm8k_l40s']) == 0\n"
        "assert main(['plan', 'gsm8k_l40s', '--hardware', 'h100x8']) == 0\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :] and len(lines) > 20
