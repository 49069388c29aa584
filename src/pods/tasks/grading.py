"""Grading answers in the papers' form, `<think> ... </think> <answer> ... </answer>`.

No function here raises on any text, evaluates anything, or takes more than linear time.
"""

import re
import unicodedata
from fractions import Fraction

from pods.records import Grade

MAX_ANSWER = 128  # characters; a longer answer block is not one number
JUNCTION = re.compile(r"</think>[ \n]?<answer>")
EDGES = ("", " ", "\n")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s?[$€£]?\s?(?P<sign2>[+-]?)"
    r"(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,64})?(?:\.(?P<decimals>\d{1,64})?)?\s?%?\.?",
    re.ASCII,
)


def number(text: str) -> Fraction | None:
    """Read text that is one number and nothing else; exact.

    Signs, thousands separators, decimals, a currency sign or a percent sign may be there.

    >>> number(" $1,234.50 "), number("-18."), number("12 or 18")
    (Fraction(2469, 2), Fraction(-18, 1), None)
    """
    if len(text) > MAX_ANSWER:
        return None
    plain = unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()
    match = NUMBER.fullmatch(plain)
    if match is None or (match["sign"] and match["sign2"]):
        return None
    whole, decimals = (match["whole"] or "").replace(",", ""), match["decimals"] or ""
    if not whole and not decimals:
        return None
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    return -value if "-" in (match["sign"], match["sign2"]) else value


def answer(completion: str) -> str | None:
    """The text of the only answer block; None where there is none, or more than one.

    >>> answer("<think>x</think><answer> 18 </answer>"), answer("18")
    (' 18 ', None)
    """
    if completion.count("<answer>") != 1 or completion.count("</answer>") != 1:
        return None
    start, end = completion.find("<answer>") + len("<answer>"), completion.find("</answer>")
    return completion[start:end] if start <= end else None


def well_formed(completion: str) -> bool:
    """Think block, answer block, and nothing around them but a space or line break.

    The authors' `format_correct` (utils/data.py at 3fc107e), in linear time; like their `$`, the
    end allows one more line break.
    """
    span = _form_span(completion)
    if span is None:
        return False
    before, after = completion[: span[0]], completion[span[1] :]
    return before in EDGES and after.removesuffix("\n") in EDGES


def form_score(completion: str) -> float:
    """1 for the right form, less 0.01 for every character outside it (authors' `format_score`)."""
    span = _form_span(completion)
    return 0.0 if span is None else max(0.0, 1 - 0.01 * (len(completion) - span[1] + span[0]))


def tag_score(completion: str) -> float:
    """A quarter for each of the four tags that occurs exactly once (authors' `count_xml`)."""
    return sum(completion.count(tag) == 1 for tag in TAGS) / len(TAGS)


def grade(completion: str, gold: str, format_reward: str) -> Grade:
    """Grade a completion against a number.

    Reward: 1 if the answer is right, plus 0.1 form_score + 0.1 tag_score (`additive`, the authors'
    later code), or these only where it is wrong (`when_wrong`, the release that holds their GSM8K
    results), or never (`none`).
    """
    block = answer(completion)
    value = None if block is None else number(block)
    correct = value is not None and value == number(gold)
    reward = float(correct)
    if format_reward == "additive" or (format_reward == "when_wrong" and not correct):
        reward += 0.1 * form_score(completion) + 0.1 * tag_score(completion)
    return Grade(reward, correct, well_formed(completion))


def _form_span(text: str) -> tuple[int, int] | None:
    """Where the longest think-and-answer form starts and ends."""
    start, end = text.find("<think>"), text.rfind("</answer>")
    junction = JUNCTION.search(text, start + len("<think>")) if start >= 0 else None
    if junction is None or junction.end() > end:
        return None
    return start, end + len("</answer>")
