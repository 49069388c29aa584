"""Measure verdicts per second of our graders and math-verify on the same completions, on one core.

    python experiments/benchmarks/grading.py [FOLDER]    with GSM8K's train.jsonl, or synthetic text

A completion is a worked solution in the form that the prompt asks for, with the right answer or a
wrong one in one of eight surface forms. For MATH there are answers that the exact rules decide, and
answers that go to a worker. The graders take turns. The script prints the medians of the rounds,
and their ratio, as JSON.
"""

import dataclasses
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from math_verify import parse, verify

from mathgrade import MathGrader
from pods.config.checks import validate
from pods.config.compose import compose
from pods.tasks.lenient import lenient
from pods.tasks.rewards import number_grader

ROUNDS, OURS, THEIRS = 5, 20_000, 500
SURFACES = ("{}", "{:,}", "${:,}.00", "x = {}", "\\boxed{{{}}}", "**{}**", "{} dollars",
            "The answer is {}.")  # fmt: skip
FORMS = {
    "tag": "<think>\n{}\n</think>\n<answer>\n{}\n</answer>",
    "hash": "{}\n#### {}",
    "boxed": "{}\nSo it is $\\boxed{{{}}}$.",
}
Pairs = list[tuple[str, str]]


def solutions(folder: str | None) -> list[tuple[str, int]]:
    """Return worked solutions with their answers."""
    if folder is None:
        words = "She sells 48 / 2 = 24 clips in May, so altogether there are 48 + 24 = 72. " * 8
        return [(words, 72 + i) for i in range(100)]
    rows = (Path(folder) / "train.jsonl").read_text(encoding="utf-8").splitlines()
    split = [json.loads(row)["answer"].rpartition("####") for row in rows]
    return [(work.strip(), int(gold.replace(",", ""))) for work, _, gold in split]


def completions(folder: str | None, form: str) -> Pairs:
    """Return completions and golds, half of them wrong."""
    rng, worked = random.Random(0), solutions(folder)
    pairs = []
    for _ in range(OURS):
        work, gold = rng.choice(worked)
        answer = rng.choice(SURFACES).format(gold + rng.choice([0, rng.randint(1, 20)]))
        pairs.append((form.format(work, answer), str(gold)))
    return pairs


def rate(grade: Callable[[str, str], object], pairs: Pairs) -> float:
    """Return verdicts per second of CPU time."""
    start = time.thread_time()
    for completion, gold in pairs:
        grade(completion, gold)
    return len(pairs) / (time.thread_time() - start)


def math_rates() -> dict[str, float]:
    """Return new answers to MATH per second, by the exact rules on this core and by one worker."""
    grader = MathGrader()
    exact = [(f"\\frac{{{i}}}{{{i + 1}}}", "\\frac{1}{2}") for i in range(2000)]
    start = time.thread_time()
    for pair in exact:
        grader.verdict(*pair)
    decided = len(exact) / (time.thread_time() - start)
    hard = [(f"\\frac{{{7 * i}}}{{\\sqrt{{7}}}}", f"{i}\\sqrt{{7}}") for i in range(2, 62)]
    grader.verdict("\\sqrt{8}", "2\\sqrt{2}")  # starts the worker
    start = time.perf_counter()
    for pair in hard:
        assert grader.verdict(*pair) == "right", pair
    proved = len(hard) / (time.perf_counter() - start)
    return {"MATH, exact rules": decided, "MATH, one worker": proved}


def main(folder: str | None) -> None:
    """Run the graders in turns, and print their rates."""
    config = validate(compose(["task=gsm8k", "model=qwen2_5_0_5b"])).task
    rows: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, form in FORMS.items():
            pairs = completions(folder, form)
            grade = number_grader(dataclasses.replace(config, answer_format=name)).grade
            rows.setdefault(f"ours, {name}", []).append(rate(grade, pairs))
            if name == "tag":
                theirs = rate(lambda text, gold: verify(parse(gold), parse(text)), pairs[:THEIRS])
                rows.setdefault("math-verify, tag", []).append(theirs)
                loose = rate(lambda text, gold: lenient(text, gold, "release"), pairs)
                rows.setdefault("the authors' grader as ours, tag", []).append(loose)
        for name, value in math_rates().items():
            rows.setdefault(name, []).append(value)
    ratios = [a / b for a, b in zip(rows["ours, tag"], rows["math-verify, tag"], strict=True)]
    medians = {name: round(statistics.median(values)) for name, values in rows.items()}
    found = {"verdicts_per_second": medians, "ratio": statistics.median(ratios), "ratios": ratios}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
