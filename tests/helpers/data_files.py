"""Data files of one's own, and what is read from them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from compose import composed

from pods.config.task_keys import TaskConfig


@cache
def gsm8k() -> TaskConfig:
    """Return the configuration of GSM8K without examples, and without a reward of the form."""
    keys = ("few_shot=0", "answer_format=tag", "format_reward=none")
    return composed("task=gsm8k", "model=qwen2_5_0_5b", *(f"task.{key}" for key in keys)).task


def config(folder: Path | None, **changes) -> TaskConfig:
    """Return the configuration of GSM8K in a folder, with changes."""
    return replace(gsm8k(), **({"path": folder and str(folder)} | changes))


def row(number: int, split: str = "train") -> bytes:
    """Return a valid row of GSM8K whose answer is `number` thousand."""
    question = f"What is {number} thousand, {split}?"
    answer = f"It is <<{number}*1000=0>>so.\n#### {number},000"
    return json.dumps({"question": question, "answer": answer}).encode()


def problem(number: int, solution: str | None = None) -> bytes:
    """Return a valid row of MATH."""
    solution = f"It is $\\boxed{{\\frac{{{number}}}{{7}}}}$." if solution is None else solution
    return json.dumps({"problem": f"What is {number} / 7?", "solution": solution}).encode()


def write_rows(path: Path, rows: Iterable[dict]) -> Path:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write(folder: Path, train: list[bytes], test: list[bytes]) -> Path:
    for split, lines in (("train", train), ("test", test)):
        (folder / f"{split}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder
