"""Real adversarial answers, graded in every form by a process whose memory is measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compose import ROOT

GRADE_ALL = """
import dataclasses, json, resource, sys, time
from compose import composed
from mathgrade import number
from pods.tasks.grading.lenient import lenient
from pods.tasks.rewards import math_grader, number_grader

def peak(who):  # MB
    return resource.getrusage(who).ru_maxrss / 1024

gsm8k, math = (composed(f"task={name}", "model=qwen2_5_0_5b").task for name in ("gsm8k", "math"))
graders = {}
for form in ("tag", "hash", "boxed"):
    maths = math_grader(dataclasses.replace(math, answer_format=form))
    numbers = number_grader(dataclasses.replace(gsm8k, answer_format=form))
    graders[form] = {True: numbers.grade, False: maths.grade}
    # start the workers
    maths.grade("\\\\boxed{\\\\sqrt{8}}<answer>\\\\sqrt{8}</answer>", "2\\\\sqrt{2}")
before, out = peak(resource.RUSAGE_SELF), []
for line in open(sys.argv[1]):
    row = json.loads(line)
    numeric, results = number(row["gold"]) is not None, {}
    for form in graders:
        start = time.perf_counter(), time.thread_time()
        verdict = graders[form][numeric](row["text"], row["gold"]).verdict
        results[form] = verdict, time.perf_counter() - start[0], time.thread_time() - start[1]
        lenient(row["text"], row["gold"], "release")
    out.append((row["id"], numeric, results))
print(json.dumps({"rows": out, "grown": peak(resource.RUSAGE_SELF) - before}))
"""


@pytest.mark.realdata
def test_no_settled_answer_is_graded_wrong_slow_large_or_executed(tmp_path):
    path = Path(os.environ["PODS_REALDATA"]) / "adversarial_answers.jsonl"
    rows = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}
    folder = tmp_path / "empty"
    folder.mkdir()
    search_path = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src")])
    output = subprocess.check_output(
        [sys.executable, "-c", GRADE_ALL, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": search_path},
    )
    result = json.loads(output)
    errors = []
    for name, numeric, results in result["rows"]:
        row = rows[name]
        own = "tag" if "<answer>" in row["text"] else "boxed"
        for form, (verdict, wall, cpu) in results.items():
            assert (cpu < 0.1) if numeric else (wall < 30), (name, form, wall, cpu)
            right = verdict == "right"
            missed = row["expected"] and form == own and not right
            if not row["debatable"] and (missed or (right and not row["expected"])):
                errors.append((name, form, verdict, row["why"]))
    assert len(result["rows"]) == len(rows) > 0 and not errors
    assert result["grown"] < 512
    assert not list(folder.iterdir())
