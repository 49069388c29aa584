"""Evaluate one checkpoint outside of its run, on any test set; the records belong to no run."""

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from msgspec import structs

from pods.config.inputs import missing_packages
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import ON_THE_HUB
from pods.runs.files import replace as write
from pods.runs.files import sha256
from pods.runs.find import find_checkpoint, find_run
from pods.runs.identity import run_folder
from pods.runs.store import RunStore
from pods.system.machine import set_threads
from pods.system.text import command
from pods.types import Task

FOLDER = "evaluated"
"""Folder in the study's, beside the runs; in the working folder for a run outside of any study."""


def evaluate_checkpoint(options: Namespace) -> None:
    """Evaluate, print the accuracy, and write the records, with questions and completions."""
    store = find_run(options.study, options.runs_dir)
    checkpoint = find_checkpoint(store, options.step or "last")
    config = store.config()
    if options.greedy:
        config.evaluation = replace(config.evaluation, temperature=0.0, repeats=1)
    elif options.repeats:
        config.evaluation = replace(config.evaluation, repeats=options.repeats)
    set_threads(config.hardware.threads)
    name, task = _task(config, options.on)
    path = _path(store, checkpoint, config, options.on)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # fails now, not when all is answered
    records = list(_answer(config, task, name, checkpoint))
    about = {
        "checkpoint": str(checkpoint),
        "test_set": name or config.task.test_label(),
        "repeats": config.evaluation.repeats,
        "temperature": config.evaluation.temperature,
        **_means(records),
        "command": command(),
    }
    write(path, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
    write(path.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False))
    print(
        f"accuracy {about['accuracy']:.3f} ± {about['stderr']:.3f} (standard error over "
        f"{about['questions']} questions), format {about['format']:.3f}, length "
        f"{about['length']:.1f} tokens\nrecords: {path} (a summary as JSON beside it)"
    )


def _task(config: Config, on: str | None) -> tuple[str, Task]:
    """Return the name of the test set, "" for the run's own, and the task with its questions."""
    from pods.tasks.load import load, load_questions
    from pods.training.evaluate import evaluation_questions

    if on is None:
        task = load(config.task)
        return "", replace(task, test=evaluation_questions(config, task))
    file = Path(on)
    name: Any = file.stem
    if not (file.is_file() or on in ON_THE_HUB):
        raise ConfigError("--on", on, f"must be a file, or one of {', '.join(ON_THE_HUB)}")
    if name in ON_THE_HUB and config.task.name in ("gsm8k", "math"):
        path = on if file.is_file() else None  # a file of its name, or the hub
        known = replace(config.task, test_set=name, test_path=path, malformed="drop")
        for absent in missing_packages(replace(config, task=known)):
            raise absent
        return name, load(known)
    if not file.is_file():
        raise ConfigError("--on", on, f"must be a file: this run was trained on {config.task.name}")
    return name, load_questions(config.task, file)


def _path(store: RunStore, checkpoint: Path, config: Config, on: str | None) -> Path:
    """Return where the records are written: named from the run, the set and the sampling."""
    file, evaluation = Path(on or config.task.test_label()), config.evaluation
    content = f"-{sha256(file)[:6]}" if on and file.is_file() else ""  # two files of one name
    sampled = f"t{evaluation.temperature:g}x{evaluation.repeats}"
    how = "greedy" if evaluation.temperature == 0 else sampled
    arm, seed = store.folder.parts[-2:]
    in_study = store.folder.parts[-3:-1] == run_folder(config, {}).parts[-3:-1]
    folder = store.folder.parents[2] / FOLDER if in_study else Path(FOLDER).absolute()
    return folder / f"{arm}-{seed}-{checkpoint.name}-{file.stem[:60]}{content}-{how}.jsonl"


def _answer(config: Config, task: Task, name: str, checkpoint: Path) -> Iterator[dict[str, Any]]:
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.policy import load_policy
    from pods.training.data import fitting
    from pods.training.evaluate import evaluate

    step = int(checkpoint.name.removeprefix("step-"))
    policy = load_policy(config, checkpoint)
    problems, prompts, _ = fitting("test", task.test, policy.tokenizer, config)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    by_id = {problem.id: problem for problem in problems}
    task = replace(task, test=problems)
    for answers in evaluate(config, task, prompts, engine, step, 0, name):
        for record, text in answers:
            problem = by_id[record.question]
            asked = {"asked": problem.question, "gold": problem.gold, "completion": text}
            yield {**structs.asdict(record), **asked}


def _means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Average the records; the standard error is over questions, of each question's mean."""
    right: dict[str, list[bool]] = {}
    for record in records:
        right.setdefault(record["question"], []).append(record["correct"])
    means = [fmean(answers) for answers in right.values()]
    return {
        "accuracy": fmean(means),
        "stderr": stdev(means) / len(means) ** 0.5 if len(means) > 1 else float("nan"),
        "questions": len(means),
        "format": fmean(record["format"] for record in records),
        "length": fmean(record["length"] for record in records),
    }
