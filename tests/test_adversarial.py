"""Real adversarial answers: each in a form of its own, in a process whose memory is watched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GRADE_ALL = """
import dataclasses, json, resource, sys, time
from compose import composed
from pods.tasks.grading import math_grader, number_grader
from pods.tasks.lenient import lenient
from pods.tasks.numbers import number

def peak(who):  # MB
    return resource.getrusage(who).ru_maxrss / 1024

gsm8k, math = (composed(f"task={name}", "model=qwen2_5_0_5b").task for name in ("gsm8k", "math"))
graders = {}
for form in ("tag", "hash", "boxed"):
    grade, ahead = math_grader(dataclasses.replace(math, answer_format=form))
    numbers = number_grader(dataclasses.replace(gsm8k, answer_format=form))
    graders[form] = {True: numbers, False: grade}
for form in graders:  # the workers start
    graders[form][False]("\\\\boxed{\\\\sqrt{8}}<answer>\\\\sqrt{8}</answer>", "2\\\\sqrt{2}")
before, out = peak(resource.RUSAGE_SELF), []
for line in open(sys.argv[1]):
    row = json.loads(line)
    numeric, found = number(row["gold"]) is not None, {}
    for form in graders:
        start = time.perf_counter(), time.thread_time()
        verdict = graders[form][numeric](row["text"], row["gold"]).verdict
        found[form] = verdict, time.perf_counter() - start[0], time.thread_time() - start[1]
        lenient(row["text"], row["gold"], "release")
    out.append((row["id"], numeric, found))
print(json.dumps({"rows": out, "grown": peak(resource.RUSAGE_SELF) - before}))
"""


@pytest.mark.realdata
def test_no_settled_answer_is_graded_wrong_slow_large_or_executed(tmp_path):
    path = Path(os.environ["PODS_REALDATA"]) / "adversarial_answers.jsonl"
    rows = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", GRADE_ALL, str(path)],
        cwd=here, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    result = json.loads(done.stdout)
    wrong = []
    for name, numeric, found in result["rows"]:
        row = rows[name]
        own = "tag" if "<answer>" in row["text"] else "boxed"
        for form, (verdict, wall, cpu) in found.items():
            assert (cpu < 0.1) if numeric else (wall < 30), (name, form, wall, cpu)
            right = verdict == "right"
            missed = row["expected"] and form == own and not right
            if not row["debatable"] and (missed or (right and not row["expected"])):
                wrong.append((name, form, verdict, row["why"]))
    assert len(result["rows"]) == len(rows) > 0 and not wrong
    assert result["grown"] < 512
    assert not list(here.iterdir())
