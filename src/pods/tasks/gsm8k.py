"""GSM8K: 7,473 train and 1,319 test word problems, from the hub or from a folder of JSON lines."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from datasets import disable_progress_bars, load_dataset
from datasets.exceptions import DatasetGenerationError

from pods.config import TaskConfig
from pods.records import Message, Problem, Task
from pods.tasks.grading import grade, number

HUB = "openai/gsm8k"
CALCULATOR = re.compile(r"<<[^<>]*>>")
SYSTEM = """You are given a math question. Reason step by step and check your reasoning; then give \
the answer as a single number. Your reply is limited in length. Reply in this form:
<think>
your reasoning
</think>
<answer>
the number
</answer>"""


def load(config: TaskConfig) -> Task:
    """Load GSM8K; the first `few_shot` train rows become examples and leave the train pool.

    Raises:
        ValueError: no data, or a row without question, answer or `####` number, by its number.
    """
    disable_progress_bars()
    train, test = (_rows(config.path, split) for split in ("train", "test"))
    examples = [message for row in train[: config.few_shot] for message in _example(*row)]
    head: tuple[Message, ...] = ({"role": "system", "content": SYSTEM}, *examples)

    def problems(split: str, first: int, size: int | None) -> tuple[Problem, ...]:
        rows = (train if split == "train" else test)[first:][:size]
        return tuple(
            Problem(
                f"{split}-{index:05d}",
                (*head, {"role": "user", "content": question}),
                solution.rpartition("####")[2].strip().replace(",", ""),
            )
            for index, (question, solution) in enumerate(rows, start=first)
        )

    return Task(
        "gsm8k",
        problems("train", config.few_shot, config.train_size),
        problems("test", 0, config.test_size),
        partial(grade, format_reward=config.format_reward),
    )


def _rows(path: str | None, split: str) -> list[tuple[str, str]]:
    """Questions and worked answers of one split, checked row by row."""
    try:
        if path is None:
            rows: Sequence[Mapping[str, Any]] = load_dataset(HUB, "main", split=split)
        else:
            rows = load_dataset("json", data_files={split: f"{path}/{split}.jsonl"}, split=split)
    except (OSError, ValueError, DatasetGenerationError) as error:
        where = path or f"{HUB} on the hub"
        raise ValueError(f"task.path={path or 'null'}: cannot read {split} of {where}: "
                         f"give a folder with {split}.jsonl ({error})") from error  # fmt: skip
    return [_checked(split, i, row) for i, row in enumerate(rows)]


def _checked(split: str, index: int, row: Mapping[str, Any]) -> tuple[str, str]:
    question, solution = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(solution, str):
        raise ValueError(f"gsm8k {split} row {index + 1}: needs texts `question` and `answer`")
    if "####" not in solution or number(solution.rpartition("####")[2]) is None:
        raise ValueError(f"gsm8k {split} row {index + 1}: the answer lacks `#### number`")
    return question, solution


def _example(question: str, solution: str) -> tuple[Message, Message]:
    """A solved example in the form that the prompt asks for, without calculator marks."""
    reasoning, _, gold = CALCULATOR.sub("", solution).rpartition("####")
    reply = f"<think>\n{reasoning.strip()}\n</think>\n<answer>\n{gold.strip()}\n</answer>"
    return {"role": "user", "content": question}, {"role": "assistant", "content": reply}
