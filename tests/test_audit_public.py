"""`pods audit` of public collections: tables over settings, MLPerf's lines, older verl logs.

The excerpts are made here, in the forms of haolpku/DataFlex-RL, MLPerf and verl's forks.
"""

import json

import numpy as np
import pytest
from scipy import stats

from pods.cli.main import main
from pods_lab.audit.mllog import read_mllog

SETTINGS = ("7B", "0.5B", "noisy labels", "14B")
TABLE_MAP = """
score: accuracy
mean_of: [[gsm8k, math], gpqa]
setting: [model, data]
baseline: uniform
"""


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Audit files of the working folder, and return what is printed."""
    monkeypatch.chdir(tmp_path)

    def audit(*words, code=0):
        assert main(["audit", *map(str, words)]) == code
        shown = capsys.readouterr()
        return shown.out + shown.err

    return audit


def table(lines=(), settings=SETTINGS):
    """A row per run: three sets, two methods, settings of three seeds; gains differ by setting."""
    rows = ["model,data,method,seed,gsm8k,math,gpqa", *lines]
    gains = []
    for place, setting in enumerate(settings):
        model, _, data = setting.partition(" ")
        gain = []
        for seed in range(3):
            base = np.array([50.0, 30.0, 20.0]) + 5 * place + seed
            lift = np.array([1.0, 3.0, 0.5]) * (place - 1) + 0.1 * seed
            for method, scores in (("uniform", base), ("maxvar", base + lift)):
                cells = ",".join(f"{score:.2f}" for score in scores)
                rows.append(f"{model},{data},{method},{seed},{cells}")
            gain.append((lift[:2].mean() + lift[2]) / 2)
        gains.append(np.mean(gain))
    return "\n".join(rows), np.array(gains)


def test_a_table_over_settings_is_paired_over_them_by_the_mean_of_their_seeds(said, tmp_path):
    alone = ["7B,,alone,0,1,2,3"]  # in no other setting, nor with the seeds of this one
    alone += [f"7B,,once,{seed},99,99,99" for seed in range(3)]  # in no other setting
    text, gains = table(alone)
    (tmp_path / "runs.csv").write_text(text)
    (tmp_path / "map.yaml").write_text(TABLE_MAP)
    shown = said("runs.csv", "--map", "map.yaml")
    low, high = stats.ttest_1samp(gains, 0).confidence_interval()
    assert "unit: percent (proposed)" in shown
    assert f"maxvar is {gains.mean():.2f} points above uniform" in shown
    assert f"(95 % interval {low:.2f} to {high:.2f}" in shown and "4 pairs" in shown
    assert "a pair is one of 4 settings of model and data: the mean over its seeds" in shown
    assert "What the sentences call a seed is a setting" in shown
    left_out = (tmp_path / "pods-audit/left_out.csv").read_text()
    assert "alone 7B: lacks seeds 1, 2, so it is left out" in left_out
    assert "once: shares less than two settings with uniform" in left_out and "99" not in shown


def test_seeds_that_a_method_lacks_in_a_setting_are_left_out_for_the_others(said, tmp_path):
    text, _ = table()
    rows = [row for row in text.splitlines() if not row.startswith("14B,,maxvar,2")]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    (tmp_path / "map.yaml").write_text(TABLE_MAP)
    _, gains = table()
    gains[3] -= 0.1 * 0.5  # the lift of seeds 0 and 1 is that much less than of all three
    assert f"maxvar is {gains.mean():.2f} points above" in said("runs.csv", "--map", "map.yaml")
    assert "uniform 14B seed 2: most methods have no such seed there" in said(
        "runs.csv", "--map", "map.yaml"
    )


@pytest.mark.parametrize(("line", "message"), [
    ("setting: [model, data, size]", "setting=size: no log has this column"),
    ("mean_of: [gsm8k, aime]", "mean_of=aime: no log has this column"),
    ("mean_of: 5", "mean_of=5: must be a list of columns, or of lists of columns"),
])  # fmt: skip
def test_columns_of_settings_and_means_must_be_there(line, message, said, tmp_path):
    (tmp_path / "runs.csv").write_text(table()[0])
    key = line.partition(":")[0]
    lines = [line if row.startswith(f"{key}:") else row for row in TABLE_MAP.splitlines()]
    (tmp_path / "map.yaml").write_text("\n".join(lines))
    assert message in said("runs.csv", "--map", "map.yaml", code=2)


def test_a_curve_has_no_setting(said, tmp_path):
    rows = ["step,method,seed,size,accuracy"]
    rows += [f"{step},{m},{seed},7B,0.{step}" for step in (1, 2) for m in "ab" for seed in (0, 1)]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    (tmp_path / "map.yaml").write_text("setting: size")
    message = "setting: must be of a table with one row for each run; a 0"
    assert message in said("runs.csv", "--map", "map.yaml", code=2)


# MLPerf


def mllog(key, value, milliseconds, kind="POINT_IN_TIME", **metadata):
    event = {
        "namespace": "",
        "time_ms": 1_750_000_000_000 + milliseconds,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }
    return f":::MLLOG {json.dumps(event)}"


def mlperf(size, seed, scores, status="success"):
    """A log of MLPerf: the hyperparameters, a validation every 10 steps of 60 s, and the end.

    As in the public logs a block's start names the samples of its end, and the run's end has a
    place, too.
    """
    lines = ["python train.py", mllog("cache_clear", True, 0), mllog("seed", seed, 1)]
    lines.append(mllog("global_batch_size", size, 2))
    lines.append(mllog("run_start", None, 5000, "INTERVAL_START"))
    for place, score in enumerate(scores, start=1):
        samples = 10 * place * size
        begin = 5000 + 600_000 * (place - 1)
        time = begin + 600_000
        at = {"samples_count": samples, "step": 10 * (place - 1)}
        lines.append(mllog("block_start", None, begin, "INTERVAL_START", **at))
        lines.append(mllog("tracked_stats", {"train_loss": 0.5}, time, samples_count=samples))
        lines.append(f"0: {mllog('eval_accuracy', score, time, samples_count=samples)}")
    end = {"samples_count": samples, "status": status}
    lines.append(mllog("run_stop", None, time + 1, "INTERVAL_END", **end))
    return "\n".join([*lines, ":::MLLOG {cut"])


def test_mlperf_logs_are_read(said, tmp_path):
    for size in (16, 32):
        for seed in range(3):
            text = mlperf(size, seed, [0.5 + seed / 100, 0.6 + size / 200 + seed / 50])
            (tmp_path / f"gbs{size}_{seed}.out").write_text(text)
    shown = said(".", "--by", "config:global_batch_size")
    assert "6 runs from console lines of verl, prime-rl or MLPerf" in shown
    assert "score: eval_accuracy (proposed)" in shown and "seed: config:seed (proposed)" in shown
    assert "Over seconds" in shown and "first evaluation" not in shown
    assert "backwards" not in shown
    runs = json.loads((tmp_path / "pods-audit/audit.json").read_text())["runs"]
    assert {(run["first_step"], run["last_step"]) for run in runs} == {(160, 320), (320, 640)}
    assert {run["seconds"] for run in runs} == {1200.0}


@pytest.mark.parametrize("time", ["null", '"12"', "true"])
def test_a_line_of_mlperf_without_a_time_is_no_event(time):
    rows, config, _ = read_mllog(
        f':::MLLOG {{"key": "seed", "value": 1, "time_ms": {time}}}\n'
        ':::MLLOG {"key": "size", "value": 2, "time_ms": 5, "metadata": [1]}'
    )
    assert (rows, config) == ([], {"size": 2})


def test_runs_that_pass_at_their_first_validation_are_said_to(said, tmp_path):
    for seed in range(3):
        (tmp_path / f"a_{seed}.out").write_text(mlperf(16, seed, [0.7]))
        (tmp_path / f"b_{seed}.out").write_text(mlperf(32, seed, [0.8], "aborted"))
    shown = said(".", "--by", "config:global_batch_size")
    assert (
        "stopped with success at the first evaluation, so samples and time to the target are "
        "those of its schedule: a_0, a_1, a_2" in shown
    )
    assert "16 is 10.00 points below 32" in shown
    assert "each run has one score, and not at equal steps (160 to 320)" in shown


def test_the_time_to_the_target_of_mlperf_can_be_the_score(said, tmp_path):
    for seed in range(3):
        (tmp_path / f"a_{seed}.out").write_text(mlperf(16, seed, [0.5, 0.7]))
        (tmp_path / f"b_{seed}.out").write_text(mlperf(32, seed, [0.8]))
    (tmp_path / "map.yaml").write_text("score: seconds_to_target\nmethod: config:global_batch_size")
    shown = said(".", "--map", "map.yaml")
    assert "Final seconds_to_target: 16 is 600 units of the score above 32" in shown


# verl, as GRESO, MoPPS and TinyZero write it


def verl(lift, seconds, total=""):
    lines = ["(main_task pid=1) step:0 - val/test_score/gsm8k:0.1 - val/test_score/math:0.05"]
    for step in range(1, 21):
        line = f"step:{step} - critic/rewards/mean:0.9 - timing/gen:{seconds} - "
        line += "timing/update_actor:1.0 - timing/testing:50.0 - timing/save_checkpoint:9"
        if step % 5 == 0:
            line += f" - val/test_score/gsm8k:{0.1 + lift * step:.3f} - val/test_score/math:0.1"
        lines.append(line + total)
    return "\n".join(lines)


def test_test_scores_and_parts_of_the_time_of_verl_are_read(said, tmp_path):
    for method, lift, seconds in (("grpo", 0.01, 4.0), ("greso", 0.02, 2.0)):
        for seed in range(2):
            folder = tmp_path / f"{method}-seed{seed}"
            folder.mkdir()
            (folder / "run.log").write_text(verl(lift + seed / 1000, seconds))
    shown = said(".")
    assert "score: val/test_score/gsm8k (proposed)" in shown
    assert "other scores: val/test_score/math" in shown
    assert "method: name (proposed)" in shown and " points above grpo (" in shown
    assert (
        "seconds are the sum of timing/gen, timing/update_actor; timing/save_checkpoint, "
        "timing/testing are no training" in shown
    )
    runs = json.loads((tmp_path / "pods-audit/audit.json").read_text())["runs"]
    expected = {f"{m}-seed{s}": x for m, x in (("grpo", 100.0), ("greso", 60.0)) for s in (0, 1)}
    assert {run["run"]: run["seconds"] for run in runs} == expected


def test_a_total_is_preferred_to_its_parts(said, tmp_path):
    for name in ("a-seed0", "a-seed1", "b-seed0", "b-seed1"):
        (tmp_path / f"{name}.log").write_text(verl(0.01, 4.0, total=" - timing/step:7.5"))
    assert "seconds: sum:timing/step (proposed)" in said(".")


@pytest.mark.parametrize(
    ("path", "name"), [("ppo-seed0/run.log", "ppo"), ("ppo-seed0/x.log", "ppo/x")]
)
def test_the_seed_of_a_folder_leaves_the_name_of_its_method_whole(path, name, said, tmp_path):
    for seed in (0, 1):
        target = tmp_path / path.replace("seed0", f"seed{seed}")
        target.parent.mkdir()
        target.write_text(verl(0.01 + seed / 1000, 4.0))
    assert f"{name} is the only method" in said(".")


# what is said of what is not taken


def test_a_time_with_its_unit_is_taken_and_one_without_is_named(said, tmp_path):
    def write(column):
        rows = [f"step,method,seed,accuracy,{column}"]
        for method, pace in (("a", 30), ("b", 60)):
            for seed in range(3):
                rows += [f"{k},{method},{seed},0.{k + seed},{pace * k}" for k in range(1, 9)]
        (tmp_path / "runs.csv").write_text("\n".join(rows))

    write("time_s")
    assert "seconds: time_s (proposed)" in said("runs.csv")
    write("train_time")
    shown = said("runs.csv")
    assert "seconds: None (proposed)" in shown
    assert "perhaps a time, and not taken: train_time (seconds: COLUMN takes it)" in shown


def test_one_number_of_each_method_says_what_it_lacks(said, tmp_path):
    (tmp_path / "runs.csv").write_text("name,accuracy\ngrpo,0.5\npods,0.6\n")
    shown = said("runs.csv", code=2)
    assert "if each row is the final score of a run: --by column:NAME" in shown
    assert "pods is 10.00 points above grpo" in said("runs.csv", "--by", "column:name")


@pytest.mark.parametrize(("scale", "line"), [
    (1, "reward is shown in percent, since all its values are from 0 to 1 (unit: score shows it"),
    (100, "reward may be a percent, since its values are from 0 to 100 (unit: percent)"),
])  # fmt: skip
def test_a_reward_that_may_be_a_percent_is_said_to(scale, line, said, tmp_path):
    rows = ["method,seed,reward"]
    rows += [f"{m},{seed},{scale * (0.2 + seed / 10)}" for m in "ab" for seed in range(3)]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    assert line in said("runs.csv")
