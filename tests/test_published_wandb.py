"""The authors' runs on 8 GPUs: on intact and damaged exports that the tests write."""

import csv
import math

import numpy as np
import pytest

from pods.analysis.published.eight_gpus import CLUSTERS, METRICS, optimizer_steps
from pods.analysis.published.imports import read_import, write_import
from pods.analysis.published.release import read_published

GA, PODS = "GRPO-s{}-p8-n32-m32-ga16", "GRPO-s{}-p8-n128-m32-ga4"
ACCURACY, LENGTH = (metric for _, metric in METRICS.values())
NAMES = [name.format(seed) for name in (GA, PODS) for seed in (21, 22)]


def evaluations(name, per_evaluation, seed):
    """(seconds, S, W&B step, accuracy, tokens) every two minutes or so, for 40 minutes."""
    rng = np.random.default_rng(seed)
    groups = 16 if "ga16" in name else 4
    rows, seconds, steps = [], 0.0, 0
    while seconds < 2400:
        done = int(rng.integers(1, 4))
        steps += done
        seconds += done * rng.uniform(40, 60)
        wandb_step = (3 * groups + 5) * steps + per_evaluation * (len(rows) + 1) - 2
        rows.append(
            (seconds, steps, wandb_step, rng.integers(0, 1319) / 2048, rng.uniform(200, 400))
        )
    return rows


def write_export(path, key, values):
    """A row an evaluation, by time; of each run two columns, each with its minimum and maximum."""
    names = list(values)
    header = ["eval/time"]
    for name in names:
        for column in ("_step", key):
            header += [f"data/{name} - {column}{twin}" for twin in ("", "__MIN", "__MAX")]
    rows = []
    for index, name in enumerate(names):
        for seconds, step, value in values[name]:
            blank = [""] * (6 * len(names))
            blank[6 * index : 6 * index + 6] = [step] * 3 + [value] * 3
            rows.append([seconds, *blank])
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
            [header, *sorted(rows, key=lambda row: row[0])]
        )


def write_release(folder, family="h100s", edit=None):
    """Both files; `edit` may change the points of each: accuracy, length -> None."""
    per_evaluation = CLUSTERS[family].per_evaluation
    runs = {name: evaluations(name, per_evaluation, i) for i, name in enumerate(NAMES)}
    accuracy = {name: [(t, w, a) for t, _, w, a, _ in rows] for name, rows in runs.items()}
    length = {name: [(t, w, tokens) for t, _, w, _, tokens in rows] for name, rows in runs.items()}
    if edit:
        edit(accuracy, length)
    write_export(folder / f"{family}-acc.csv", ACCURACY, accuracy)
    write_export(folder / f"{family}-length.csv", LENGTH, length)
    return runs


@pytest.mark.parametrize("family", CLUSTERS)
def test_an_export_by_hand(tmp_path, family):
    runs = write_release(tmp_path, family)
    published = read_published(tmp_path)
    described, rows, meta = published
    assert (meta["family"], meta["holes"]) == (family, []) and described.complete.all()
    prefix = CLUSTERS[family].prefix
    assert described.series.unique().tolist() == [
        f"{prefix} grpo_ga 32→32, groups=16",
        f"{prefix} pods 128→32, groups=4",
    ]
    assert described.rule.tolist() == ["all"] * 2 + ["max_variance_aliased"] * 2
    assert described.prompts.tolist() == [8] * 4 and described.seed.tolist() == [21, 22] * 2
    for name in NAMES:
        table = rows[rows.run == name]
        columns = table[["train_seconds", "step", "accuracy", "length"]].to_numpy().tolist()
        assert columns == [[t, s, a, tokens] for t, s, _, a, tokens in runs[name]]
    at_the_end = [min(runs[name], key=lambda row: abs(row[0] - 1800)) for name in NAMES[2:]]
    by_hand = np.mean([row[0] / row[1] for row in at_the_end])
    rate = meta["seconds_per_step"][f"{prefix} pods 128→32, groups=4"]
    assert rate == pytest.approx(by_hand)
    assert "does not compute max_variance" in meta["note"]
    assert "lenient" not in rows  # right only in LaTeX: another grader
    write_import(published, tmp_path / "study")
    assert read_import(tmp_path / "study").evaluations.both.isna().all()


