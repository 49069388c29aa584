"""The authors' release, written by hand."""

import json

import numpy as np

from pods_lab.published.one_gpu import CHECKPOINTS, FAMILIES

QUESTIONS = {of.dataset: of.questions for of in FAMILIES.values()}
GRPO, PODS = "Instruct-GSM8K-512-16-16", "Instruct-GSM8K-512-64-16"


def evaluation(rng, dataset, level):
    """A block of five repeats, in fractions of the test set's questions."""
    total = QUESTIONS[dataset]
    right = rng.binomial(total, level, 5)
    form, both = rng.integers(right, total + 1), rng.integers(0, right + 1)
    shares = {"ans_acc": right / total, "for_acc": form / total, "both_acc": both / total}
    values = {**shares, "lengths": rng.uniform(150, 350, 5)}
    return {key: value.tolist() for key, value in values.items()}


def write_setting(folder, setting, mean, datasets, runs=10):
    for run in range(1, runs + 1):
        rng = np.random.default_rng([run, mean])
        steps = np.cumsum(np.round(mean * rng.uniform(0.85, 1.15, CHECKPOINTS))).astype(int)
        log = {
            f"checkpoint-{step}": {d: evaluation(rng, d, 0.5 + 0.03 * k) for d in datasets}
            for k, step in enumerate(steps.tolist())
        }
        (folder / f"{setting}-Run{run}.json").write_text(json.dumps(log, indent=4))


def write_base(folder, name="base-qwen.json"):
    rng = np.random.default_rng(5)
    (folder / name).write_text(json.dumps({d: evaluation(rng, d, 0.4) for d in QUESTIONS}))


def write_release(tmp_path):
    """Two settings of ten runs, the base model, and a file that is no log."""
    folder = tmp_path / "results"
    folder.mkdir()
    write_setting(folder, GRPO, 240, QUESTIONS)
    write_setting(folder, PODS, 175, QUESTIONS)
    write_base(folder)
    (folder / "LICENSE").write_text("a licence")
    return folder


def steps_of(log):
    return sorted(int(name.split("-")[1]) for name in log)
