"""Verdicts on LaTeX answers, worked out by hand; they are exact, limited and reproducible."""

import doctest
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock

import pytest
from rows import every

import mathgrade
from mathgrade import MathGrader, WorkerUnavailable, grader, symbolic_worker, worker_pool
from mathgrade.latex.exact import verdict_or_goal
from mathgrade.worker_pool import GradingWorker

PACKAGE = Path(mathgrade.__file__).parent
AT_ONCE = 0.2  # seconds of CPU; an exponential or quadratic algorithm takes minutes
ANSWERS: dict[str, list[tuple[str, str]]] = {}
"""By verdict, pairs of answer and gold: those of the file, and those that a file cannot show."""
for line in (Path(__file__).parent / "tables/latex_answers.tsv").read_text().splitlines():
    if not line.startswith("#"):
        verdict, answer, gold = line.split("\t")
        ANSWERS.setdefault(verdict, []).append((answer, gold))
ANSWERS["right"] += [(" 18.\n", "18")]
ANSWERS["wrong"] += [(text, "18") for text in ("1\n8", "", " \n", "18\n7")]
ANSWERS["refused"] += [
    (text, "18")
    for text in (r"\sqrt{2+" * 30 + "2" + "}" * 30, r"\frac{1}{1+" * 300 + "1" + "}" * 300,
                 "(" * 400 + "18" + ")" * 400, "(" * 3000 + "18" + ")" * 3000, "9" * 200_000,
                 "1" + "+1" * 400, "\u202e81", "18\x00")]  # fmt: skip
SLOW = (r"\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2}}}}", r"2\cos\frac{\pi}{32}")  # equal, but too much work
DEEP = r"\sqrt{2+" * 60 + "2" + "}" * 60, r"\frac{1}{1+" * 300 + "1" + "}" * 300
ROWS = r"\\".join("&".join(f"x_{{{i}{j}}}" for j in range(9)) for i in range(9))
BOMBS = [
    ["same", bomb, "1"]
    for bomb in ("(9)^{(9)^{9}}", r"((10)^{9})!", r"\binom{(10)^{9}}{5\cdot (10)^{8}}", *DEEP,
                 "(" * 3000 + "1" + ")" * 3000, "9" * 200_000, "1" + "+1" * 3000,
                 r"\sum_{k=1}^{1000000} \frac{1}{k}",
                 rf"(\begin{{pmatrix}}{ROWS}\end{{pmatrix}})^{{-1}}")]  # fmt: skip

ORDINARY: list[object] = ["same", r"\sqrt{8}", r"2\cdot \sqrt{2}"]
PAYLOADS = [
    "__import__('os').system('touch canary')", "().__class__.__bases__[0].__subclasses__()",
    r"\text{__import__('os').system('touch canary')}", "[i for i in range(10**9)]",
    "(lambda f:f(f))(lambda f:f(f))", "exec(\"open('canary','w')\")", "open('canary','w')",
    r"\operatorname{exec}(open('canary','w'))", r"\write18{touch canary}", r"\input{/etc/passwd}",
]  # fmt: skip


@pytest.fixture(scope="module")
def two_workers() -> Iterator[MathGrader]:
    grader = MathGrader(workers=2)
    yield grader
    grader.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GradingWorker]:
    """Start a worker whose path has a gmpy2 that leaves a file behind if it is ever loaded."""
    path = tmp_path_factory.mktemp("path")
    (path / "gmpy2.py").write_text(f"open({str(path / 'loaded')!r}, 'w')")
    worker = GradingWorker()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(path), prepend=os.pathsep)
        patched.chdir(tmp_path_factory.mktemp("home"))
        assert worker.ask(ORDINARY) == "right"
        yield worker
        worker.end()
        assert not (path / "loaded").exists()


def test_the_exact_stage_accepts_rejects_and_refuses_at_once() -> None:
    def check(verdict: str, answer: str, gold: str) -> None:
        start = time.thread_time()
        assert verdict_or_goal(answer, gold) == verdict
        assert verdict != "refused" or time.thread_time() - start < AT_ONCE

    cases = ("right", "wrong", "refused")
    every(((verdict, *pair) for verdict in cases for pair in ANSWERS[verdict]), check)
    itself = {text for pair in ANSWERS["right"] + ANSWERS["proved"] for text in pair}
    every((("right", text, text) for text in sorted(itself)), check)


def test_the_root_of_a_negative_number_is_left_to_a_worker() -> None:
    """Its principal value is complex, and arithmetic would say -2 and 4."""
    for answer, other in ((r"(-8)^{1/3}", "-2"), (r"(-8)^{2/3}", "4"), (r"(-1)^{1/3}", "-1")):
        assert isinstance(verdict_or_goal(answer, other), list)


