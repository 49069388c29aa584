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
    pool = train.rows[config.few_shot :][: config.train_size]
    return ask("train", head, pool), ask("test", head, test.rows)


def ask(name: str, head: Sequence[Message], rows: Sequence[Row]) -> tuple[Problem, ...]:
    """Ask the questions of a set's rows, each after the messages `head`."""
    asked = [(row, {"role": "user", "content": row.question}) for row in rows]
    return tuple(Problem(f"{name}-{row.index:05d}", (*head, turn), row.gold) for row, turn in asked)


def opening(config: TaskConfig, wording: Wording, examples: Sequence[Row]) -> tuple[Message, ...]:
    """Return the messages before each question: the system message and solved examples.

    Where the whole completion is the answer, or a chain, the system message is the user's or none.
    """
    turns = list[tuple[str, str]]()
    if config.system is not None:
        turns.append(("system", Path(config.system).read_bytes().decode()))
    elif text := SYSTEM_PROMPTS.get(config.answer_format):
        words = {"how": wording.how, "what": wording.what, "subject": wording.subject}
        turns.append(("system", text.format(**words)))
    for row in examples:
        words = {"reasoning": wording.reasoning(row.solution), "answer": row.answer}
        reply = REPLIES[config.answer_format].format(**words)
        turns += [("user", row.question), ("assistant", reply)]
    return tuple({"role": role, "content": content} for role, content in turns)


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
