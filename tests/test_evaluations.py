"""The file of an evaluation that is being made, and the means of its records, by hand."""

import math

from pods.runs.evaluations import Asked, EvaluationRecord, Unfinished, means
from pods.runs.files import read_lines
from pods.runs.store import RunStore

REQUESTS = [Asked(repeat, f"q{q}", 10 * repeat + q) for repeat in range(2) for q in range(5)]


def record(request, verdict="wrong", **changes):
    """The record of a request's answer."""
    values = {"format": True, "lenient": None, "length": 5, "finished": True, **changes}
    return EvaluationRecord(
        repeat=request.repeat, question=request.question, seed=request.seed,
        correct=verdict == "right", verdict=verdict, **values)  # fmt: skip


ANSWERS = [record(request) for request in REQUESTS]


def test_only_whole_chunks_of_what_was_answered_are_kept(tmp_path):
    """Chunks of 4, of which the last of 10 answers is of 2."""
    unfinished = Unfinished(RunStore(tmp_path), 3)
    for written, kept in ((0, 0), (3, 0), (4, 4), (6, 4), (9, 8), (10, 10)):
        unfinished.path.unlink(missing_ok=True)
        unfinished.add(ANSWERS[:written])
        assert unfinished.keep(REQUESTS, 4) == kept
        assert len(read_lines(unfinished.path)) == kept
    for place in (1, 5):  # the answer to another request, and what comes after it
        unfinished.path.unlink()
        unfinished.add([*ANSWERS[:place], ANSWERS[0], *ANSWERS[place + 1 :]])
        assert unfinished.keep(REQUESTS, 4) == 4 * (place // 4)
    assert not unfinished.whole.exists()
    unfinished.add(ANSWERS[4:])
    unfinished.finish()
    assert len(read_lines(unfinished.whole)) == 10 and not unfinished.path.exists()


def test_the_means_of_an_evaluation_by_hand():
    first, *_ = REQUESTS
    records = [
        record(first, "right", lenient=True, length=1),
        record(first, "right", lenient=True, length=2, format=False),
        record(first, "none", lenient=True, length=3, format=False),
        record(first, "timeout", lenient=False, length=4),
        record(first, "none", lenient=False, length=20),
    ]
    assert means(records) == {
        "accuracy": 2 / 5, "lenient": 3 / 5, "format": 3 / 5, "both": 1 / 5, "length": 6.0,
        "no_answer": 2 / 5, "timeouts": 1 / 5}  # fmt: skip
    assert math.isnan(means(ANSWERS)["lenient"])
