"""The exact stage: everything that can be decided about an answer without computer algebra.

It accepts any text, and its time is bounded by the length that is allowed.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from mathgrade.latex.goals import proof_goal
from mathgrade.latex.parser import parse
from mathgrade.latex.tokens import Rejected, tokenize
from mathgrade.latex.tree import Tree
from mathgrade.latex.values import check_size, rational_value
from mathgrade.numbers import number

MAX_CHARACTERS = 1000
WORD = re.compile(r"[a-z]+|\d+|\S")
PUNCTUATION = frozenset(".,;'`")
AFTERTHOUGHT = re.compile(r"[0-9] \([A-Za-z]{3,}[A-Za-z. ]*\)|\\text\{[^{}]*, [^{}]*\}")
"""Words behind a number that are neither factors nor a unit: `18 (total)`, `9\\text{, in all}`."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer as far as it could be read."""

    tokens: tuple[str, ...]
    tree: Tree | None
    verdict: str
    """The verdict, refused or wrong, on an answer that has no tree; else empty."""

    @property
    def is_text(self) -> bool:
        """Whether the answer is words rather than mathematics."""
        return self.tree is not None and self.tree.kind == "text"

    def words(self) -> list[str]:
        """Return words, numbers and symbols in lower case, without full stops or outer brackets."""
        plain = " ".join(token.lstrip('"') for token in self.tokens)
        joined = re.sub(r"(?<=\b[a-zA-Z]) (?=[a-zA-Z]\b)", "", plain)  # a word read as a product
        words = [word for word in WORD.findall(joined.lower()) if word not in PUNCTUATION]
        return words[1:-1] if words[:1] == ["("] and words[-1:] == [")"] else words


@lru_cache(maxsize=4096)
def parse_answer(text: str) -> ParsedAnswer:
    """Read an answer as far as possible."""
    tokens: tuple[str, ...] = ()
    try:
        tokens = tokenize(text)
        return ParsedAnswer(tokens, parse(tokens), "")
    except Rejected as rejected:
        return ParsedAnswer(tokens, None, rejected.verdict)


def verdict_or_goal(answer: str, gold: str) -> str | list[object]:
    r"""Grade an answer, or return what is left to prove.

    >>> [verdict_or_goal(*pair) for pair in (("0.5", r"\frac12"), ("0.333", r"\frac13"))]
    ['right', 'wrong']
    >>> verdict_or_goal(r"\int_0^1 x", "18"), verdict_or_goal("x(x+1)", "x^2+x")
    ('refused', ['same', 'x\\cdot (x+1)', '(x)^{2}+x'])

    Returns:
        `right`, `wrong` or `refused`; or a goal for the worker (see `goals.py`).
    """
    if max(len(answer), len(gold)) > MAX_CHARACTERS:
        return "refused"
    parsed, parsed_gold = parse_answer(answer), parse_answer(gold)
    if parsed.tokens and parsed.tokens == parsed_gold.tokens:
        return "right"
    if parsed.is_text or parsed_gold.is_text:
        same = parsed.words() == parsed_gold.words() != []
        return "right" if same else parsed.verdict or "wrong"
    if parsed_gold.tree is None:
        return "refused"

    verdict: str | list[object] = parsed.verdict
    if parsed.tree is not None:
        verdict = _compare_trees(parsed.tree, parsed_gold.tree)
    if parsed.tree is None or (verdict == "wrong" and AFTERTHOUGHT.search(answer)):
        return _compare_numbers(answer, parsed_gold.tree) or verdict
    return verdict


def _compare_trees(answer: Tree, gold: Tree) -> str | list[object]:
    try:
        goal = proof_goal(answer, gold)
    except Rejected as rejected:
        return rejected.verdict
    return goal if isinstance(goal, list) else "right" if goal else "wrong"


def _compare_numbers(answer: str, gold: Tree) -> str:
    """Compare an answer of a number among words with a gold that is a number; empty: it is not."""
    try:
        check_size(gold)
        gold_value = rational_value(gold)
    except Rejected:
        return ""
    value = number(answer)
    if gold_value is None or value is None:
        return ""
    return "right" if value == gold_value else "wrong"
