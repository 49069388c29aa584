r"""The LaTeX-only verdict of open-r1, which grades a whole completion with math-verify.

Source: `accuracy_reward` in open-r1's rewards.py, as copied in YixuanEvenXu/pods,
open-r1/src/open_r1/rewards.py:98-138 at 187f43b. Only LaTeX counts: a box anywhere, or else a
formula or fraction that follows the word "answer"; so a bare right number is wrong. There gold and
completion were parsed by math-verify 0.5.2, and the gold was the whole worked solution, of which
the parser took another number than the answer in 6 of 1,500 rows of GSM8K. Here the gold is the
answer. `accepts` runs in a worker process, whose limits replace math-verify's own.
"""

MARKS = ("$", "\\(", "\\[", "[", "\\boxed", "\\frac")
"""Marks of which math-verify's expressions for LaTeX all need one."""
MAX_CHARACTERS = 100_000


def verdict_or_goal(completion: str, gold: str) -> str | list[object]:
    r"""Grade a completion without LaTeX, or return the goal for a worker.

    >>> verdict_or_goal("<answer>18</answer>", "18"), verdict_or_goal(r"\boxed{18}", "18")
    ('wrong', ['open_r1', '\\boxed{18}', '18'])
    """
    if len(completion) > MAX_CHARACTERS:
        return "refused"
    if not any(mark in completion for mark in MARKS):
        return "wrong"
    return ["open_r1", completion, gold]


def accepts(completion: str, gold: str) -> bool:
    """Return whether math-verify finds LaTeX in a completion that equals the gold, a number."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    normalization = NormalizationConfig(
        nits=False,
        malformed_operators=False,
        basic_latex=True,
        equations=True,
        boxed="all",
        units=True,
    )
    latex = LatexExtractionConfig(
        normalization_config=normalization,
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )
    settings = {"extraction_mode": "first_match", "parsing_timeout": None}
    answer = parse(completion, extraction_config=[latex], **settings)
    return bool(verify(parse(gold, **settings), answer, timeout_seconds=None))
