"""Seeds without state: a draw is a function of where it happens, not of what came before it.

So a resumed run draws what the uninterrupted one would have drawn, with nothing to save.
"""

import hashlib


def derive(seed: int, purpose: str, *counters: int) -> int:
    """Make the seed of one draw from the run's seed, a purpose and counters (step, chunk, ...).

    Returns:
        An integer in [0, 2**63); different arguments give unrelated values.

    >>> derive(0, "rollouts", 1) == derive(0, "rollouts", 1) != derive(0, "rollouts", 2)
    True
    """
    place = f"{seed}/{purpose}"
    for counter in counters:
        place += f"/{counter}"
    digest = hashlib.sha256(place.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits


def evaluation_seeds(
    seed: int, step: int, repeat: int, questions: int, test_set: str = ""
) -> list[int]:
    """Return the seeds of one repeat's answers, one per question in the order of the test set.

    A test set other than the run's own is named, so that its seeds differ.

    >>> evaluation_seeds(3, 100, 1, 2) == [derive(3, "evaluation", 100, 1, q) for q in range(2)]
    True
    """
    purpose = f"evaluation/{test_set}" if test_set else "evaluation"
    return [derive(seed, purpose, step, repeat, question) for question in range(questions)]
