"""`pods evaluate RUN --step N`: evaluate one checkpoint outside of its run, on any test set."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.cli.checkpoints import find_checkpoint, find_run, load_policy, usable_device
from pods.config.checks import ON_THE_HUB, missing_sets, set_checks
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.attempts import command
from pods.runs.files import replace as write
from pods.runs.store import RunStore
from pods.system.machine import set_threads

if TYPE_CHECKING:
    from pods.types import Problem, Task

FOLDER = "evaluated"
"""Folder in the study's, beside the runs: what is in it belongs to no run."""
ONLY_WITH_STEP = ("greedy", "repeats", "save_completions")


def add_options(parser: ArgumentParser) -> None:
    """Declare the options for one checkpoint."""
    of_one = parser.add_argument_group("one checkpoint of one run, named as for pods generate")
    of_one.add_argument("--step", metavar="N", help="its step, or last")
    of_one.add_argument("--greedy", action="store_true", help="decode at temperature 0, once")
    of_one.add_argument("--repeats", type=int, metavar="K", help="passes (default: as configured)")
    of_one.add_argument(
        "--save-completions", action="store_true", help="keep questions and completions, too"
    )


def is_asked_for(options: Namespace) -> bool:
    """Return whether an option for one checkpoint was given."""
    return options.step is not None or any(getattr(options, name) for name in ONLY_WITH_STEP)


def check_options(options: Namespace) -> None:
    """Check that options for one checkpoint come with its step.

    Raises:
        ConfigError: one does not.
    """
    for name in ONLY_WITH_STEP if options.step is None else ():
        if value := getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(option, value, "needs --step last or --step N, and a run")
    if options.repeats is not None and (options.repeats < 1 or options.greedy):
        allowed = "must be at least 1, and greedy decoding needs one pass only"
        raise ConfigError("--repeats", options.repeats, allowed)


def evaluate_checkpoint(options: Namespace) -> int:
    """Evaluate, print the accuracy, and write the records beside the runs of the study.

    Raises:
        ConfigError: an option is not allowed, or there is no such run, checkpoint or test set.
        ValueError: weights, data or a package are missing.
    """
    store = find_run(options.study, options.runs_dir)
    checkpoint = find_checkpoint(store, options.step)
    step = int(checkpoint.name.removeprefix("step-"))
    config = _config(store.config(), options)
    set_threads(config.hardware.threads)
    name, task = _task(config, options.on)
    records = list(_answer(config, task, name, checkpoint, step))
    path = _path(store, step, config, name)
    about = _summary(config, records, checkpoint, name or config.task.test_label())
    if not options.save_completions:
        for record in records:
            del record["asked"], record["gold"], record["completion"]
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, "".join(f"{line}\n" for line in lines))
    write(path.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False))
    print(
        f"accuracy {about['accuracy']:.3f} ± {about['stderr']:.3f} (standard error over "
        f"{about['questions']} questions), format {about['format']:.3f}, length "
        f"{about['length']:.1f} tokens\nrecords: {path} (a summary as JSON beside it)"
    )
    return 0


def _config(config: Config, options: Namespace) -> Config:
    """Return the config of the run with the evaluation that was asked for."""
    evaluation = replace(
        config.evaluation,
        temperature=0.0 if options.greedy else config.evaluation.temperature,
        repeats=1 if options.greedy else options.repeats or config.evaluation.repeats,
        sets=[options.on] if options.on in ON_THE_HUB else [],
        sets_path=options.sets_path or config.evaluation.sets_path,
    )
    return replace(config, evaluation=evaluation)


def _task(config: Config, on: str | None) -> "tuple[str, Task]":
    """Return the name of the test set, "" for the run's own, and the task with its questions.

    Raises:
        ConfigError: there is no such set or file.
    """
    from pods.tasks.load import load, load_further, load_questions
    from pods.training.evaluate import evaluation_questions

    if on is None:
        task = load(config.task)
        return "", replace(task, test=evaluation_questions(config, task))
    if on in ON_THE_HUB:
        for absent in missing_sets(config.evaluation, "--sets-path"):
            raise absent
        for key, holds, allowed in set_checks(config):
            if not holds:
                raise ConfigError(key, on, allowed)
        return on, load_further(config, load(config.task))[on]
    if not Path(on).is_file():
        raise ConfigError("--on", on, f"must be a file, or one of {', '.join(ON_THE_HUB)}")
    return Path(on).stem, load_questions(config.task, Path(on))


def _answer(
    config: Config, task: "Task", name: str, checkpoint: Path, step: int
) -> Iterator[dict[str, Any]]:
    """Yield a record per answer, with what was asked and answered."""
    from pods.engines.transformers_engine import TransformersEngine
    from pods.tasks.prompts import drop_long_prompts
    from pods.training.evaluate import evaluate

    policy = load_policy(config, checkpoint, usable_device(config))
    limit = config.sampling.max_prompt_tokens
    problems, prompts, too_long = drop_long_prompts(task.test, policy.tokenizer, limit)
    if too_long:
        print(f"left out, over {limit} tokens: {', '.join(too_long)}", file=sys.stderr)
    if not problems:
        raise ConfigError("sampling.max_prompt_tokens", limit, "no question fits")
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    by_id: dict[str, Problem] = {problem.id: problem for problem in problems}
    texts: list[str] = []
    task = replace(task, test=problems)
    for records in evaluate(config, task, prompts, engine, step, 0, name, keep=texts.append):
        for record, text in zip(records, texts, strict=True):
            problem = by_id[record.question]
            asked = {"asked": problem.question, "gold": problem.gold, "completion": text}
            yield {**asdict(record), **asked}
        texts.clear()


def _path(store: RunStore, step: int, config: Config, name: str) -> Path:
    """Return where the records are written: named from the run, the set and the sampling."""
    evaluation = config.evaluation
    sampled = f"t{evaluation.temperature:g}x{evaluation.repeats}"
    how = "greedy" if evaluation.temperature == 0 else sampled
    run = f"{store.folder.parent.name}-{store.folder.name}"
    folder = store.folder.parents[2] / FOLDER
    return folder / f"{run}-step-{step:06d}-{name or config.task.label()}-{how}.jsonl"


def _summary(
    config: Config, records: list[dict[str, Any]], checkpoint: Path, test_set: str
) -> dict[str, Any]:
    """Average the records; the standard error is over questions, of each question's mean."""
    import numpy as np

    by_question: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        by_question[record["question"]].append(record["correct"])
    means = np.array([np.mean(answers) for answers in by_question.values()])
    stderr = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else float("nan")
    return {
        "checkpoint": str(checkpoint),
        "test_set": test_set,
        "accuracy": float(means.mean()),
        "stderr": float(stderr),
        "questions": len(means),
        "repeats": config.evaluation.repeats,
        "temperature": config.evaluation.temperature,
        "format": float(np.mean([record["format"] for record in records])),
        "length": float(np.mean([record["length"] for record in records])),
        "command": command(),
    }
