r"""The closed answer of a completion, and the form around it.

`task.answer_format` names the form: `tag`, the papers' `<think> ... </think> <answer> ...
</answer>`; `hash`, GSM8K's own last line `#### 18`; `boxed`, the `\boxed{18}` of Qwen and R1; with
`whole` the completion is the answer. (Chainsum grades its chains itself.) No function here raises
on any text, evaluates it as code, or takes more than linear time.
"""

import re
from collections.abc import Sequence

JUNCTION = re.compile(r"</think>[ \n]?<answer>")
EDGES = ("", " ", "\n")
MARKS = {
    "tag": ("<think>", "</think>", "<answer>", "</answer>"),
    "hash": ("####",),
    "boxed": ("\\boxed{",),
}
BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
BOX_ENDS = " \n\t.*$)]\\"  # may follow a box and belong to it: closing maths, bold, a full stop
MAX_BOX = 4096  # characters; a longer box is not an answer
BEFORE_BOX = re.compile(r"(?:[-+^_/{0-9\u2212±×]|\\(?:cdot|times|pm|mp|div|sqrt|frac)) ?\Z")
AFTER_BOX = re.compile(
    r" ?(?:\^(?!\{?\\circ)|[_/!+0-9×]|[-\u2212] ?[0-9\\]|[.,][0-9]"
    r"|\\(?:cdot|times|pm|mp|div|sqrt|frac|pi)|(?:hundred|thousand|[mb]illion|trillion|dozen)s?\b)"
)
"""Text that changes the number in a box that it touches: `-\\boxed{18}`, `\\boxed{18},000`."""
STRICT_MARKS = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
STRICT_END = re.compile(r"\n</answer>(?=\n|\Z)")


def closed_answer(completion: str, answer_format: str) -> str | None:
    r"""Return the text of the only answer, or None if there is none or more than one.

    A thought is not an answer: if there is a `</think>`, only the text after it counts.
    """
    if answer_format == "whole":
        return completion
    span = _answer_span(completion, answer_format)
    if span is None:
        return None
    start, end = span
    return completion[start:end]


def well_formed(completion: str, answer_format: str) -> bool:
    """Return whether the completion has the requested form and nothing besides it.

    For tags that is the authors' `format_correct` (utils/data.py at 3fc107e), in linear time; like
    their `$`, the end allows one more line break. The other forms end with their answer.
    """
    if answer_format == "whole":
        return True
    outside = _outside(completion, answer_format)
    if outside is None:
        return False
    before, after = outside
    if answer_format == "tag":
        return before in EDGES and after.removesuffix("\n") in EDGES
    return before == "" and after == ""


def form_score(completion: str, answer_format: str) -> float:
    """Return 1 for the right form, less 0.01 for every character outside it.

    Source: the authors' `format_score` (utils/data.py at 187f43b; at 3fc107e a tenth of it).
    """
    outside = _outside(completion, answer_format)
    if outside is None:
        return 0.0
    before, after = outside
    return max(0.0, 1 - 0.01 * (len(before) + len(after)))


def mark_score(completion: str, marks: Sequence[str]) -> float:
    """Return the share of the marks that occur once.

    Of `MARKS["tag"]` it is the authors' `count_xml`, of `STRICT_MARKS` their `tag_count_reward`.
    """
    once = [mark for mark in marks if completion.count(mark) == 1]
    return len(once) / len(marks)


def strict_form(completion: str) -> bool:
    r"""Return whether the text begins with think and answer block, each mark on its own line.

    Source: open_r1/rewards.py `format_reward` at 3fc107e, whose expression
    `^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$` may end at any line's end.
    """
    if not completion.startswith("<think>\n"):
        return False
    thoughts = completion.removeprefix("<think>\n")
    answer = thoughts.partition("\n</think>\n<answer>\n")[2]
    return STRICT_END.search(answer) is not None


def _answer_span(completion: str, answer_format: str) -> tuple[int, int] | None:
    """Return start and end of the only answer's text, after all thoughts."""
    thought = completion.find("</think>") + 1
    if completion.find("<think>", thought) >= 0 or completion.find("</think>", thought) >= 0:
        return None  # the text ends in a thought, or has two

    mark, read = READERS[answer_format]
    start = completion.find(mark, thought)
    if start < 0:
        return None
    span = read(completion, start + len(mark))
    if span is None or completion.find(mark, span[1]) >= 0:
        return None
    return span


def _block(text: str, start: int) -> tuple[int, int] | None:
    """Return the span up to the closing tag, which must be the only one."""
    end = text.find("</answer>", start)
    first = text.find("</answer>", text.find("</think>") + 1)  # also before the answer
    if end == first >= 0 and text.count("</answer>", end) == 1:
        return start, end
    return None


def _line(text: str, start: int) -> tuple[int, int]:
    end = text.find("\n", start)
    return start, len(text) if end < 0 else end


def _box(text: str, start: int) -> tuple[int, int] | None:
    r"""Return the span of a box's content: braces are balanced, and `\{` and `\}` do not count."""
    depth = 0
    for match in BRACES.finditer(text, start, start + MAX_BOX):
        if depth == 0 and (match[0] != "{" or text[start : match.start()].strip()):
            return None
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
        if depth == 0:
            end = match.start()
            if _is_part_of_a_number(text, start - len("\\boxed"), end + 1):
                return None
            return text.find("{", start) + 1, end
    return None


def _is_part_of_a_number(text: str, start: int, end: int) -> bool:
    """Return whether the text around a box, from start to end, changes the number in it."""
    before = text[max(0, start - 16) : start]
    after = text[end : end + 31]
    return BEFORE_BOX.search(before) is not None or AFTER_BOX.match(after) is not None


READERS = {"tag": ("<answer>", _block), "hash": ("####", _line), "boxed": ("\\boxed", _box)}


def _outside(text: str, answer_format: str) -> tuple[str, str] | None:
    """Return the text before and after the form, or None if the text has not that form.

    With tags it is the longest think-and-answer form; the other forms have nothing before them.
    """
    if answer_format != "tag":
        span = _answer_span(text, answer_format)
        if span is None:
            return None
        end = span[1]
        if answer_format == "boxed":
            end += len("}")
        return "", text[end:].strip(BOX_ENDS)

    start = text.find("<think>")
    if start < 0:
        return None
    end = text.rfind("</answer>")
    junction = JUNCTION.search(text, start + len("<think>"))
    if junction is None or junction.end() > end:
        return None
    return text[:start], text[end + len("</answer>") :]
