"""The authors' one-GPU logs as a study: on an intact and a damaged release that the tests write."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pods.analysis.published.imports import read_import, write_import
from pods.analysis.published.json_log import CHECKPOINTS, QUESTIONS, spacing_fault
from pods.analysis.published.release import families, read_published
from pods.runs.files import replace

GRPO, PODS = "Instruct-GSM8K-512-16-16", "Instruct-GSM8K-512-64-16"


def steps_of_a_run(rng, mean, count=CHECKPOINTS, drift=0.0):
    """Steps at equal times: increments within 15 % of a mean that may change on the way."""
    means = mean * np.exp(drift * np.linspace(0, 1, count))
    return np.cumsum(np.round(means * rng.uniform(0.85, 1.15, count))).astype(int).tolist()


def evaluation(rng, dataset, level):
    """A block of five repeats, in fractions of the test set's questions."""
    total = QUESTIONS[dataset]
    right = rng.binomial(total, level, 5)
    form = rng.integers(right, total + 1)
    both = rng.integers(0, right + 1)
    shares = {"ans_acc": right / total, "for_acc": form / total, "both_acc": both / total}
    values = {**shares, "lengths": rng.uniform(150, 350, 5)}
    return {key: value.tolist() for key, value in values.items()}


def write_setting(folder, setting, mean, datasets, runs=10, seed=0):
    for run in range(1, runs + 1):
        rng = np.random.default_rng([seed, run, mean])
        log = {
            f"checkpoint-{step}": {d: evaluation(rng, d, 0.5 + 0.03 * k) for d in datasets}
            for k, step in enumerate(steps_of_a_run(rng, mean))
        }
        (folder / f"{setting}-Run{run}.json").write_text(json.dumps(log, indent=4))


def write_base(folder, name="base-qwen.json"):
    rng = np.random.default_rng(5)
    (folder / name).write_text(json.dumps({d: evaluation(rng, d, 0.4) for d in QUESTIONS}))


@pytest.fixture
def release(tmp_path):
    """Two settings of ten runs, the base model, and a file that is no log."""
    folder = tmp_path / "results"
    folder.mkdir()
    write_setting(folder, GRPO, 240, QUESTIONS)
    write_setting(folder, PODS, 175, QUESTIONS)
    write_base(folder)
    (folder / "LICENSE").write_text("a licence")
    return folder


def change(path, edit):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(edit(content) or content))


def steps_of(log):
    return sorted(int(name.split("-")[1]) for name in log)


def block(log):
    return log[f"checkpoint-{steps_of(log)[4]}"]["gsm8k"]


def test_a_release_by_hand(release):
    runs, evaluations, meta = read_published(release)
    assert (meta["family"], meta["dataset"], meta["holes"]) == ("gsm8k", "gsm8k", [])
    assert runs.series.unique().tolist() == ["GSM8K grpo 16→16", "GSM8K pods 64→16"]
    assert runs.complete.all() and len(runs) == 20
    assert runs.iloc[-1].to_dict() == {
        "run": f"{PODS}-Run10",
        "series": "GSM8K pods 64→16",
        "arm": "pods",
        "rule": "max_variance",
        "n": 64,
        "m": 16,
        "groups": 1,
        "prompts": 1,
        "seed": 10,
        "machine": "NVIDIA L40S",
        "complete": True,
    }
    assert runs.rule.iloc[0] == "all"
    of_run = evaluations[evaluations.run == f"{PODS}-Run10"]
    assert of_run.train_seconds.tolist() == [1800.0 * k for k in range(13)]
    log = json.loads((release / f"{PODS}-Run10.json").read_text())
    steps = steps_of(log)
    assert of_run.step.tolist() == [0, *steps]
    fourth = log[f"checkpoint-{steps[3]}"]["gsm8k"]
    for column, key in {"accuracy": "ans_acc", "format": "for_acc", "both": "both_acc"}.items():
        assert of_run[column].iloc[4] == pytest.approx(sum(fourth[key]) / 5, abs=1e-15)
    assert of_run.lenient.tolist() == of_run.accuracy.tolist()  # ans_acc is by their grader
    assert of_run.length.iloc[4] == pytest.approx(sum(fourth["lengths"]) / 5)
    assert of_run.shared.tolist() == [True] + [False] * 12
    first = evaluations[evaluations.step == 0]
    assert len(first) == 20 and first.accuracy.nunique() == 1
    assert (evaluations.repeats == 5).all() and (evaluations.questions == 1319).all()


