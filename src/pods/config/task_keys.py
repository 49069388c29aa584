"""The config keys of the task: problems, answer format, graders and reward."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from pods.config.key import Count, FileName, Flag, OwnFunction, Text, Whole, key

REWARD_TERM = r"(correct|format|graded|(?:trl:)?[\w.]+:\w+)(?: *\* *(-?\d+(?:\.\d*)?(?:e-?\d+)?))?"
RewardTerm = Annotated[
    str,
    Meta(
        pattern=rf"\A{REWARD_TERM}\Z",
        title="terms: correct, format, graded, module:function or trl:module:function, each "
        "*WEIGHT or not",
    ),
]
Parameters = Annotated[dict[str, Any], Meta(title="a mapping, such as {max_terms: 3}")]


@dataclass
class TaskConfig:
    """The problems to learn, and how answers are graded."""

    name: Annotated[
        Literal["chainsum", "gsm8k", "math", "jsonl", "own", "gym"],
        key(
            "task: chainsum (generated), GSM8K, MATH, your own file (jsonl) or function (own), or "
            "one of reasoning-gym (gym)"
        ),
    ]
    path: Annotated[
        Text | None,
        key(
            "folder with train.jsonl and test.jsonl, or for task=jsonl one file (also *.parquet), "
            "of which a fifth is the test set if task.test_path is null; null uses the hub"
        ),
    ]
    hub: Annotated[
        Text | None,
        key("data set on the Hugging Face hub, OWNER/NAME, in place of task.path for task=jsonl"),
    ]
    hub_config: Annotated[Text | None, key("configuration of that data set; null: its only one")]
    hub_test_split: Annotated[
        Text | None, key("split of it that is the test set; null: a fifth of its split train")
    ]
    question_key: Annotated[
        Text | None, key("field with the question, for task=jsonl; null: question or problem")
    ]
    answer_key: Annotated[
        Text | None, key("field with the answer, for task=jsonl; null: answer or solution")
    ]
    test_set: Annotated[
        Literal["own", "gsm8k", "math500", "amc23", "aime24", "minerva", "olympiad"],
        key("test set to evaluate on, graded by its own rules; own: the task's"),
    ]
    test_path: Annotated[
        Text | None, key("JSON lines file with the test set; null: task.path, or the hub")
    ]
    train_size: Annotated[Count | None, key("number of training problems; null uses all")]
    few_shot: Annotated[
        Whole, key("solved examples in the prompt, removed from the training problems")
    ]
    malformed: Annotated[
        Literal["fail", "drop"],
        key(
            "fail at duplicate rows and rows without a question or a readable answer, or drop them"
        ),
    ]
    answer_format: Annotated[
        Literal["tag", "hash", "boxed", "chain", "whole"],
        key("format of answers, set by model=; src/pods/tasks/README.md shows each"),
    ]
    format_reward: Annotated[
        Literal["additive", "when_wrong", "open_r1", "none"],
        key(
            "reward for the format, beside 1 for a right answer; src/pods/tasks/README.md has each"
        ),
    ]
    grader: Annotated[
        Literal["exact", "lenient", "latex"],
        key(
            "grader of the reward: ours (exact), or the PODS authors' of one GPU (lenient) or of 8 "
            "(latex)"
        ),
    ]
    lenient: Annotated[
        Literal["release", "later"],
        key("the authors' lenient grader of their GSM8K results, or the later one of Llama's"),
    ]
    system: Annotated[
        Text | None, key("text file with the system message; null: ours, by the answer format")
    ]
    overlong_tokens: Annotated[
        Count | None,
        key("last tokens of a completion that cost reward, together 0.5 (DAPO); null: none"),
    ]
    make: Annotated[
        OwnFunction | None, key("module:function that returns the problems of task=own")
    ]
    gym: Annotated[FileName | None, key("name of the task of reasoning-gym, for task=gym")]
    gym_parameters: Annotated[
        Parameters | None, key("parameters of that task; null: the library's defaults")
    ]
    reward: Annotated[
        list[RewardTerm] | None,
        key(
            "weighted sum; graded: the right share of a chain, or reasoning-gym's score; null: "
            "correct and task.format_reward"
        ),
    ]
    reward_errors: Annotated[
        Literal["fail", "exclude"],
        key(
            "if a function of task.reward fails: end the run, or leave the rollout out of "
            "selection and update"
        ),
    ]
    trl_messages: Annotated[
        Flag,
        key("give functions of TRL's form chat messages, as TRL does of such data, not texts"),
    ]

    def label(self) -> str:
        """Return the name of the problems in folders and titles, also of the user's data.

        data/my sums.jsonl is my-sums, and my_tasks:riddles is riddles. A task of reasoning-gym has
        its name there.
        """
        if self.name == "jsonl":
            stem = Path(self.path).stem if self.path else (self.hub or "").rpartition("/")[2]
            return re.sub(r"[^A-Za-z0-9._-]", "-", stem)[:60] or self.name
        if self.name == "own" and self.make is not None:
            return self.make.rpartition(":")[2]
        if self.name == "gym" and self.gym is not None:
            return self.gym
        return self.name

    def test_label(self) -> str:
        """Return the name of the test set for a reader, also of the user's data."""
        return self.label() if self.name in ("jsonl", "own", "gym") else self.evaluated_on()

    def evaluated_on(self) -> str:
        """Return the name of the test set: chainsum, gsm8k, math500, amc23, ..."""
        if self.test_set != "own":
            return self.test_set
        return "math500" if self.name == "math" else self.name

    def files(self) -> dict[str, Path | None]:
        """Return the file of each split, the same one if it is divided.

        None: the split is on the hub, or generated (chainsum, own, gym).
        """
        folder = None if self.path is None else Path(self.path)
        if self.name == "jsonl" and folder is not None and not folder.is_dir():
            return {"train": folder, "test": Path(self.test_path or folder)}

        train = None if folder is None else folder / "train.jsonl"
        test = None
        if self.test_path is not None:
            test = Path(self.test_path)
        elif folder is not None and self.test_set == "own":
            test = folder / "test.jsonl"
        return {"train": train, "test": test}
