"""Workers that grade MATH, where the machine or the budget of work is at its end."""

import os
import signal
import subprocess
import sys

import pytest

from pods.tasks import pool
from pods.tasks.latex.exact import settle
from pods.tasks.math_verdict import MathVerdicts
from pods.tasks.pool import NoRoom, Worker

HARD = ("\\frac{7}{\\sqrt{7}}", "\\sqrt{7}")  # the exact rules leave it to a worker
NEAR_THE_LIMIT = ("\\frac{\\sin x+\\sin 3x}{\\cos x+\\cos 3x}", "\\tan 2x")
COUNTED = """
import sys
from pods.tasks import symbolic
symbolic.refuse_gmpy2()
from pods.tasks.symbolic_equality import holds, same_draws, warm_up
same_draws()
warm_up()
same_draws()
work = 0

def count(*event):
    global work
    work += 1

sys.setprofile(count)
holds(["same", sys.argv[1], sys.argv[2]])
sys.setprofile(None)
print(work)
"""


@pytest.mark.slow
def test_work_is_the_same_in_every_process_so_that_its_limit_is():
    goal = settle("\\cos 3x+\\cos x", "2\\cos 2x\\cos x")
    assert isinstance(goal, list) and goal[0] == "same"
    words = [sys.executable, "-P", "-c", COUNTED, *goal[1:]]
    made = [subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": "0"}, check=True,
                           capture_output=True, text=True).stdout for _ in range(3)]  # fmt: skip
    counts = [int(one) for one in made]
    assert min(counts) > 50_000
    assert max(counts) - min(counts) < 1e-3 * min(counts)


@pytest.mark.slow
def test_an_answer_near_the_limit_has_one_verdict():
    goal = settle(*NEAR_THE_LIMIT)
    found = []
    for _ in range(4):
        worker = Worker()
        found.append(worker.ask(goal))
        worker.end()
    assert len(set(found)) == 1


@pytest.mark.slow
def test_failures_of_the_machine_are_no_verdicts_and_are_not_remembered(monkeypatch):
    verdicts = MathVerdicts(1)
    no_process = (
        "import os\nos.fork = lambda: os.open(os.devnull + 'x', 0)\n" + pool.SERVE
    )  # OSError
    with monkeypatch.context() as broken:
        broken.setattr(pool, "SERVE", no_process)
        with pytest.raises(NoRoom, match="two workers in a row died or fell silent"):
            verdicts.verdict(*HARD)
    assert verdicts.verdict(*HARD) == "right"
    assert list(verdicts.known.values()) == ["right"]
    verdicts.close()
    assert (
        verdicts.verdict("\\frac{5}{\\sqrt{5}}", "\\sqrt{5}") == "right"
    )  # closed, it begins anew
    verdicts.close()


@pytest.mark.parametrize("first", ["7 right", "1 failed"])
def test_a_worker_that_is_out_of_step_or_has_no_means_is_never_believed(monkeypatch, first):
    """It is killed, and the next one is asked."""
    lines = iter(["ready", first, "ready", "2 wrong"])
    monkeypatch.setattr(pool, "_line", lambda process, seconds: next(lines))
    monkeypatch.setattr(pool, "SERVE", "import sys; sys.stdin.read()")
    worker = Worker()
    assert worker.ask(["same", "1", "2"]) == "wrong"
    worker.end()


def test_a_wait_can_be_stopped_and_the_next_verdict_is_right(monkeypatch):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt

    verdicts = MathVerdicts(1, check)
    monkeypatch.setattr("pods.tasks.math_verdict.POLL_SECONDS", 0.01)  # a worker starts in a second
    with pytest.raises(KeyboardInterrupt):
        verdicts.verdict(*HARD)
    assert verdicts.verdict(*HARD) == "right" and len(calls) > 2
    verdicts.close()


def test_a_worker_starts_beside_modules_that_are_called_like_the_standard_librarys(
    tmp_path, monkeypatch
):
    (tmp_path / "sympy.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPY_USE_CACHE", "no")
    worker = Worker()
    assert worker.ask(settle(*HARD)) == "right"
    worker.process.send_signal(signal.SIGINT)  # meant for the run
    assert worker.ask(settle(*HARD)) == "right" and worker.asked == 2
    worker.end()