def test_seconds_per_step_by_hand(release):
    last = [steps_of(json.loads(p.read_text()))[-1] for p in release.glob(f"{PODS}-Run*.json")]
    by_hand = sum(6 * 3600 / step for step in last) / 10
    rates = read_published(release).meta["seconds_per_step"]
    assert rates["GSM8K pods 64→16"] == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("setting", "dataset", "series", "rule", "questions", "hours"),
    [
        ("Instruct-GSM8K-MaxR-512-64-16", "gsm8k", "GSM8K max_reward 64→16", "max_reward", 1319, 6),
        ("Instruct-GSM8K-Rand-512-64-16", "gsm8k", "GSM8K random 64→16", "random", 1319, 6),
        ("Instruct-MATH-NF-512-8-8", "math500", "MATH grpo 8→8", "all", 496, 6),
        (
            "Instruct-Llama-512-64-16-0.04",
            "gsm8k",
            "Llama pods 64→16, kl_beta=0.04",
            "max_variance",
            1319,
            2,
        ),
    ],
)
def test_each_setting_has_its_rule_test_set_and_hours(
    tmp_path, setting, dataset, series, rule, questions, hours
):
    write_setting(tmp_path, setting, 60, [dataset])
    write_base(tmp_path, "base-llama.json" if "Llama" in setting else "base-qwen.json")
    runs, evaluations, meta = read_published(tmp_path)
    assert meta["holes"] == [] and meta["dataset"] == dataset
    assert set(runs.series) == {series} and set(runs.rule) == {rule}
    assert set(evaluations.questions) == {questions}
    assert evaluations.train_seconds.max() == hours * 3600
    assert meta["budget"] == f"{hours} h (nominal)"


def test_another_test_set_can_be_chosen(release):
    published = read_published(release, dataset="amc23")
    assert published.meta["holes"] == [] and set(published.evaluations.questions) == {40}
    with pytest.raises(ValueError, match="dataset=aime: must be one of amc23, gsm8k, math500"):
        read_published(release, dataset="aime")


def test_families_are_kept_apart(release):
    write_setting(release, "Instruct-Llama-512-16-16-0.04", 55, ["gsm8k"])
    write_base(release, "base-llama.json")
    assert families(release) == ["gsm8k", "llama"]
    with pytest.raises(ValueError, match="has logs of gsm8k, llama, which share no time axis"):
        read_published(release)
    assert set(read_published(release, "gsm8k").runs.arm) == {"grpo", "pods"}
    assert read_published(release.parent, "llama").meta["holes"] == []  # results/ is found
    with pytest.raises(ValueError, match="family=math: must be one of gsm8k, llama"):
        read_published(release, "math")


def test_a_folder_without_logs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing: no such folder"):
        read_published(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"contains no logs of the PODS authors"):
        read_published(tmp_path)


def drop(k):
    return lambda log: log.pop(f"checkpoint-{steps_of(log)[k]}") and None


def set_value(key, value):
    return lambda log: block(log)[key].__setitem__(2, value)


def mixed_in(log):
    """A second run that was stopped after two checkpoints left them in the same folder."""
    first = round(0.8 * steps_of(log)[0])
    one, two, *_ = log.values()
    return {**log, f"checkpoint-{first}": one, f"checkpoint-{2 * first + 3}": two}


def renamed(new):
    return lambda log: {new if k == 5 else name: log[name] for k, name in enumerate(log)}


