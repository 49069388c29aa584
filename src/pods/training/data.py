"""The problems of a run as its model reads them, and whether they are those it began with."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from pods.config.schema import Config
from pods.policy.policy import load_tokenizer
from pods.runs.attempts import record_changes
from pods.runs.files import write_json
from pods.runs.freeze import Changed
from pods.runs.identity import difference
from pods.runs.store import RunStore
from pods.tasks.load import data_record
from pods.tasks.load import load as load_task
from pods.tasks.prompts import encode, opened_thought, render
from pods.training.evaluate import evaluation_questions
from pods.types import Problem, Prompt, Task

LONGEST_TOKEN = 256  # characters, twice what any vocabulary that we know has: 128 spaces
NAMED = 5  # problems with too long prompts that are printed; data.json lists all


@dataclass(frozen=True)
class Data:
    """The problems that a run can use, and their prompts as token ids."""

    task: Task  # the task with only the problems whose prompts fit
    tokenizer: PreTrainedTokenizerBase
    prompts: Sequence[Prompt]  # token ids of each problem of the train pool
    questions: Sequence[Prompt]  # token ids of each question of the evaluation
    facts: Mapping[str, Any]  # contents of data.json


def load_data(config: Config, check: Callable[[], None]) -> Data:
    """Read the problems, and drop those with too long prompts.

    A `ValueError` says that data are missing or malformed.
    """
    transformers_logging.disable_progress_bar()
    task = load_task(config.task, check)
    check()
    tokenizer = load_tokenizer(config)
    train, prompts, long_train = fitting("train", task.train, tokenizer, config)
    asked = evaluation_questions(config, task)
    test, questions, long_test = fitting("test", asked, tokenizer, config)
    facts = {
        "train": data_record(train, long_train),
        "test": data_record(test, long_test),
        "left_out": list(task.dropped),
    }
    return Data(replace(task, train=train, test=test), tokenizer, prompts, questions, facts)


def check_data(store: RunStore, facts: Mapping[str, Any], allow_changed: bool) -> None:
    """Record the data of a new run; other data in a resumed one are `Changed`, or `allow_changed`.

    Data from a hub count by name in the run's identity, so only this check notices a change there.
    """
    begun = store.data()
    changes = []
    if begun is not None:
        changes = difference(_summary(begun), _summary(facts))
    if changes and not allow_changed:
        raise Changed(store.folder, changes)
    record_changes(store, changes)
    if not changes and begun != json.loads(json.dumps(facts)):
        if begun is not None:
            print("data.json was not what the run had written: it is written again", flush=True)
        write_json(store.data_path, facts)


def _summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    summary = {}
    for split in ("train", "test"):
        summary[f"data: {split} problems"] = facts[split].get("problems", "nothing")
        summary[f"data: {split} SHA-256"] = facts[split].get("sha256", "nothing")
    return summary


def fitting(
    split: str, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, config: Config
) -> tuple[tuple[Problem, ...], tuple[Prompt, ...], tuple[str, ...]]:
    """Return the problems whose prompts fit, their token ids, and the ids of the others, if any.

    Each problem knows the thought that its prompt opens. The others are printed.

    Raises:
        ValueError: no prompt fits.
    """
    limit = config.sampling.max_prompt_tokens
    has_thoughts = config.task.answer_format not in ("whole", "chain")
    fit: list[Problem] = []
    prompts: list[Prompt] = []
    too_long: list[str] = []
    for problem in problems:
        text = render(problem, tokenizer)
        ids: Prompt | None = None
        if len(text) <= limit * LONGEST_TOKEN:  # else encoding could take minutes and gigabytes
            ids = encode(text, problem, tokenizer)

        if ids is not None and len(ids) <= limit:
            opened = opened_thought(text, problem, tokenizer) if has_thoughts else ""
            fit.append(replace(problem, opened=opened))
            prompts.append(ids)
        else:
            too_long.append(problem.id)

    if not fit:
        raise ValueError(
            f"sampling.max_prompt_tokens={limit}: none of the {len(problems)} {split} prompts fits"
        )
    if too_long:
        more = f", and {len(too_long) - NAMED} more" if len(too_long) > NAMED else ""
        print(
            f"dropped {len(too_long)} of {len(problems)} {split} problems: prompts over "
            f"{limit} tokens: {', '.join(too_long[:NAMED])}{more}"
        )

    return tuple(fit), tuple(prompts), tuple(too_long)
