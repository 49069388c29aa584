"""Verdicts on LaTeX answers, worked out by hand; they are exact, limited and reproducible."""

import ast
import doctest
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rows import every

import mathgrade
from mathgrade import MathGrader, WorkerUnavailable, grader, symbolic_worker
from mathgrade.latex.exact import verdict_or_goal
from mathgrade.worker_pool import GradingWorker, WorkerPool

PACKAGE = Path(mathgrade.__file__).parent
AT_ONCE = 0.2  # seconds of CPU; an exponential or quadratic algorithm takes minutes
# pairs of answer and gold that the exact stage decides
RIGHT = [
    ("(x,y)=(1,2)", "(1,2)"), ("x=1, y=2", "(1,2)"), ("(1,2)", "(x,y)=(1,2)"),
    ("a=6, b=31, c=-1", "(6,31,-1)"), (r"\text{Area} = 12\pi", r"12\pi"), ("m+n=23", "23"),
    ("18", "18"), (" 18.\n", "18"), ("$18$", "18"), (r"\(18\)", "18"), (r"\[18\]", "18"),
    ("**18**", "18"), (r"\boxed{18}", "18"), (r"\text{18}", "18"), ("18.00", "18"),
    ("１８", "18"), ("\u221218", "-18"), ("+18", "18"), (r"\$18", "18"), (r"18\%", "18"),
    ("18%", "18"), ("x = 18", "18"), ("18", "x = 18"), ("18 = x", "x=18"), ("f(x)=2x", "2x"),
    (r"AB = 5", "5"), ("10,000", "10000"), ("10{,}000", "10,000"), (r"10,\!000", "10000"),
    (r"10\,000", "10000"), (r"11,\! 111,\! 100", "11111100"), (".5", r"\frac{1}{2}"),
    ("0.5", r"\frac12"), ("1/2", r"\frac{1}{2}"),
    (r"\dfrac12", r"\frac{1}{2}"), (r"\tfrac{1}2", r"\frac{1}{2}"), (r"\frac1{72}", "1/72"),
    (r"\frac{-1}{2}", r"-\frac12"), (r"3\frac12", "3.5"), ("3 1/2", r"\frac72"),
    (r"-2\frac{1}{3}", r"-\frac73"), (r"0.\overline{3}", r"\frac13"), (r"0.1\overline{6}", "1/6"),
    (r"50\%", r"\frac12"), ("0.5", r"50\%"), (r"\sqrt{4}", "2"), (r"8^{2/3}", "4"),
    (r"\sqrt[3]{-8}", "-2"), ("2^{10}", "1024"), ("2^10", "1024"), ("5!", "120"),
    (r"\binom{5}{2}", "10"), ("|-3|", "3"), (r"\lfloor 2.5\rfloor", "2"), (r"\sqrt3", r"\sqrt{3}"),
    (r"2\pi", r"\pi \cdot 2"), ("√12", r"\sqrt{12}"), ("2sqrt(3)", r"2\sqrt{3}"), ("2pi", r"2\pi"),
    (r"5\text{ cm}", "5"), ("5 cm", r"5\text{ centimeters}"), (r"5\mbox{ cm}^2", r"5\text{ cm}^2"),
    (r"5\text{ square cm}", r"5\mathrm{cm}^{2}"), ("5 apples", "5"), (r"90^\circ", "90"),
    ("90°", r"90^{\circ}"), (r"90\text{ degrees}", r"90^\circ"), (r"\left( 1, 2 \right)", "(1,2)"),
    ("(1.0,2)", r"(1,\frac42)"), (r"(1, \sqrt{2})", r"(1,\sqrt2)"), ("[0, 1)", r"\left[0,1\right)"),
    ("1, 2", "2,1"), (r"1\text{ and }2", "1,2"), ("1 or 2", "2, 1"), (r"\{2, 1\}", r"\{1,2\}"),
    ("{1, 2}", r"\{1,2\}"), (r"\{1,2\}", "1,2"), (r"\pm a", r"\pm a"), (r"x=\pm 5", "5,-5"),
    ("-2021, 2021", r"\pm 2021"), (r"x=1\text{ or }x=2", "1,2"), (r"1\pm\sqrt2",
    r"1+\sqrt2, 1-\sqrt2"), (r"(2,\infty)\cup(-\infty,1)", r"(-\infty,1)\cup(2,\infty)"),
    (r"x\in[0,1]", "[0,1]"), (r"0\le x\leq 1", "[0,1]"), ("x>2", r"(2,\infty)"), ("3<x", "x>3"),
    (r"x<1\text{ or }x>2", r"(-\infty,1)\cup(2,\infty)"), ("x<=3", r"(-\infty,3]"),
    (r"(-\infty,\infty)", r"\mathbb{R}"), (r"\emptyset", r"\{\}"), ("y=2x+3", "y=3+2x"),
    (r"\begin{bmatrix}1&2\\3&\frac82\end{bmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    ("1011_2", "1011_{2}"), ("1011", "1011_2"), ("Evelyn", r"\text{Evelyn}"), ("C", r"\text{(C)}"),
    ("(c)", r"\textbf{(C)}"), (r"\text{Friday.}", r"\text{friday}"), (r"\mathrm{e}", "e"),
    ("a b c", "cab"), (r"\frac{\pi}3", r"\frac\pi3"), (r"\frac{abcd}{2}", r"\frac{dcba}{2}"),
    (r"\mathbf{x}=5", "5"), (r"5\mathbf{x}", "5x"), (r"5\mathrm{x}", "5x"), (r"5\text{ m}", "5"),
    (r"5\text{ m}", r"5\mathrm{ m}"), (r"\text{B}", r"\text{b}"), (r"\operatorname{cos}x",
    r"\cos x"), ("8 a.m.", r"8\text{ AM}"), (r"8\text{ p.m.}", "8"), (r"60\text{ mph}",
    r"60\text{ miles per hour}"), (r"5\text{ m/s}", "5"), (r"\$2\text{ per pound}", r"\$2"),
    (r"x>-1\text{ and }x<2", "(-1,2)"), ("(-1,2]", r"x\le2\text{ and }x>-1"), (r"x\ge1, x\le2",
    "[1,2]"), ("x<1, x>2", r"(-\infty,1)\cup(2,\infty)"), (r"-1<x\text{ and }x<2", "-1<x<2"),
    ("0.5.", "0.5"), ("5 green apples", "5"), (r"5\text{ people}", "5"), (r"25\%", "25"),
    (r"40\%", "0.4"), ("(x^2)^3", "x^6"), ("(2^3)^2", "64"), ("((x+1)^2)^2", "(x+1)^4"),
    (r"\frac12|a|", r"\frac12\cdot|a|"), ("x|x|", "|x|x"), ("2|-3|", "6"), ("|2(|-3|)|", "6"),
    ("2, 3, and 5", "2,3,5"), (r"4, 6, 14, \text{ and } 15", "4,6,14,15"), ("2,3,5,", "2,3,5"),
    (r"2 \& 5", "2,5"), ("12cm", "12"), (r"12\,cm", r"12\text{ cm}"), ("12~cm", "12"),
    (r"30\degree", r"30^\circ"), (r"\boldsymbol{5}", "5"), (r"\textcolor{red}{5}", "5"),
    (r"\underline{5}", "5"), (r"{\bf 5}", "5"), ("x²+5x+6", "x^2+5x+6"), ("1 000 000", "1000000"),
    ("(-oo, 1)", r"(-\infty,1)"), ("(2,5) U (7,9)", r"(2,5)\cup(7,9)"),
]  # fmt: skip
WRONG = [
    ("(x,y)=(2,1)", "(1,2)"), ("y=1, x=2", "(1,2)"), ("x=1, x=2", "(1,2)"), ("x=1,y=2", "[1,2]"),
    ("m+n=22", "23"), ("x+5=23", "23"), ("2x=10", "10"), ("m+n=m", "m"), ("2+4=5", "5"),
    ("-18", "18"), ("1.8", "18"), ("1,8", "18"), ("1 8", "18"), ("1\n8", "18"), ("1{}8", "18"),
    (r"1\,8", "18"), ("18,000", "18"), ("18.0000001", "18"), ("17.99999999", "18"), ("18/0", "18"),
    ("0.0833333333333333", r"\frac{1}{12}"), ("0.333", r"\frac13"), ("12 or 18", "18"),
    ("17, 18, 19", "18"), ("15 16 17 18", "18"), ("", "18"), (" \n", "18"), ("18?", "18"),
    ("answer = 18? no: 7", "18"), ("18=7", "18"), ("x=18=7", "18"), ("1+", "1"), ("()", "1"),
    (r"\frac12x", r"\frac12"), (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}"), ("zoo", "18"),
    ("[0,1]", "(0,1)"), ("[0,1)", "(0,1]"), ("(1,2)", "(2,1)"), ("(1,2)", "1,2"), ("1,2", "(1,2)"),
    ("(1,2,3)", "(1,2)"), ("1,1,2", "1,2,2"), ("1,2", "1,2,3"), (r"\{1,2\}", "(1,2)"),
    ("2021", r"\pm 2021"), (r"\pm 2021", "2021"), ("x=5", "y=5"), ("5", "x^2+5=5"),
    ("2x=10", "x=5"), (r"x\le 3", "x<3"), ("1<x<2", "[1,2]"), ("x<1", "x<1,x>2"),
    (r"(-\infty,1)\cup(2,\infty)", r"(-\infty,1]\cup(2,\infty)"), ("(0,1)", r"(0,1)\cup(2,3)"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"), ("x", "X"),
    (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&3\end{pmatrix}"), ("x", "y"),
    ("5 m", r"5\text{ cm}"), (r"5\text{ hours}", r"5\text{ minutes}"), ("5 cm", r"5\text{ cm}^2"),
    (r"5\text{ thousand}", "5"), (r"5\text{ not}", "5"), ("5 squared", "5"), (r"0.5\%", r"\frac12"),
    ("1011_2", "1011_3"), ("1011_2", "1011"), ("Eve", r"\text{Evelyn}"), ("18\n7", "18"),
    (r"\text{x > 5}", r"\text{x < 5}"), (r"\text{odd}", r"\text{even}"), ("no", r"\text{yes}"),
    ("--18", "18"), ("1/2/3", r"\frac16"), ("1/2x", r"\frac{x}{2}"), ("0^0", "1"),
    ("sum([9,9])", "18"), ("x^2^3", "x^6"), ("x 2", "2x"),
    ("1,234", "(1,234)"), ("(1,234)", "1234"), (r"1,234,5", "12345"), ("x+1=2", "2"),
    (r"5\mathrm{x}", "5"), (r"5\mathbf{x}", "5"), (r"5\text{x}", "5"), (r"3\mathrm{x}^2", "3"),
    (r"2\mathbf{a}", r"2\mathbf{b}"), (r"5\text{k}", "5"), (r"5\text{M}", "5"), (r"5\text{ K}",
    "5"), (r"5\operatorname{sgn}", "5"), (r"5\mathbf{m}", "5"), (r"x\mathbf{y}", "x"),
    (r"8\text{ a.m.}", r"8\text{ p.m.}"), ("8 a.m.", "8 p.m."), (r"5\text{ m/s}", r"5\text{ s}"),
    (r"5\text{ m/s}", r"5\text{ m}"), (r"5\text{ hours}", r"5\text{ miles per hour}"),
    (r"20\%\text{ decrease}", r"20\%"), (r"\$2\text{ per pound}", r"\$2\text{ per hour}"),
    (r"x<1\text{ and }x>2", r"(-\infty,1)\cup(2,\infty)"), (r"x>-1\text{ or }x<2", "(-1,2)"),
    (r"x<1\text{ and }x>2", r"x<1\text{ or }x>2"), ("0.5...", "0.5"), ("18...", "18"),
    ("1.41..", "1.41"), ("5 factorial", "5"), ("5 reciprocal", "5"), ("5 alpha", "5"),
    ("5 choose", "5"), (r"5\text{ less}", "5"), ("5 quarters", "5"), ("5 pair", "5"),
    (r"18\text{ wait}", "18"), (r"5\text{ out of }", "5"), ("5 impossible", "5"), (r"2500\%",
    "25"), (r"2500\%", "0.25"), ("x^2^3", "x^8"),
    ("2,,3", "2,3"), (",2,3", "2,3"), ("2,3,,", "2,3"), ("18,", "18"), ("12cm", r"12\text{ m}"),
    ("12 km", r"12\text{ cm}"), ("1 000", "1000"), ("1 000 00", "100000"),
    ("(2,5)U", "(2,5)"), (r"12\underline{3}", "36"), ("12{3}", "36"),
]  # fmt: skip
REFUSED = [
    (r"\int_{0}^{1} x dx", "18"), (r"\lim_{x \to 0} x", "18"), (r"\prod_{k=1}^{10^{7}} k", "18"),
    (r"\sum_{k=1}^{9} k", "45"), (r"9^{9^{9}}", "18"), (r"(10^{5})!", "18"),
    (r"\binom{10^{9}}{5\cdot 10^{8}}", "18"), (r"\frac{1}{2006!}", r"\frac{1}{2004!}"),
    ("1,3,5,\\ldots,2n-1", r"1,2,\ldots,n"), (r"\sqrt{2+" * 30 + "2" + "}" * 30, "2"),
    (r"\frac{1}{1+" * 300 + "1" + "}" * 300, "2"), ("(" * 400 + "18" + ")" * 400, "18"),
    ("(" * 3000 + "18" + ")" * 3000, "18"), ("9" * 200_000, "18"), ("9" * 65, "18"),
    ("1" + "+1" * 400, "401"), ("(x+y+z+w+v)^{40}", "x+y+z+w+v"), (r"10^{10^{8}} \bmod 7", "4"),
    (r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}", "18"),
    (r"2^{2^{2^{2^{2^{4^{16}}}}}}", "2^{16}"), ("e^{1000000}", "18"), (r"\pi^{10^{6}}", "1"),
    ("\u202e81", "18"), ("18\x00", "18"), (r"\approx 18", "18"), ("18", r"\int 18"),
    ("18²", "182"), ("½", "12"), (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
    ("2^{x^{x^{x}}}", "x"), (r"5!!", "15"), (r"\sqrt12", r"\sqrt{12}"),
]  # fmt: skip
# pairs of answer and gold that the workers decide
SYMBOLIC_RIGHT = [
    (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"), ("(x+1)^2", "x^2+2x+1"), (r"\log_2 8", "3"),
    (r"\sin^2 x+\cos^2 x", r"\cos^2 x + \sin^2 x + 0x"), ("y=2x+3", "2x-y+3=0"), ("x<y", "-x>-y"),
    ("4x-2y+6=0", "y=2x+3"), ("(1+i)^2", "2i"), (r"e^{i\pi}", "-1"), (r"\sin 30^\circ", "0.5"),
    (r"\{\sqrt{8}, 1\}", r"1, 2\sqrt2"), (r"(\sqrt{8},1)", r"(2\sqrt2,1)"), ("x^{-1}", "1/x"),
    (r"[0,\sqrt{8})", r"[0,2\sqrt{2})"), (r"\ln 8", r"3\ln 2"), (r"\frac{n!}{(n-1)!}", "n"),
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), (r"\frac{x^2-1}{x-1}", "x+1"), (r"1.5\sqrt2",
    r"\frac{3\sqrt2}{2}"), (r"\begin{pmatrix}\sqrt8\end{pmatrix}",
    r"\begin{pmatrix}2\sqrt2\end{pmatrix}"), (r"\frac{-b\pm\sqrt{b^2}}{2}",
    r"\frac{\sqrt{b^2}-b}{2},\frac{-\sqrt{b^2}-b}{2}"), ("2|x|", "|2x|"), ("4|x-1|", "4|1-x|"),
    ("a_1(b+c)", "a_1b+a_1c"),
]  # fmt: skip
SYMBOLIC_WRONG = [
    ("x<3", "x>3"),
    (r"1 + \frac{1}{\mathrm{e}}", r"1 - \frac{1}{\mathrm{e}}"), ("(x+1)^2", "x^2+2x+2"),
    (r"\frac{1}{\sqrt2}", r"\frac{\sqrt3}{2}"), (r"\log 2", r"\ln 2"), ("y=2x+3", "y=2x+4"),
    ("x<y", "-x<-y"), ("0x=0y", "y=x"), ("x+1=x+y", "x=x+y"), (r"\sqrt2", "1.41421356237309505"),
    (r"\pi", "3.14159265358979323846"), ("1+2i", "1-2i+0i"), (r"\{\sqrt2,\sqrt3\}",
    r"\sqrt2,\sqrt5"), (r"\sqrt{2}", r"\sqrt{2}+2^{-999}"), ("e^{-10}", "e^{-11}"),
    (r"\lfloor x\rfloor", r"\lceil x\rceil"), (r"x^2", "2x"), ("ab+0", "a+b"),
    ("(x^2)^3", "x^5"), ("2|x|", "|x|"), ("x²", "2x"),
]  # fmt: skip
SLOW = (r"\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2}}}}", r"2\cos\frac{\pi}{32}")  # equal, but too much work
BOMBS = [
    ["same", "(9)^{(9)^{9}}", "1"],
    ["same", r"((10)^{9})!", "1"],
    ["same", r"\binom{(10)^{9}}{5\cdot (10)^{8}}", "1"],
    ["same", r"\sqrt{2+" * 60 + "2" + "}" * 60, "2"],
    ["same", r"\frac{1}{1+" * 300 + "1" + "}" * 300, "2"],
    ["same", "(" * 3000 + "1" + ")" * 3000, "1"],
    ["same", "9" * 200_000, "1"],
    ["same", "1" + "+1" * 3000, "3001"],
    ["same", r"\sum_{k=1}^{1000000} \frac{1}{k}", "1"],
    ["same", r"(\begin{pmatrix}" + r"\\".join("&".join(f"x_{{{i}{j}}}" for j in range(9))
     for i in range(9)) + r"\end{pmatrix})^{-1}", "1"],
]  # fmt: skip
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


def decides(verdict: str) -> Callable[[str, str], None]:
    """Make a check that the exact stage reaches this verdict."""

    def check(answer: str, gold: str) -> None:
        assert verdict_or_goal(answer, gold) == verdict

    return check


def test_the_exact_stage_accepts() -> None:
    every(RIGHT, decides("right"))


def test_the_exact_stage_rejects() -> None:
    every(WRONG, decides("wrong"))


def test_kinds_that_are_not_graded_are_refused_at_once() -> None:
    def check(answer: str, gold: str) -> None:
        start = time.thread_time()
        decides("refused")(answer, gold)
        assert time.thread_time() - start < AT_ONCE

    every(REFUSED, check)


def test_every_answer_equals_itself() -> None:
    for pair in RIGHT + SYMBOLIC_RIGHT:
        for text in pair:
            assert verdict_or_goal(text, text) == "right"


def test_mutated_answers_raise_nothing_and_take_no_time() -> None:
    rng = random.Random(0)
    pieces = [*"0123456789+-*/^_{}()[]|,.;=<>!'\"&$% \\abefxπ²½−√∞°\n", r"\frac", r"\sqrt", "or",
              r"\text{", r"\cup", r"\infty", r"\pm", r"\left", r"\begin{pmatrix}", r"\\", "10,000",
              r"\end{pmatrix}", r"\log_", r"\boxed{", "9" * 70, r"^{\circ}", r"\binom", r"\{",
              r"\}", r"\overline{3}", "^{", r"\5", '"x']  # fmt: skip
    golds = [gold for pairs in (RIGHT, SYMBOLIC_RIGHT) for _, gold in pairs]
    for _ in range(4000):
        text, gold = list(rng.choice(golds)), rng.choice(golds)
        for _ in range(rng.randint(1, 5)):
            at = rng.randint(0, len(text))
            many = rng.randint(1, 300) if rng.random() < 0.05 else 1
            text[at : at + rng.randint(0, 2)] = [rng.choice(pieces)] * many
        start = time.thread_time()
        decided = verdict_or_goal("".join(text), gold)
        assert isinstance(decided, list) or decided in ("right", "wrong", "refused")
        assert time.thread_time() - start < AT_ONCE, text


def test_nothing_is_started_before_a_worker_is_needed() -> None:
    script = f"""
import sys
from mathgrade import MathGrader
grader = MathGrader(2)
for answer, gold in {(RIGHT + WRONG)[::9]!r}:
    grader.prefetch(answer, gold)
    grader.verdict(answer, gold)
print([name for name in ("sympy", "math_verify") if name in sys.modules], grader.pool.threads)
"""
    assert _python(script) == "[] []\n"


def test_workers_compare_expressions(two_workers: MathGrader) -> None:
    cases = [(pair, "right") for pair in SYMBOLIC_RIGHT]
    cases += [(pair, "wrong") for pair in SYMBOLIC_WRONG] + [(SLOW, "timeout")]
    for pair, _ in cases:
        two_workers.prefetch(*pair)
    assert [(pair, two_workers.verdict(*pair)) for pair, _ in cases] == cases


def test_verdicts_are_the_same_in_any_order_and_with_any_number_of_workers(
    two_workers: MathGrader, worker: GradingWorker
) -> None:
    for pair in reversed([*SYMBOLIC_RIGHT[::5], SLOW, *SYMBOLIC_WRONG[::5]]):
        goal = verdict_or_goal(*pair)
        if isinstance(goal, list):
            assert worker.ask(goal) == two_workers.verdict(*pair)


def test_the_least_recently_used_verdicts_and_all_refused_ones_are_forgotten() -> None:
    small = MathGrader(cache_size=2)
    for answer in ("1", "2", "1", "3", "9" * 200_000):
        small.verdict(answer, "1")
    assert list(small.cache.items()) == [(("1", "1"), "right"), (("3", "1"), "wrong")]


def test_bombs_that_reach_a_worker_are_stopped_and_the_next_answer_is_graded(
    two_workers: MathGrader,
) -> None:
    pool = two_workers.pool
    futures = [pool.submit(goal) for goal in (BOMBS[0], *BOMBS[3:6])]  # the first runs in C
    assert [future.result(timeout=100) for future in futures] == ["timeout"] * len(futures)
    assert pool.submit(ORDINARY).result(timeout=100) == "right"


def test_a_child_that_is_silent_is_killed_and_one_that_could_not_run_gets_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits, ask_child = [], symbolic_worker.ask_child

    def recording(goal: object, seconds: float) -> tuple[str, float]:
        limits.append(seconds)
        return ask_child(goal, seconds)

    monkeypatch.setattr(symbolic_worker, "WALL_SECONDS", 0.25)
    monkeypatch.setattr(symbolic_worker, "ask_child", recording)
    monkeypatch.setattr(symbolic_worker, "prove", lambda goal: time.sleep(1000))  # uses no CPU
    assert symbolic_worker.judge("a goal") == "timeout"
    assert limits == [0.25, 1.0]


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


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mathgrade.worker_pool.WORKER_SCRIPT", "import mathgrade.nowhere")
    pool = WorkerPool(1)
    with pytest.raises(WorkerUnavailable, match="two worker processes in a row did not start"):
        pool.submit(ORDINARY).result()
    pool.close()


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
    assert time.time() - float(ended) < 30  # the queued goals take 200 s


@pytest.mark.slow
def test_a_thousand_ordinary_answers_right_after_a_hundred_bombs(two_workers: MathGrader) -> None:
    for future in [two_workers.pool.submit(ORDINARY) for _ in range(2)]:
        assert future.result() == "right"  # both workers have started
    seconds = []
    for i in range(100):
        start = time.perf_counter()
        kind, bomb, other = BOMBS[i % len(BOMBS)]
        assert two_workers.pool.submit([kind, bomb, f"{other}+{i}"]).result() != "right"
        seconds.append(time.perf_counter() - start)
    assert max(seconds) < 30  # 2.5 s, and 10 more where the machine is busy
    pairs = [
        (rf"\frac{{{i}}}{{\sqrt{{2}}}}", rf"\frac{{{i}\sqrt{{2}}}}{{2}}") for i in range(3, 1003)
    ]
    start = time.perf_counter()
    for pair in pairs:
        two_workers.prefetch(*pair)
    assert {two_workers.verdict(*pair) for pair in pairs} == {"right"}
    each = (time.perf_counter() - start) / len(pairs)
    print(f"bombs {sum(seconds) / len(seconds):.2f} s, at most {max(seconds):.2f} s;", end=" ")
    print(f"ordinary answers {1000 * each:.0f} ms each with 2 workers")


def test_the_package_imports_nothing_of_pods_and_no_module_that_evaluates_or_draws() -> None:
    standard = {"__future__", *sys.stdlib_module_names} - {"pickle", "marshal", "random"}
    allowed = {"mathgrade", "sympy", "mpmath", "latex2sympy2_extended", "math_verify", *standard}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("eval", "exec", "compile"), path


def test_the_example_of_the_readme_holds() -> None:
    result = doctest.testfile(str(PACKAGE / "README.md"), module_relative=False)
    assert result.attempted > 3 and result.failed == 0


def _python(script: str) -> str:
    """Run a script in a fresh interpreter; return what it printed."""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
