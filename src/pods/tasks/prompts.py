"""Prompts: the system message, few-shot examples and question of a problem, and their token ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pods.config.schema import TaskConfig
from pods.tasks.datasets.splits import Row, Split
from pods.types import Message, Problem

INTRODUCTION = """You are given a {subject}. Reason step by step and check your reasoning; \
then give the answer {how}. Your reply is limited in length. """
SYSTEM_PROMPTS = {
    "tag": INTRODUCTION
    + """Reply in this form:
<think>
your reasoning
</think>
<answer>
{what}
</answer>""",
    "hash": INTRODUCTION
    + """End your reply with a line of this form:
#### {what}""",
    # Qwen's own instruction for its models: https://github.com/QwenLM/Qwen2.5-Math, README
    "boxed": "Please reason step by step, and put your final answer within \\boxed{{}}.",
}
REPLIES = {
    "tag": "<think>\n{reasoning}\n</think>\n<answer>\n{answer}\n</answer>",
    "hash": "{reasoning}\n#### {answer}",
    "boxed": "{reasoning}\n\\boxed{{{answer}}}",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """The wording of a task, the same in training and in evaluation."""

    how: str
    """The requested form of the answer, such as "as a single number"."""
    what: str
    """Placeholder for the answer in the form of the reply, such as "the number"."""
    reasoning: Callable[[str], str]
    """Removes the mark of the answer from a worked solution, for few-shot examples."""
    subject: str = "math question"
    """What the model is given."""


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that prompts need."""

    unk_token_id: int | None

    def apply_chat_template(self, conversation: Sequence[Message], **settings: bool) -> str:
        """Render messages as text."""
        ...

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Convert text to token ids."""
        ...


def make_problems(
    config: TaskConfig, wording: Wording, train: Split, test: Split
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Make problems of rows; the first `few_shot` train rows become examples instead.

    The wording is that of the training task, also for another test set.

    Raises:
        ValueError: no train row is left besides the examples.
    """
    if len(train.rows) <= config.few_shot:
        raise ValueError(
            f"task.few_shot={config.few_shot}: must be less than {len(train.rows)}, "
            f"the number of usable rows in {train.location}"
        )
    head = opening(config, wording, train.rows[: config.few_shot])

    def problem(split: str, row: Row) -> Problem:
        messages = (*head, {"role": "user", "content": row.question})
        return Problem(f"{split}-{row.index:05d}", messages, row.gold)

    pool = train.rows[config.few_shot :]
    return (
        tuple(problem("train", row) for row in pool[: config.train_size]),
        tuple(problem("test", row) for row in test.rows[: config.test_size]),
    )


def opening(config: TaskConfig, wording: Wording, examples: Sequence[Row]) -> tuple[Message, ...]:
    """Return the messages before each question: the system message and solved examples."""
    head: list[Message] = [{"role": "system", "content": system_message(config, wording)}]
    for row in examples:
        reply = REPLIES[config.answer_format].format(
            reasoning=wording.reasoning(row.solution), answer=row.answer
        )
        head.append({"role": "user", "content": row.question})
        head.append({"role": "assistant", "content": reply})
    return tuple(head)


def system_message(config: TaskConfig, wording: Wording) -> str:
    """Return the text of `task.system`, to the last line break, or our own words."""
    if config.system is not None:
        return Path(config.system).read_bytes().decode()
    return SYSTEM_PROMPTS[config.answer_format].format(
        how=wording.how, what=wording.what, subject=wording.subject
    )


def prompt_ids(problem: Problem, tokenizer: ChatTokenizer) -> tuple[int, ...]:
    """Render a problem with the model's chat template and encode it.

    Raises:
        ValueError: the tokenizer has no ids for some of the text.
    """
    text = tokenizer.apply_chat_template(
        [dict(message) for message in problem.messages], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ValueError(
            f"the model's tokenizer lacks characters of problem {problem.id}: {text!r}"
        )
    return tuple(ids)


def drop_long_prompts(
    problems: Sequence[Problem], tokenizer: ChatTokenizer, limit: int
) -> tuple[tuple[Problem, ...], tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Drop problems whose prompt is longer than `limit` tokens.

    Returns:
        The problems that fit, the token ids of each, and the ids of the problems that were dropped.
    """
    encoded = [(problem, prompt_ids(problem, tokenizer)) for problem in problems]
    fit = [(problem, ids) for problem, ids in encoded if len(ids) <= limit]
    too_long = tuple(problem.id for problem, ids in encoded if len(ids) > limit)
    return tuple(problem for problem, _ in fit), tuple(ids for _, ids in fit), too_long
