"""Prompts: the system message, few-shot examples and question of a problem, and their token ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config.task_keys import TaskConfig
from pods.tasks.datasets.splits import Row, Split, Wording
from pods.types import Message, Problem

if TYPE_CHECKING:  # it takes a second to import
    from transformers import PreTrainedTokenizerBase

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
    "whole": "{answer}",
    "chain": "#{answer}",
}


def make_problems(
    config: TaskConfig, train: Split, test: Split
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Make problems of rows; the first `few_shot` train rows become examples instead."""
    head = opening(config, train.wording, train.rows[: config.few_shot])
    pool = train.rows[config.few_shot :]
    if config.train_size is not None:
        pool = pool[: config.train_size]
    return ask("train", head, pool), ask("test", head, test.rows)


def ask(name: str, head: Sequence[Message], rows: Sequence[Row]) -> tuple[Problem, ...]:
    """Ask the questions of a set's rows, each after the messages `head`."""
    problems = []
    for row in rows:
        messages = (*head, {"role": "user", "content": row.question})
        problems.append(Problem(id=f"{name}-{row.index:05d}", messages=messages, gold=row.gold))
    return tuple(problems)


def opening(config: TaskConfig, wording: Wording, examples: Sequence[Row]) -> tuple[Message, ...]:
    """Return the messages before each question: the system message and solved examples.

    If the whole completion is the answer, or a chain, the system message is the user's or none.
    """
    messages = []
    if config.system is not None:
        text = Path(config.system).read_bytes().decode()
        messages.append({"role": "system", "content": text})
    elif config.answer_format in SYSTEM_PROMPTS:
        text = SYSTEM_PROMPTS[config.answer_format].format(
            how=wording.how, what=wording.what, subject=wording.subject
        )
        messages.append({"role": "system", "content": text})

    for row in examples:
        reply = REPLIES[config.answer_format].format(
            reasoning=wording.reasoning(row.solution), answer=row.answer
        )
        messages.append({"role": "user", "content": row.question})
        messages.append({"role": "assistant", "content": reply})
    return tuple(messages)


def prompt_ids(problem: Problem, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Render a problem with the model's chat template and encode it; no id may be unknown."""
    messages = [dict(message) for message in problem.messages]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # it is a program, which may raise anything
        why = f"{type(error).__name__} {error}".strip()
        raise ValueError(f"{tokenizer.name_or_path}: chat template fails: {why}") from error

    ids = tokenizer.encode(text, add_special_tokens=False)
    if tokenizer.unk_token_id in ids:
        why = f"the model's tokenizer lacks characters of problem {problem.id}"
        raise ValueError(f"{why}: {text!r}")
    return tuple(ids)
