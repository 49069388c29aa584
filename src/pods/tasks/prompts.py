"""Prompts: the system message, few-shot examples and question of a problem, and their token ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config.task_keys import TaskConfig
from pods.system.signals import limit_of_work
from pods.tasks.datasets.splits import Row, Split, Wording
from pods.types import Message, Problem, Prompt

if TYPE_CHECKING:  # it takes a second to import
    from transformers import PreTrainedTokenizerBase

THINK = "<think>"
TEMPLATE_SECONDS = 10.0  # that a chat template may compute; it takes milliseconds
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
        problems.append(Problem(id=problem_id(name, row), messages=messages, gold=row.gold))
    return tuple(problems)


def problem_id(name: str, row: Row) -> str:
    """Return the id of the problem that a row of a set becomes."""
    return f"{name}-{row.index:05d}"


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


def prompt_ids(problem: Problem, tokenizer: "PreTrainedTokenizerBase") -> Prompt:
    """Render a problem with the model's chat template and encode it; no id may be unknown."""
    return encode(render(problem, tokenizer), problem, tokenizer)


def encode(text: str, problem: Problem, tokenizer: "PreTrainedTokenizerBase") -> Prompt:
    """Return the token ids of a rendered problem; a `ValueError` if an id is unknown."""
    ids = tokenizer.encode(text, add_special_tokens=False)

    unknown = ids.count(tokenizer.unk_token_id)
    written = 0  # a template may write that token itself: in some models it is also the end
    if unknown > 0:
        written = text.count(str(tokenizer.unk_token))
    if unknown > written:
        why = f"the model's tokenizer lacks characters of problem {problem.id}"
        raise ValueError(f"{why}: {text!r}")
    return tuple(ids)


def render(
    problem: Problem, tokenizer: "PreTrainedTokenizerBase", with_reply_head: bool = True
) -> str:
    """Return a problem in the model's chat template, up to the head of the model's reply.

    Raises:
        ValueError: the template cannot be rendered, or takes too long.
    """
    messages = [dict(message) for message in problem.messages]
    try:
        with limit_of_work(TEMPLATE_SECONDS):
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=with_reply_head
            )
    except Exception as error:  # it is a program, which may raise anything
        why = f"{type(error).__name__} {error}".strip()
        raise ValueError(f"{tokenizer.name_or_path}: chat template fails: {why}") from error
    return str(text)


def opened_thought(text: str, problem: Problem, tokenizer: "PreTrainedTokenizerBase") -> str:
    r"""Return the thought that a rendered problem opens for the model, such as "<think>\n"; or "".

    The completion then has no `<think>`. Templates of DeepSeek-R1's distills and of QwQ do so.
    """
    start = text.rfind(THINK)
    if start < 0 or "</think>" in text[start:]:
        return ""

    messages = render(problem, tokenizer, with_reply_head=False)
    is_in_message = text.startswith(messages) and start < len(messages)
    if is_in_message and text[start:].strip() != THINK:
        return ""  # a message speaks of the mark
    return text[start:]
