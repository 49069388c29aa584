"""`pods evaluate`: evaluate one checkpoint of a run on any test set.

The records belong to no run, and no figure reads them. A run's own evaluations are made by the
command that made the run.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pods.cli.options import add_checkpoint_options
from pods.config.inputs import missing_packages
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import ON_THE_HUB
from pods.config.task_keys import TaskConfig
from pods.runs import files
from pods.runs.find import find_checkpoint, find_run
from pods.runs.history import step_of
from pods.runs.identity import run_folder
from pods.runs.store import RunStore
from pods.system.machine import set_threads
from pods.system.text import command

if TYPE_CHECKING:
    from pods.types import Task

FOLDER = "evaluated"
"""Folder in the study's folder, or in the working folder for a run outside of any study."""
LONGEST_NAME = 60  # characters of a test set's file that stand in the name of the records' file


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("--on", metavar="SET", help="another test set, or a file of JSON lines")
    parser.add_argument("--greedy", action="store_true", help="decode at temperature 0, once")
    passes = "passes over the questions (default: as configured)"
    parser.add_argument("--repeats", type=int, metavar="K", help=passes)


def run(options: Namespace) -> None:
    """Evaluate, print the accuracy, and write the records, with questions and completions."""
    if options.repeats is not None and (options.greedy or options.repeats < 1):
        raise ConfigError("--repeats", options.repeats, "must be at least 1, without --greedy")
    store = find_run(options.run, options.runs_dir)
    checkpoint = find_checkpoint(store, options.step)
    config = store.config()
    if options.greedy:
        config.evaluation = replace(config.evaluation, temperature=0.0, repeats=1)
    elif options.repeats is not None:
        config.evaluation = replace(config.evaluation, repeats=options.repeats)
    set_threads(config.hardware.threads)

    name, task = _task(config, options.on)
    path = _path(store, checkpoint, config, options.on)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # fails now, not when all is answered
    records = list(_answer(config, task, name, checkpoint))

    about = _summary(config, checkpoint, name, records)
    files.replace(path, files.json_lines(records))
    files.replace(path.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False))
    print(
        f"accuracy {about['accuracy']:.3f} ± {about['stderr']:.3f} (standard error over "
        f"{about['questions']} questions), format {about['format']:.3f}, length "
        f"{about['length']:.1f} tokens\nrecords: {path} (and a summary as JSON)"
    )


def _summary(
    config: Config, checkpoint: Path, name: str, records: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what was evaluated and the means; the standard error is over the questions."""
    import numpy as np

    from pods.analysis.numbers.statistics import t_test

    right = np.array([record["correct"] for record in records])
    share_right = right.reshape(config.evaluation.repeats, -1).mean(0)  # (Q,)
    accuracy = t_test(share_right)
    return {
        "checkpoint": str(checkpoint),
        "test_set": name or config.task.test_label(),
        "repeats": config.evaluation.repeats,
        "temperature": config.evaluation.temperature,
        "accuracy": accuracy.estimate,
        "stderr": accuracy.stderr,
        "questions": len(share_right),
        "format": fmean(record["format"] for record in records),
        "length": fmean(record["length"] for record in records),
        "command": command(),
    }


def _task(config: Config, on: str | None) -> tuple[str, "Task"]:
    """Return the name of the test set, "" for the run's own, and the task with its questions."""
    from pods.tasks.load import load, load_questions
    from pods.training.evaluate import evaluation_questions

    if on is None:
        task = load(config.task)
        return "", replace(task, test=evaluation_questions(config, task))

    file = Path(on)
    name = file.stem
    if not file.is_file() and on not in ON_THE_HUB:
        raise ConfigError("--on", on, f"must be a file, or one of {', '.join(ON_THE_HUB)}")
    if name in ON_THE_HUB and config.task.name in ("gsm8k", "math"):
        return name, load(_known_set(config, name, file))
    if not file.is_file():
        raise ConfigError("--on", on, f"must be a file: this run was trained on {config.task.name}")
    return name, load_questions(config.task, file)


def _known_set(config: Config, name: Any, file: Path) -> TaskConfig:
    """Return the run's task with a test set that has rules of its own, in a file or on the hub."""
    path = str(file) if file.is_file() else None
    task = replace(config.task, test_set=name, test_path=path, malformed="drop")
    missing = list(missing_packages(replace(config, task=task)))
    if missing:
        raise missing[0]
    return task


def _path(store: RunStore, checkpoint: Path, config: Config, on: str | None) -> Path:
    """Return where the records are written: named from the run, the set and the sampling."""
    file = Path(on or config.task.test_label())
    evaluation = config.evaluation
    sampling = f"t{evaluation.temperature:g}x{evaluation.repeats}"
    if evaluation.temperature == 0:
        sampling = "greedy"
    test_set = file.stem[:LONGEST_NAME]
    if on and file.is_file():
        test_set += f"-{files.sha256(file)[:6]}"  # two files may have one name

    arm, seed = store.folder.parts[-2:]
    folder = Path(FOLDER).absolute()
    if store.folder.parts[-3:-1] == run_folder(config, {}).parts[-3:-1]:  # it lies in a study
        folder = store.folder.parents[2] / FOLDER
    return folder / f"{arm}-{seed}-{checkpoint.name}-{test_set}-{sampling}.jsonl"


def _answer(config: Config, task: "Task", name: str, checkpoint: Path) -> Iterator[dict[str, Any]]:
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.policy import load_policy
    from pods.training.data import fitting
    from pods.training.evaluate import evaluate

    policy = load_policy(config, checkpoint)
    problems, prompts, _ = fitting("test", task.test, policy.tokenizer, config)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    by_id = {problem.id: problem for problem in problems}
    task = replace(task, test=problems)

    step = step_of(checkpoint)
    for answers in evaluate(config, task, prompts, engine, step, test_set=name):
        for answer in answers:
            problem = by_id[answer.record.question]
            record = structs.asdict(answer.record)
            record["asked"] = problem.question
            record["gold"] = problem.gold
            record["completion"] = answer.completion
            yield record