def test_optimizer_steps_by_hand():
    # 17 S + 5 j - 2 (ga 4, H100): 17 + 5 - 2, 34 + 10 - 2, 85 + 15 - 2
    assert optimizer_steps([20, 42, 98], 4, 5) == [1, 2, 5]
    # 53 S + 45 j - 2 (ga 16, A100); the last one, without a step of its own, logs 2 more
    assert optimizer_steps([96, 194, 292, 339], 16, 45) == [1, 2, 3, 3]
    with pytest.raises(ValueError, match="_step 30 is no whole number"):
        optimizer_steps([20, 30], 4, 5)
    with pytest.raises(ValueError, match="_step goes back to 20"):
        optimizer_steps([20, 20], 4, 5)


def without(which, name):
    return lambda *files: files[which].pop(name) and None


def interleaved(accuracy, length):
    """Give two runs one name; one of them is slower."""
    for points in (accuracy, length):
        slower = [(1.3 * seconds, step, value) for seconds, step, value in points[NAMES[1]]]
        points[NAMES[1]] = sorted([*points[NAMES[1]], *slower])


def one_changed(which, value):
    def edit(*files):
        points = files[which][NAMES[1]]
        points[7] = (*points[7][:2], value)

    return edit


def cut(accuracy, length):
    for points in (accuracy, length):
        points[NAMES[1]] = [point for point in points[NAMES[1]] if point[0] < 1700]


def shifted(accuracy, length):
    for points in (accuracy, length):
        points[NAMES[1]] = [(t, w + (20 if w > 300 else 0), v) for t, w, v in points[NAMES[1]]]


NOT_ONE = "there is not one step, one accuracy and one length"
DAMAGES = {
    "no length": (without(1, NAMES[1]), "h100s-length.csv has no column of it"),
    "no accuracy": (without(0, NAMES[1]), "h100s-acc.csv has no column of it"),
    "interleaved": (interleaved, "_step goes back to"),
    "an evaluation lost": (lambda a, _: a[NAMES[1]].pop(9) and None, NOT_ONE),
    "percent": (one_changed(0, 81.0), "accuracy 81 is outside 0..1"),
    "too long": (one_changed(1, 5000.0), "outside 0..1024"),
    "a word": (one_changed(0, "n/a"), NOT_ONE),
    "NaN": (one_changed(1, math.nan), NOT_ONE),
    "no value": (one_changed(0, ""), NOT_ONE),
    "stopped early": (cut, "ends before the 1800 s"),
    "steps that were not logged": (shifted, "is no whole number of optimizer steps"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_of_a_run_is_named(tmp_path, damage):
    edit, why = DAMAGES[damage]
    write_release(tmp_path, edit=edit)
    published = read_published(tmp_path)
    [hole] = published.meta["holes"]
    assert hole.startswith(f"{NAMES[1]}: ") and why in hole
    assert published.runs.run[~published.runs.complete].tolist() == [NAMES[1]]
    assert set(published.evaluations.run) == {*NAMES} - {NAMES[1]}
    with pytest.raises(ValueError, match=NAMES[1]):
        write_import(published, tmp_path / "study")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda text: "", "h100s-acc.csv is no W&B export"),
        (lambda text: text.replace("eval/time", "_step", 1), "is no W&B export over eval/time"),
        (lambda text: text[:-40], "h100s-acc.csv is no W&B export"),
        (lambda text: text + '"1"' + ',"2"' * 25, "h100s-acc.csv is no W&B export"),
        (lambda text: text + '"soon"' + ',"2"' * 24, "h100s-acc.csv is no W&B export"),
        (lambda text: text.replace("-ga16 - _step", " - _step", 1), "h100s-acc.csv has a column"),
        (lambda text: text.replace(ACCURACY, "eval/loss", 1), "h100s-acc.csv has a column"),
        (lambda text: text.replace("s21-p8-n32", "s22-p8-n32"), "h100s-acc.csv has a column"),
    ],
)
def test_a_damaged_export_is_named(tmp_path, edit, why):
    write_release(tmp_path)
    path = tmp_path / "h100s-acc.csv"
    path.write_text(edit(path.read_text()))
    with pytest.raises(ValueError, match=why) as caught:
        read_published(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_export_is_named(tmp_path):
    write_release(tmp_path)
    (tmp_path / "h100s-length.csv").unlink()
    with pytest.raises(ValueError, match=r"h100s-length.csv cannot be read: No such file"):
        read_published(tmp_path)
    with pytest.raises(ValueError, match="dataset=math500: must be gsm8k, on which h100s"):
        read_published(tmp_path, dataset="math500")
