"""Completions of evaluations are kept on request, change nothing else, and are in the report."""

import gzip
import json

import pytest
from running import run_here

from pods.cli.main import main
from pods.runs.evaluations import EvaluationRecord
from pods.training.completions import Completions
from pods.types import Problem

RUN = ("budget.train_seconds=null", "budget.max_steps=1", "nm.n=4", "nm.m=2", "tracking=none",
       "evaluation.questions=8", "evaluation.repeats=2")  # fmt: skip


def test_they_change_no_record_and_are_in_the_report(tmp_path):
    plain, kept = (
        run_here(*RUN, f"evaluation.save_completions={on}", f"runs_dir={tmp_path / on}")
        for on in ("false", "true")
    )
    records = plain.evaluation_path(1, "").read_bytes()
    assert kept.evaluation_path(1, "").read_bytes() == records
    assert not list(plain.folder.glob("evaluations/*.gz"))
    path = kept.folder / "evaluations" / "step-000001.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    first = [json.loads(line) for line in records.splitlines()][:8]
    for name in ("question", "correct", "verdict", "length"):
        assert [row[name] for row in rows] == [record[name] for record in first]
    assert rows[0]["asked"] == "1-3+1+7?" and rows[0]["gold"] == "6"
    assert main(["report", "--runs-dir", str(tmp_path / "true")]) == 0
    page = (tmp_path / "true/default/figures/report.html").read_text()
    wrong = [row for row in rows if not row["correct"]]
    assert f"{len(wrong)} of 8 wrong" in page and "Answers of the last evaluation" in page
    for row in wrong[:5]:
        assert row["completion"] in page


@pytest.mark.parametrize("damaged", [False, True])
def test_an_evaluation_that_was_cut_off_continues_its_file(tmp_path, damaged):
    problems = [Problem(f"q{k}", ({"role": "user", "content": f"{k}?"},), "1") for k in range(3)]

    def record(k):
        return EvaluationRecord(0, f"q{k}", k == 1, True, None, "right" if k == 1 else "wrong",
                                1, True, 0)  # fmt: skip

    records = tmp_path / "step-000001.jsonl"
    begun = Completions(records, problems, 0)
    begun.texts += ["a", "b"]
    begun.write([record(0), record(1)])  # and was killed before it wrote the second record
    if damaged:
        begun.path.write_bytes(b"x")
    resumed = Completions(records, problems, 1)
    resumed.texts += ["b", "c"]
    resumed.write([record(1), record(2)])
    rows = [json.loads(line) for line in gzip.decompress(resumed.path.read_bytes()).splitlines()]
    assert [row["completion"] for row in rows] == (["b", "c"] if damaged else ["a", "b", "c"])