DAMAGES = {
    "one lost": (drop(6), "11 checkpoints, not 12; a checkpoint is missing between"),
    "last lost": (drop(11), "11 checkpoints, not 12"),
    "two runs": (mixed_in, "14 checkpoints, not 12; they read as two runs"),
    "empty": (lambda log: {"": 0} and log.clear(), "0 checkpoints, not 12"),
    "no checkpoint": (renamed("global_step"), "'global_step' is no checkpoint"),
    "negative": (renamed("checkpoint--5"), "'checkpoint--5' is no checkpoint"),
    "no dataset": (lambda log: log[list(log)[3]].pop("gsm8k") and None, "no evaluation on gsm8k"),
    "no measure": (lambda log: block(log).pop("both_acc") and None, "both_acc is no list"),
    "four values": (lambda log: block(log)["ans_acc"].pop() and None, "has 4 values, not 5"),
    "six values": (lambda log: block(log)["lengths"].append(200.0), "has 6 values, not 5"),
    "a word": (set_value("for_acc", "0.5"), "for_acc is no list of numbers"),
    "a truth": (set_value("for_acc", True), "for_acc is no list of numbers"),
    "null": (set_value("ans_acc", None), "ans_acc is no list of numbers"),
    "NaN": (set_value("ans_acc", math.nan), "ans_acc nan is outside 0..1"),
    "percent": (set_value("ans_acc", 81.5), "ans_acc 81.5 is outside 0..1"),
    "below 0": (set_value("both_acc", -0.1), "both_acc -0.1 is outside 0..1"),
    "no share": (set_value("ans_acc", 0.8126), "ans_acc 0.8126 is no share of 1319 questions"),
    "too long": (set_value("lengths", 9000), "lengths 9000 is outside 0..512"),
    "both above": (set_value("both_acc", 1.0), "both_acc 1.0 is above"),
    "a list": (lambda log: [log], "no JSON object"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_named_by_file(release, damage):
    run = f"{GRPO}-Run4"
    edit, why = DAMAGES[damage]
    change(release / f"{run}.json", edit)
    runs, evaluations, meta = read_published(release)
    [hole] = meta["holes"]
    assert hole.startswith(f"{run}.json: ") and why in hole and "\n" not in hole
    assert runs.run[~runs.complete].tolist() == [run]
    assert {*evaluations.run} == {*runs.run} - {run}


def test_damaged_bytes_are_named_by_file(release):
    intact = (release / f"{GRPO}-Run1.json").read_bytes()
    repeated = intact.replace(b'"for_acc"', b'"ans_acc"', 1)
    damaged = {1: intact[:-100], 2: b"", 3: b"\xff" + intact, 5: b"[" * 100_000, 6: repeated}
    for run, content in damaged.items():
        (release / f"{GRPO}-Run{run}.json").write_bytes(content)
    holes = read_published(release).meta["holes"]
    assert [hole.partition(": no JSON: ")[0] for hole in holes] == [
        f"{GRPO}-Run{run}.json" for run in damaged
    ]
    assert holes[-1].endswith("ans_acc occurs twice")


def test_copies_missing_runs_and_unexpected_files_are_named(release):
    shutil.copy(release / f"{GRPO}-Run2.json", release / f"{PODS}-Run9.json")
    (release / f"{GRPO}-Run7.json").rename(release / "Instruct-GSM8K-16-Run7.json")
    (release / "base-qwen.json").unlink()
    published = read_published(release)
    assert published.meta["holes"] == [
        f"{GRPO}-Run2.json: the same content as {PODS}-Run9.json",
        f"{PODS}-Run9.json: the same content as {GRPO}-Run2.json",
        "base-qwen.json: cannot be read: No such file or directory",
        "Instruct-GSM8K-16-Run7.json: not a file name of the release",
        f"{GRPO}-Run7.json: missing",
    ]
    assert published.evaluations.run.nunique() == 17 and published.evaluations.step.min() > 0


def test_the_checkpoints_of_one_run_have_no_fault():
    rng = np.random.default_rng(0)
    for _ in range(500):
        mean, drift = rng.uniform(40, 300), rng.uniform(-1, 1)  # up to 2.7 x slower or faster
        assert spacing_fault(steps_of_a_run(rng, mean, drift=drift)) is None
    slower_for_good = np.cumsum([220] * 5 + [100] * 7).tolist()
    assert spacing_fault(slower_for_good) is None


def test_two_runs_in_one_file_are_recognised():
    """Also if one was cut short or is slower; a common step would make the count wrong."""
    rng = np.random.default_rng(1)
    pairs = 0
    for _ in range(500):
        mean, count = rng.uniform(40, 300), int(rng.integers(2, 11))
        one = steps_of_a_run(rng, mean, count=count)
        other = steps_of_a_run(rng, mean * rng.uniform(0.6, 1.6), count=12 - count)
        if not {*one} & {*other}:
            fault = spacing_fault(sorted({*one, *other}))
            assert fault is not None and fault.startswith("they read as two runs"), (one, other)
            pairs += 1
    assert pairs > 450


def test_an_import_is_read_back_exactly(release, tmp_path):
    published = read_published(release)
    study = tmp_path / "runs" / "published"
    folder = write_import(published, study, command="pods import-published results")
    assert {path.name for path in folder.iterdir()} == {
        "evaluations.csv",
        "import.json",
        "runs.csv",
    }
    write_import(published, study, command="pods import-published ./results")  # the same again
    runs, evaluations, meta = read_import(study)
    pd.testing.assert_frame_equal(runs, published.runs, check_exact=True)
    pd.testing.assert_frame_equal(evaluations, published.evaluations, check_exact=True)
    assert {key: meta[key] for key in published.meta} == published.meta
    assert meta["machines"] == ["NVIDIA L40S"] and "nominal" in meta["note"]
    assert len(meta["files"]) == 21
    assert meta["files"]["base-qwen.json"] != meta["files"][f"{GRPO}-Run1.json"]


def test_irregular_files_are_an_error_unless_left_out(release, tmp_path):
    change(release / f"{PODS}-Run3.json", drop(5))
    published = read_published(release)
    with pytest.raises(ValueError, match=f"(?s)--allow-missing.*{PODS}-Run3.json: 11 checkpoints"):
        write_import(published, tmp_path / "study")
    assert not (tmp_path / "study").exists()
    write_import(published, tmp_path / "study", allow_missing=True)
    runs, evaluations, meta = read_import(tmp_path / "study")
    assert runs.complete.sum() == 19 and evaluations.run.nunique() == 19
    assert meta["holes"] == published.meta["holes"]


def test_an_import_needs_a_regular_run(tmp_path):
    write_base(tmp_path)
    for run in range(1, 11):
        (tmp_path / f"{GRPO}-Run{run}.json").write_text("{}")
    published = read_published(tmp_path)
    assert len(published.meta["holes"]) == 10
    with pytest.raises(ValueError, match="gsm8k: no regular run is left"):
        write_import(published, tmp_path / "study", allow_missing=True)


def test_a_study_with_other_content_is_not_overwritten(release, tmp_path):
    published = read_published(release)
    write_import(published, tmp_path / "study")
    other = read_published(release, dataset="math500")
    with pytest.raises(ValueError, match=r"holds another import \(gsm8k of 21 files\)"):
        write_import(other, tmp_path / "study")
    assert read_import(tmp_path / "study").meta["dataset"] == "gsm8k"
    run = tmp_path / "own" / "model-task" / "rule-n64-m16" / "seed0-abc"
    run.mkdir(parents=True)
    replace(run / "identity.json", "{}")
    with pytest.raises(ValueError, match="has runs of its own"):
        write_import(published, tmp_path / "own")


@pytest.mark.parametrize("name", ["runs.csv", "evaluations.csv", "import.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_import_is_named(release, tmp_path, name, damage):
    published = read_published(release)
    path = write_import(published, tmp_path / "study") / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-30] if damage == "cut" else content.replace(b"s", b"t"))
    with pytest.raises(ValueError, match=name) as caught:
        read_import(tmp_path / "study")
    assert "\n" not in str(caught.value)
    if name != "import.json":  # it says what belongs in the folder
        write_import(published, tmp_path / "study")
        assert len(read_import(tmp_path / "study").runs) == 20


@pytest.mark.realdata
def test_the_published_numbers():
    """Others computed these from the same files (final, seconds/step, area, first 8 runs)."""
    folder = Path(os.environ["PODS_REALDATA"]) / "pods_published"
    runs, evaluations, meta = read_published(folder)
    assert meta["holes"] == [] and len(runs) == 20 and runs.complete.all()
    trained = evaluations[~evaluations.shared]
    last = trained[trained.train_seconds == 6 * 3600].groupby("series").accuracy
    assert (100 * last.mean()).round(2).to_dict() == {
        "GSM8K grpo 16→16": 80.76,
        "GSM8K pods 64→16": 82.60,
    }
    assert (100 * last.sem()).round(2).tolist() == [0.67, 0.30]
    assert {series: round(rate, 2) for series, rate in meta["seconds_per_step"].items()} == {
        "GSM8K grpo 16→16": 7.56,
        "GSM8K pods 64→16": 10.12,
    }
    assert round(100 * trained.groupby("series").accuracy.mean()["GSM8K pods 64→16"], 2) == 81.70
    eight = trained[trained.seed <= 8].groupby("series").accuracy.mean()
    assert round(100 * (eight["GSM8K pods 64→16"] - eight["GSM8K grpo 16→16"]), 2) == 1.17
    for dataset in ("math500", "amc23"):
        assert read_published(folder, dataset=dataset).meta["holes"] == []


@pytest.mark.realdata
def test_the_irregular_runs_of_the_release_are_named():
    """The three JSON runs and two A100 columns that shared/data's README calls irregular."""
    folder = Path(os.environ["PODS_REALDATA"]) / "pods_release"
    holes = {
        family: [hole.partition(":")[0] for hole in read_published(folder, family).meta["holes"]]
        for family in families(folder)
    }
    assert holes == {
        "gsm8k": [f"Instruct-GSM8K-512-64-2-Run{run}.json" for run in (9, 10)],
        "math": [],
        "llama": ["Instruct-Llama-512-64-16-0.04-Run4.json"],
        "h100s": [],
        "a100s": [f"GR7B-s{seed}-p8-n32-m32-ga16" for seed in (15, 24)],
    }
