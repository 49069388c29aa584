"""Grading workers where the machine fails or the limit of work is near."""

import os
import signal
import subprocess
import sys

import pytest

from mathgrade import MathGrader, WorkerUnavailable, worker_pool
from mathgrade.latex.exact import verdict_or_goal
from mathgrade.worker_pool import GradingWorker

HARD = ("\\frac{7}{\\sqrt{7}}", "\\sqrt{7}")  # left to a worker by the exact rules
NEAR_THE_LIMIT = ("\\frac{\\sin x+\\sin 3x}{\\cos x+\\cos 3x}", "\\tan 2x")
COUNTED = """
import sys
from mathgrade.symbolic_worker import disable_gmpy2
disable_gmpy2()
from mathgrade.symbolic_equality import holds, seed_sympy, warm_up
seed_sympy()
warm_up()
seed_sympy()
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
def test_a_proof_takes_the_same_work_in_every_process():
    goal = verdict_or_goal("\\cos 3x+\\cos x", "2\\cos 2x\\cos x")
    assert isinstance(goal, list) and goal[0] == "same"
    command = [sys.executable, "-P", "-c", COUNTED, *goal[1:]]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    counts = [int(subprocess.check_output(command, env=environment)) for _ in range(3)]
    assert min(counts) > 50_000
    assert max(counts) - min(counts) < 1e-3 * min(counts)


@pytest.mark.slow
def test_an_answer_near_the_limit_has_one_verdict():
    verdicts = set()
    for _ in range(4):
        worker = GradingWorker()
        verdicts.add(worker.ask(verdict_or_goal(*NEAR_THE_LIMIT)))
        worker.end()
    assert len(verdicts) == 1


@pytest.mark.slow
def test_failures_of_the_machine_are_not_verdicts_and_are_not_cached(monkeypatch):
    grader = MathGrader()
    failing_fork = "import os\nos.fork = lambda: os.open(os.devnull + 'x', 0)\n"  # OSError
    with monkeypatch.context() as broken:
        broken.setattr(worker_pool, "WORKER_SCRIPT", failing_fork + worker_pool.WORKER_SCRIPT)
        with pytest.raises(WorkerUnavailable, match="two worker processes in a row"):
            grader.verdict(*HARD)
    assert grader.verdict(*HARD) == "right"
    assert list(grader.cache.values()) == ["right"]
    grader.close()  # the next answer starts a new worker
    assert grader.verdict("\\frac{5}{\\sqrt{5}}", "\\sqrt{5}") == "right"
    grader.close()


@pytest.mark.parametrize("first", ["7 right", "1 failed"])
def test_a_worker_that_is_out_of_step_or_cannot_fork_is_replaced(monkeypatch, first):
    lines = iter(["ready", first, "ready", "2 wrong"])
    monkeypatch.setattr(worker_pool, "_read_line", lambda process, seconds: next(lines))
    monkeypatch.setattr(worker_pool, "WORKER_SCRIPT", "import sys; sys.stdin.read()")
    worker = GradingWorker()
    assert worker.ask(["same", "1", "2"]) == "wrong"
    worker.end()


def test_a_wait_can_be_stopped_and_the_next_verdict_is_right(monkeypatch):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt

    grader = MathGrader(check=check)
    monkeypatch.setattr("mathgrade.grader.POLL_SECONDS", 0.01)  # a worker starts in a second
    with pytest.raises(KeyboardInterrupt):
        grader.verdict(*HARD)
    assert grader.verdict(*HARD) == "right" and len(calls) > 2
    grader.close()


def test_a_worker_does_not_import_modules_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "sympy.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPY_USE_CACHE", "no")
    worker = GradingWorker()
    assert worker.ask(verdict_or_goal(*HARD)) == "right"
    worker.process.send_signal(signal.SIGINT)  # meant for the parent
    assert worker.ask(verdict_or_goal(*HARD)) == "right" and worker.questions == 2
    worker.end()