def test_mutated_answers_raise_nothing_and_take_no_time() -> None:
    rng = random.Random(0)
    pieces = [*"0123456789+-*/^_{}()[]|,.;=<>!'\"&$% \\abefxπ²½−√∞°\n", r"\frac", r"\sqrt", "or",
              r"\text{", r"\cup", r"\infty", r"\pm", r"\left", r"\begin{pmatrix}", r"\\", "10,000",
              r"\end{pmatrix}", r"\log_", r"\boxed{", "9" * 70, r"^{\circ}", r"\binom", r"\{",
              r"\}", r"\overline{3}", "^{", r"\5", '"x']  # fmt: skip
    golds = [gold for _, gold in ANSWERS["right"] + ANSWERS["proved"]]
    for _ in range(4000):
        text, gold = list(rng.choice(golds)), rng.choice(golds)
        for _ in range(rng.randint(1, 5)):
            at = rng.randint(0, len(text))
            many = rng.randint(1, 300) if rng.random() < 0.05 else 1
            text[at : at + rng.randint(0, 2)] = [rng.choice(pieces)] * many
        for _ in range(3):  # a pause of the machine does not come twice
            start = time.thread_time()
            decided = verdict_or_goal("".join(text), gold)
            if (seconds := time.thread_time() - start) < AT_ONCE:
                break
        assert seconds < AT_ONCE, text
        assert isinstance(decided, list) or decided in ("right", "wrong", "refused")


def test_nothing_is_started_before_a_worker_is_needed() -> None:
    script = f"""
import sys
from mathgrade import MathGrader
grader = MathGrader(2)
for answer, gold in {(ANSWERS["right"] + ANSWERS["wrong"])[::9]!r}:
    grader.prefetch(answer, gold)
    grader.verdict(answer, gold)
print([name for name in ("sympy", "math_verify") if name in sys.modules], grader.pool.threads)
"""
    assert _python(script) == "[] []\n"


def test_workers_compare_expressions_in_any_order(two_workers, worker):
    cases = [(pair, "right") for pair in ANSWERS["proved"]]
    cases += [(pair, "wrong") for pair in ANSWERS["disproved"]] + [(SLOW, "timeout")]
    for pair, _ in cases:
        two_workers.prefetch(*pair)
    assert [(pair, two_workers.verdict(*pair)) for pair, _ in cases] == cases
    for pair, verdict in reversed(cases[:-1:5]):  # but for the slow one
        goal = verdict_or_goal(*pair)
        assert not isinstance(goal, list) or worker.ask(goal) == verdict


def test_the_least_recently_used_verdicts_and_all_refused_ones_are_forgotten() -> None:
    small = MathGrader(cache_size=2)
    for answer in ("1", "2", "1", "3", "9" * 200_000):
        small.verdict(answer, "1")
    assert list(small.cache.items()) == [(("1", "1"), "right"), (("3", "1"), "wrong")]


def test_bombs_that_reach_a_worker_are_stopped(two_workers):
    pool = two_workers.pool
    futures = [pool.submit(goal) for goal in (BOMBS[0], *BOMBS[3:6])]  # the first runs in C
    assert [future.result(timeout=100) for future in futures] == ["timeout"] * len(futures)
    assert pool.submit(ORDINARY).result(timeout=100) == "right"


def test_a_silent_child_is_killed_and_one_that_could_not_run_gets_more_time(monkeypatch):
    ask_child = Mock(wraps=symbolic_worker.ask_child)
    monkeypatch.setattr(symbolic_worker, "WALL_SECONDS", 0.25)
    monkeypatch.setattr(symbolic_worker, "ask_child", ask_child)
    monkeypatch.setattr(symbolic_worker, "prove", lambda goal: time.sleep(1000))  # uses no CPU
    assert symbolic_worker.judge("a goal") == "timeout"
    assert [call.args[1] for call in ask_child.call_args_list] == [0.25, 1.0]


def test_a_worker_that_dies_is_replaced(worker: GradingWorker) -> None:
    first = worker.process
    assert first is not None
    first.send_signal(signal.SIGTERM)  # meant for the parent
    first.send_signal(signal.SIGINT)
    assert worker.ask(ORDINARY) == "right"
    assert worker.process is first
    first.kill()
    assert worker.ask(ORDINARY) == "right"
    assert worker.process is not first


def test_the_limits_hold(tmp_path: Path) -> None:
    script = f"""
import os, resource
from mathgrade.symbolic_worker import set_limits
file = os.open({str(tmp_path / "file")!r}, os.O_CREAT | os.O_WRONLY)
set_limits()
for attempt in (lambda: bytearray(520 * 2**20), lambda: os.write(file, b"x")):
    try:
        attempt()
    except (MemoryError, OSError) as error:
        print(type(error).__name__)
print(resource.getrlimit(resource.RLIMIT_CPU))
"""
    assert _python(script) == "MemoryError\nOSError\n(2, 2)\n"


def test_the_parser_reads_all_of_a_text_or_none(two_workers: MathGrader) -> None:
    for rest in [*")}]=&,?+$;^", r"\int", r"\}", r"\frac{1}"]:
        assert two_workers.pool.submit(["same", f"2 {rest}", "2"]).result() == "wrong", rest


