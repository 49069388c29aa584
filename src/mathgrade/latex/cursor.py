"""A cursor over the tokens of an answer, which limits how deeply they are nested."""

from collections.abc import Iterator
from contextlib import contextmanager

from mathgrade.latex.symbols import AND, OR
from mathgrade.latex.tokens import Rejected

MAX_DEPTH = 20


class Cursor:
    """A position in a list of tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bar_closes = False

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    @property
    def next_is_number(self) -> bool:
        """Whether the next token is digits."""
        return self.next[-1:].isdigit() and (self.next[0].isdigit() or self.next[0] == ".")

    def take(self, *allowed: str) -> str | None:
        """Consume the next token if it is one of these, and return it."""
        token = self.next
        if token not in allowed:
            return None
        self.position += 1
        return token

    def pop(self) -> str:
        """Consume the next token, whatever it is."""
        token = self.next
        self.position += 1
        return token

    def next_are(self, *tokens: str) -> bool:
        """Return whether these tokens come next."""
        return tuple(self.tokens[self.position : self.position + len(tokens)]) == tokens

    def next_is_digit_group(self) -> bool:
        """Return whether a brace comes next, and digits in it."""
        return self.next == "{" and any(
            token[0].isdigit() for token in self.tokens[self.position + 1 : self.position + 2]
        )

    def digit(self) -> str:
        r"""Consume the first digit of a number, as LaTeX reads `\frac12`."""
        token = self.next
        if not token.isdigit():
            raise Rejected("wrong")
        if len(token) == 1:
            self.position += 1
        else:
            self.tokens[self.position] = token[1:]
        return token[0]

    def separator(self) -> str | None:
        """Consume a comma, `and` or `or`, or a comma before one of these."""
        comma = self.take(",")
        return self.take(AND, OR) or comma

    def expect(self, token: str) -> None:
        """Consume this token; reject the answer if another one comes."""
        if self.take(token) is None:
            raise self.unexpected()

    def unexpected(self) -> Rejected:
        """Return the error for the next token: words and commands are refused, others are wrong."""
        token = self.next
        unknown = token.startswith('"') or (token.startswith("\\") and token[1:].isalpha())
        return Rejected("refused" if unknown else "wrong")

    @contextmanager
    def nested(self, bar_closes: bool | None = None) -> Iterator[None]:
        """Read one level deeper, within limits; `bar_closes` sets whether `|` ends that level."""
        before = self.bar_closes
        self.bar_closes = before if bar_closes is None else bar_closes
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Rejected("refused")
        yield
        self.depth -= 1
        self.bar_closes = before
