"""From a problem to the token ids that the policy continues."""

from collections.abc import Sequence
from typing import Protocol

from pods.records import Message, Problem


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer that prompts need."""

    unk_token_id: int | None

    def apply_chat_template(self, conversation: Sequence[Message], **settings: bool) -> str:
        """Render messages as text."""
        ...

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Text to token ids."""
        ...


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
) -> tuple[tuple[Problem, ...], tuple[tuple[int, ...], ...]]:
    """Leave out problems whose prompt is longer than `limit` tokens.

    Returns:
        The problems that fit, and the token ids of each.
    """
    encoded = [(problem, prompt_ids(problem, tokenizer)) for problem in problems]
    fit = [(problem, ids) for problem, ids in encoded if len(ids) <= limit]
    return tuple(problem for problem, _ in fit), tuple(ids for _, ids in fit)
