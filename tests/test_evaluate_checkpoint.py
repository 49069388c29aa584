"""One checkpoint is evaluated outside of its run, and its records lie beside the runs."""

import json
import shutil
from pathlib import Path

import pytest
from data_files import write_rows
from running import contents

from pods.cli.main import main


def evaluated(store, capsys, *words):
    """Evaluate, and return what was printed, the records and the summary."""
    assert main(["evaluate", str(store.folder), *words]) == 0
    said = capsys.readouterr().out
    [path] = [line.split()[1] for line in said.splitlines() if line.startswith("records: ")]
    assert str(store.folder) not in path
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return said, records, json.loads(Path(path).with_suffix(".json").read_text())


def test_a_sampled_evaluation_repeats_that_of_the_run(store, capsys):
    before = contents(store.folder)
    said, records, about = evaluated(store, capsys, "--step", "last")
    lines = store.evaluation_path(1).read_text().splitlines()
    answers = [dict(list(record.items())[:-3]) for record in records]  # but asked, gold, completion
    assert answers == [json.loads(line) for line in lines] and len(records) == 16
    right = sum(record["correct"] for record in records)
    assert about["accuracy"] == pytest.approx(right / 16)
    assert (about["questions"], about["repeats"]) == (8, 2)
    assert said.startswith(f"accuracy {right / 16:.3f} ± ")
    assert contents(store.folder) == before


def test_greedy_answers_to_a_file_are_kept_and_graded(store, capsys, tmp_path):
    rows = [{"question": "7+8-4", "answer": 1}, {"question": "2+3+4?", "answer": "8"}]
    file = write_rows(tmp_path / "chains.jsonl", rows)
    words = ("--step", "0", "--on", str(file), "--greedy")
    _, records, about = evaluated(store, capsys, *words)
    assert [record["asked"] for record in records] == ["7+8-4?", "2+3+4?"]
    assert [record["completion"] for record in records] == ["7+8=5;5-4=1;#1", "2+3=5;5+4=9;#9"]
    assert [record["verdict"] for record in records] == ["right", "wrong"]
    assert (about["accuracy"], about["temperature"], about["test_set"]) == (0.5, 0.0, "chains")
    # the shares are 1 and 0, their standard deviation is 0.5 ** 0.5
    assert about["stderr"] == pytest.approx(0.5)


def test_every_file_has_records_of_its_own(store, capsys, tmp_path, monkeypatch):
    """Run and files are named from within a folder, and the two files have one long name."""
    monkeypatch.chdir(store.folder.parent)
    said = set()
    for folder, answer in (("a", "1"), ("b", "2")):
        file = tmp_path / folder / f"{'long' * 60}.jsonl"
        file.parent.mkdir()
        file.write_text(json.dumps({"question": "7+8-4", "answer": answer}) + "\n")
        assert main(["evaluate", store.folder.name, "--on", str(file), "--greedy"]) == 0
        said.add(Path(capsys.readouterr().out.split("records: ")[1].split()[0]))
    assert len(said) == 2 and {path.parents[1] for path in said} == {store.folder.parents[2]}
    shutil.copytree(store.folder, tmp_path / "x" / "y" / store.folder.name)
    monkeypatch.chdir(tmp_path / "x")
    assert main(["evaluate", f"y/{store.folder.name}", "--greedy"]) == 0
    [written] = (tmp_path / "x" / "evaluated").glob("*.jsonl")
    assert str(written) in capsys.readouterr().out
