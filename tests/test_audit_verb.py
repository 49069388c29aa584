"""`pods audit`: what the verb prints and writes, and that it never audits what it wrote."""

import json
import shutil

import pytest
from data_files import write_rows
from foreign_runs import rows_of, study

from pods import audit
from pods.cli.main import main
from pods_lab.audit.findings import check_folder


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """The verb in a folder with six seeds of two methods; returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    for log in study(seconds=lambda method, seed, step: 2.0 * step,
                     tokens=lambda method, seed, step: 64 * step):  # fmt: skip
        (tmp_path / "logs").mkdir(exist_ok=True)
        write_rows(tmp_path / "logs" / f"{log.name}.jsonl", log.rows)

    def run(*words):
        return main(["audit", *words]), *capsys.readouterr()

    return run


def verdict(out):
    return [line for line in out.splitlines() if line.startswith("Over ")]


def test_typed_again_where_it_wrote_it_says_the_same(verb, tmp_path):
    """In the folder of the runs, with another name for the page, and with copies of it."""
    code, out, err = verb(".")
    assert (code, err) == (0, "") and len(verdict(out)) == 6
    assert "is 10." in verdict(out)[0] and "Told apart (paired t test, 6 pairs)" in verdict(out)[0]
    assert "page: pods-audit/report.html" in out
    assert verb(".", "--out", "logs/mine")[0] == 0
    shutil.copytree("pods-audit", "logs/copy of the page")
    shutil.copytree("pods-audit/over_steps", "logs/steps")
    for name in ("runs.csv", "curves.csv", "audited_runs.csv", "accuracy_vs_time.runs.csv"):
        shutil.copy(tmp_path / "pods-audit" / name, tmp_path / "logs" / name)
    code, again, err = verb(".")
    assert (code, err) == (0, "") and verdict(again) == verdict(out)
    assert "tables of pods" in again and "pages of pods audit" in again
    found = audit(tmp_path)
    assert len(found.complete) == 12 and {*found.runs.series} == {"grpo", "pods"}
    code, out, err = verb("pods-audit")
    assert (code, out) == (2, "") and "there is no log" in err


def test_the_folder_of_the_page_is_new_or_that_of_an_audit(verb, tmp_path):
    code, out, err = verb("logs", "--out", "logs")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "out=logs: must be a new folder or that of an audit" in err
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file: must be a folder"):
        check_folder(tmp_path / "file")


def test_page_tables_and_json_say_what_was_taken_of_each_run(verb, tmp_path):
    write_rows(tmp_path / "logs" / "grpo-seed7.jsonl", rows_of("grpo", 7)[:4])
    (tmp_path / "pods-audit.yaml").write_text("questions: 30\nrepeats: 32\n")
    code, out, err = verb("logs", "--target", "0.5")
    assert (code, err) == (0, "")
    said = ("mapping: pods-audit.yaml", "questions: 30 (given)", "unit: share (proposed)", " 50 % ",
            "of up to 8.", "binomial standard error of 1.", "grpo: the best of 10")  # fmt: skip
    assert [text for text in said if text not in out] == []

    folder = tmp_path / "pods-audit"
    tables = {"compare.csv", "compare.arms.csv", "compare.speedup.csv", "runs.csv", "curves.csv"}
    others = {"report.html", "left_out.csv", "audit.json", "audited_runs.csv"}
    assert {path.name for path in folder.iterdir()} > tables | others
    assert {path.name for path in (folder / "over_steps").iterdir()} > tables

    page = (folder / "report.html").read_text()
    assert "Over seconds: Told apart (paired t test, 6 pairs" in page
    assert page.count("<figure>") == 5
    found = json.loads(verb("logs", "--json")[1])
    assert [*found["over"]] == ["seconds", "steps", "tokens"]
    runs = {run["run"]: run for run in found["runs"]}
    assert len(runs) == 13 and runs["pods-seed5"] == {
        "run": "pods-seed5", "file": "logs/pods-seed5.jsonl", "method": "pods", "seed": 5,
        "score": "accuracy", "unit": "share", "axes": "seconds, steps, tokens", "first_step": 10.0,
        "last_step": 100.0, "seconds": 200.0, "left_out": "",
    }  # fmt: skip
    why = "is cut off before other runs of its method end (40 of 100 steps)"
    assert runs["grpo-seed7"]["left_out"] == why and runs["grpo-seed7"]["seconds"] is None
    assert found["left_out"] == [f"grpo-seed7: {why}"]
    for text in ("logs/pods-seed5.jsonl", why, "first_step", "share"):
        assert text in page


def test_init_writes_a_mapping_also_if_nothing_is_recognised(verb, tmp_path):
    code, _, _ = verb("logs", "--init")
    lines = (tmp_path / "pods-audit.yaml").read_text().splitlines()
    assert (code, lines[0]) == (0, 'score: "accuracy"  # column that is compared')
    assert lines[15:] == ["# columns of the logs:", '#   "accuracy"', '#   "seconds"', '#   "step"',
                          '#   "tokens"']  # fmt: skip
    assert len(verdict(verb("logs")[1])) == 6
    code, out, err = verb("logs", "--init")
    assert (code, out) == (2, "") and "pods-audit.yaml: exists already" in err

    (tmp_path / "pods-audit.yaml").unlink()
    (tmp_path / "odd").mkdir()
    cells = [f"{run},{row['step']},{row['accuracy']}" for run in "ab" for row in rows_of("grpo", 0)]
    (tmp_path / "odd" / "x.csv").write_text("\n".join(["run,update,quality", *cells]))
    code, out, err = verb("odd")
    assert code == 2 and "no step column among quality, run, update" in err
    code, out, err = verb("odd", "--init")
    assert (code, err) == (0, "") and "score: None (proposed)" in out
    text = (tmp_path / "pods-audit.yaml").read_text()
    assert "score: null  #" in text and '#   "quality"\n#   "run"\n#   "update"\n' in text
    text = text.replace("score: null", "score: quality").replace("step: []", "step: update")
    (tmp_path / "pods-audit.yaml").write_text(text)
    code, out, err = verb("odd")
    assert (code, err) == (0, "") and len(verdict(out)) == 2


def test_bad_input_is_one_line(verb, tmp_path):
    bad = {"colour: red": "colour: must be one of score",
           "score: it": "score=it: no log has this column; there are accuracy",
           "score: 5": "score=5: must be a text",
           "seconds: accuracy\nunit: percent\ntokens: 7": "tokens=7: must be a text",
           "baseline: ppo": "baseline=ppo: must be one of grpo | pods"}  # fmt: skip
    for number, line in enumerate(bad):
        (tmp_path / f"{number}.yaml").write_text(line)
    for words, why in (
        *((["logs", "--map", f"{number}.yaml"], why) for number, why in enumerate(bad.values())),
        (["nothing"], "nothing: no such file or folder"),
        (["logs", "--by", "seed"], "method=seed: must be name, config:KEY"),
        (["logs", "--by", "path:("], "method=path:(: is no regular expression"),
        (["logs", "--map", "logs"], "map=logs: must be a file of keys and values"),
    ):
        code, out, err = verb(*words)
        assert (code, out) == (2, "") and why in err and err.count("\n") == 1
    assert "logs is the only method" in verb("logs", "--by", "path:(logs)")[1]


def test_targets_are_in_the_unit_of_the_scores(verb, tmp_path):
    for path in (tmp_path / "logs").iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        write_rows(path, [row | {"accuracy": 100 * row["accuracy"]} for row in rows])
    assert " 45 % " in verb("logs", "--target", "45")[1]
    code, _, err = verb("logs", "--target", "0.45")
    assert code == 2 and "target=0.45: must be in percent, as the scores are (" in err
    (tmp_path / "own.yaml").write_text("unit: score")
    code, _, err = verb("logs", "--map", "own.yaml", "--target", "45")
    assert code == 2 and "target: must be of a score that is a share or a percent" in err
    out = verb("logs", "--map", "own.yaml")[1]
    assert "units of the score" in out and "to a target" not in out and " points" not in out


@pytest.mark.parametrize("hours", [0, 2])
def test_runs_of_grpo_alone_and_clocks_that_stand_still_have_a_page(verb, tmp_path, hours):
    for path in (tmp_path / "logs").glob("pods*"):
        path.unlink()
    for seed in range(6):
        rows = [row | {"hours": hours * row["step"]} for row in rows_of("grpo", seed)]
        write_rows(tmp_path / "logs" / f"grpo-seed{seed}.jsonl", rows)
    code, out, err = verb("logs")
    assert (code, err) == (0, "") and "grpo is the only method: nothing to compare" in out
    assert "seconds: hours (proposed)" in out


def test_what_may_make_a_verdict_wrong_stands_before_it(verb, tmp_path):
    for seed in range(3):
        write_rows(tmp_path / "logs" / f"pods-seed{seed}.jsonl", rows_of("pods", seed)[:4])
    code, out, err = verb("logs")
    lines = out.splitlines()
    [care] = [line for line in lines if line.startswith("Take care: runs that were cut off")]
    assert (code, err) == (0, "") and "0 of 6 of grpo, 3 of 6 of pods" in care
    assert lines.index(care) < lines.index(verdict(out)[0])
