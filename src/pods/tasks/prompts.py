"""What the policy is told, shown and asked, and the token ids of it that it continues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pods.config import TaskConfig
from pods.records import Message, Problem
from pods.tasks.rows import Row, Split

TASK = """You are given a math question. Reason step by step and check your reasoning; then give \
the answer {how}. Your reply is limited in length. """
FORMS = {
    "tag": TASK + """Reply in this form:
<think>
your reasoning
</think>
<answer>
{what}
</answer>""",
    "hash": TASK + """End your reply with a line of this form:
#### {what}""",
    # Qwen's own instruction for its models: https://github.com/QwenLM/Qwen2.5-Math, README
    "boxed": "Please reason step by step, and put your final answer within \\boxed{{}}.",
}  # fmt: skip
REPLIES = {
    "tag": "<think>\n{reasoning}\n</think>\n<answer>\n{answer}\n</answer>",
    "hash": "{reasoning}\n#### {answer}",
    "boxed": "{reasoning}\n\\boxed{{{answer}}}",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """How a task is put, in training and in evaluation alike: one policy has one prompt."""

    how: str
    """The answer is to be given, such as "as a single number"."""
    what: str
    """Stands in the answer's place in the form, such as "the number"."""
    reasoning: Callable[[str], str]
    """Of a worked solution, for the examples: without the answer's mark."""


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that prompts need."""

    unk_token_id: int | None

    def apply_chat_template(self, conversation: Sequence[Message], **settings: bool) -> str:
        """Render messages as text."""
        ...

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Text to token ids."""
        ...


def system(answer_format: str, how: str, what: str) -> str:
    r"""What the policy is told before any question: the form of a reply.

    Args:
        answer_format: tag, hash or boxed.
        how: the answer is to be given, such as "as a single number".
        what: stands in its place in the form, such as "the number".

    >>> print(system("hash", "as a single number", "the number").splitlines()[-1])
    #### the number
    """
    return FORMS[answer_format].format(how=how, what=what)


def reply(answer_format: str, reasoning: str, answer: str) -> str:
    r"""A solved example in the form that the prompt asks for.

    >>> reply("boxed", "6 * 3 = 18", "18")
    '6 * 3 = 18\n\\boxed{18}'
    """
    return REPLIES[answer_format].format(reasoning=reasoning, answer=answer)


def ask(config: TaskConfig, wording: Wording, splits: Sequence[Split]) -> list[tuple[Problem, ...]]:
    """Make problems of rows; the first `few_shot` train rows become examples and are not asked.

    Args:
        config: of the task.
        wording: of what is trained on.
        splits: train and test.

    Raises:
        ValueError: no train row is left beside the examples.
    """
    train, test = (split.rows for split in splits)
    shown, train = train[: config.few_shot], train[config.few_shot :]
    if not train:
        raise ValueError(f"task.few_shot={config.few_shot}: all {len(shown)} train rows are "
                         "examples; none is left to train on")  # fmt: skip
    told = system(config.answer_format, wording.how, wording.what)
    head: list[Message] = [{"role": "system", "content": told}]
    for row in shown:
        solved = reply(config.answer_format, wording.reasoning(row.solution), row.answer)
        head.append({"role": "user", "content": row.question})
        head.append({"role": "assistant", "content": solved})

    def problem(split: str, row: Row) -> Problem:
        messages = (*head, {"role": "user", "content": row.question})
        return Problem(f"{split}-{row.index:05d}", messages, row.gold)

    return [
        tuple(problem("train", row) for row in train[: config.train_size]),
        tuple(problem("test", row) for row in test[: config.test_size]),
    ]


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


def fitting(
    problems: Sequence[Problem], tokenizer: ChatTokenizer, limit: int
) -> tuple[tuple[Problem, ...], tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Leave out problems whose prompt is longer than `limit` tokens.

    Returns:
        The problems that fit, the token ids of each, and the ids of the problems left out.
    """
    encoded = [(problem, prompt_ids(problem, tokenizer)) for problem in problems]
    fit = [(problem, ids) for problem, ids in encoded if len(ids) <= limit]
    too_long = tuple(problem.id for problem, ids in encoded if len(ids) > limit)
    return tuple(problem for problem, _ in fit), tuple(ids for _, ids in fit), too_long