def test_code_in_an_answer_is_not_run(two_workers: MathGrader, worker: GradingWorker) -> None:
    for payload in PAYLOADS:
        assert two_workers.verdict(payload, "18") in ("wrong", "refused")
        assert worker.ask(["same", payload, "18"]) == "wrong"  # without the exact stage
    assert not list(Path.cwd().iterdir())


def test_without_math_verify_there_is_no_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader, "find_spec", lambda name: None)
    message = r"math-verify is not installed: pip install 'pods-rl\[math\]'"
    with pytest.raises(ValueError, match=message):
        MathGrader()


def test_a_program_ends_at_once_although_goals_are_queued() -> None:
    script = """
import time
from mathgrade.worker_pool import WorkerPool
pool = WorkerPool(1)
print(pool.submit(["same", "2", "2"]).result())
for i in range(99):
    pool.submit(["same", "(9)^{(9)^{9}}", str(i)])
print(time.time())
"""
    verdict, ended = _python(script).split()
    assert verdict == "right"
    assert time.time() - float(ended) < 90  # the queued goals take 200 s


@pytest.mark.slow
def test_ordinary_answers_are_right_after_every_bomb(two_workers: MathGrader) -> None:
    futures = [two_workers.pool.submit(goal) for goal in BOMBS]  # a goal ends after 12.5 s at most
    assert "right" not in [future.result(timeout=300) for future in futures]
    pairs = [
        (rf"\frac{{{i}}}{{\sqrt{{2}}}}", rf"\frac{{{i}\sqrt{{2}}}}{{2}}") for i in range(3, 303)
    ]
    for pair in pairs:
        two_workers.prefetch(*pair)
    assert {two_workers.verdict(*pair) for pair in pairs} == {"right"}


def test_the_example_of_the_readme_holds() -> None:
    result = doctest.testfile(str(PACKAGE / "README.md"), module_relative=False)
    assert result.attempted > 3 and result.failed == 0


def _python(script: str) -> str:
    """Run a script in a fresh interpreter; return what it printed."""
    return subprocess.check_output([sys.executable, "-c", script], text=True)


HARD = ("\\frac{7}{\\sqrt{7}}", "\\sqrt{7}")  # left to a worker by the exact rules
NEAR_THE_LIMIT = ("\\frac{\\sin x+\\sin 3x}{\\cos x+\\cos 3x}", "\\tan 2x")


@pytest.mark.slow
def test_an_answer_near_the_limit_has_one_verdict():
    verdicts = set()
    for _ in range(6):
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


@pytest.fixture
def answers(monkeypatch):
    """Return a function that makes a grader, whose workers answer with these futures in turn."""

    def make(first: Future[str]) -> MathGrader:
        second: Future[str] = Future()
        second.set_result("right")
        waits = Mock(side_effect=[None] * 9)  # a wait without end raises
        grader = MathGrader(check=waits)
        monkeypatch.setattr(grader.pool, "submit", Mock(side_effect=[first, second]))
        return grader

    return make


def test_an_answer_whose_pool_was_closed_is_graded_anew(answers) -> None:
    cancelled: Future[str] = Future()
    cancelled.cancel()
    grader = answers(cancelled)
    assert grader.verdict(*HARD) == "right" and grader.pool.submit.call_count == 2


def test_an_answer_for_which_there_was_no_worker_is_graded_when_it_comes_again(answers) -> None:
    broken: Future[str] = Future()
    broken.set_exception(WorkerUnavailable("two in a row"))
    grader = answers(broken)
    with pytest.raises(WorkerUnavailable):
        grader.verdict(*HARD)
    assert grader.verdict(*HARD) == "right"


@pytest.mark.parametrize("first", ["7 right", "1 failed"])
def test_a_worker_that_is_out_of_step_or_cannot_fork_is_replaced(monkeypatch, first):
    lines = iter(["ready", first, "ready", "2 wrong"])
    monkeypatch.setattr(worker_pool, "_read_line", lambda process, seconds: next(lines))
    monkeypatch.setattr(worker_pool, "WORKER_SCRIPT", "import sys; sys.stdin.read()")
    worker = GradingWorker()
    assert worker.ask(["same", "1", "2"]) == "wrong"
    worker.end()


def test_a_wait_can_be_stopped_and_the_next_verdict_is_right(monkeypatch):
    check = Mock(side_effect=chain([None, KeyboardInterrupt], repeat(None)))
    grader = MathGrader(check=check)
    monkeypatch.setattr("mathgrade.grader.POLL_SECONDS", 0.01)  # a worker starts in a second
    with pytest.raises(KeyboardInterrupt):
        grader.verdict(*HARD)
    assert grader.verdict(*HARD) == "right" and check.call_count > 2
    grader.close()


def test_a_worker_does_not_import_modules_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "sympy.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPY_USE_CACHE", "no")
    worker = GradingWorker()
    assert worker.ask(verdict_or_goal(*HARD)) == "right" and worker.questions == 1
    worker.end()
