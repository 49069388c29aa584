"""What repeated answers to one question say: pass@k and the majority vote."""

from collections import Counter
from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray


def pass_at_k(right: NDArray[np.integer], repeats: int, k: int) -> float:
    """Estimate the chance that one of k answers to a question is right, without bias.

    Chen et al. 2021, arXiv:2107.03374, equation 1: 1 - C(n - c, k) / C(n, k), the share of the
    subsets of k that hold a right answer, averaged over questions.

    Args:
        right: (Q,) right answers to each question, c.
        repeats: answers to each question, n.
        k: at most `repeats`.

    >>> pass_at_k(np.array([0, 1, 4]), repeats=4, k=2)  # of 6 pairs: 0, 3, 6
    0.5
    """
    chance = np.array([1 - comb(repeats - c, k) / comb(repeats, k) for c in range(repeats + 1)])
    return float(chance[right].mean())


def sizes(repeats: int) -> list[int]:
    """Return the k for which tables have pass@k: powers of 2 above 1, and all repeats.

    >>> sizes(1), sizes(5), sizes(8)
    ([], [2, 4, 5], [2, 4, 8])
    """
    powers = [2**i for i in range(1, repeats.bit_length()) if 2**i < repeats]
    return [*powers, repeats] if repeats > 1 else []


def majority(correct: NDArray[np.bool_], given: Sequence[Sequence[str | None]]) -> float:
    """Return the share of questions whose most frequent answer is right, over all repeats: maj@R.

    Right answers are one candidate, however they are spelled. Others are equal only if their texts
    are, so wrong votes may be split and the share be too high. Repeats without an answer cast no
    vote, and a tie is drawn by lot: it counts as the chance of the right answer.

    Args:
        correct: (R, Q) the answer is right.
        given: (R, Q) answers as `pods.types.Grader.given` writes them.

    >>> majority(np.array([[True], [False], [False]]), [["1/2"], ["3"], [None]])
    0.5
    """
    chances = []
    for verdicts, texts in zip(correct.T, zip(*given, strict=True), strict=True):
        right = int(verdicts.sum())
        answers = zip(verdicts, texts, strict=True)
        wrong = Counter(text for is_right, text in answers if not is_right and text is not None)
        most = max(right, *wrong.values(), 0)
        rivals = sum(votes == most for votes in wrong.values())
        chances.append(1 / (1 + rivals) if right == most > 0 else 0.0)
    return float(np.mean(chances))
