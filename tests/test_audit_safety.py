"""`pods audit` reads a stranger's folder safely: what cannot be read is a line, nothing hangs."""

import gzip
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_files import write_rows

from pods_lab.audit import formats, trackers
from pods_lab.audit.mapping import NAMES
from pods_lab.audit.readers import Reading
from pods_lab.audit.readers import read as read_logs

ROWS = [{"step": step, "accuracy": 0.5} for step in (1, 2)]
ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one good log, which is read whatever lies beside it."""
    write_rows(tmp_path / "runs" / "good.jsonl", ROWS)
    return tmp_path / "runs"


def read(folder: Path) -> Reading:
    found = read_logs([folder], NAMES["step"])
    assert "good" in [log.name for log in found.logs]
    return found


def said(found: Reading) -> dict[str, str]:
    """What is said of each file or folder that was left out, by its name."""
    pairs = [line.partition(": ") for line in found.left_out]
    return {os.path.basename(path): reason for path, _, reason in pairs}


NO_FILE = "is no file, but a pipe, a socket or a device"


def test_pipes_devices_dead_links_and_giants_are_a_line_each(runs):
    for name in ("a.csv", "b.jsonl", "c.db", "d.wandb", "events.out.tfevents.1"):
        os.mkfifo(runs / name)
    (runs / "zeros.csv").symlink_to("/dev/zero")
    (runs / "dead.jsonl").symlink_to("nothing")
    (runs / "circle.csv").symlink_to("circle.csv")
    with (runs / "giant.jsonl").open("wb") as file:
        file.truncate(10 * formats.LIMIT)
    lines = said(read(runs))
    assert len(lines) == 9
    assert [NO_FILE in lines[name] for name in ("a.csv", "b.jsonl", "c.db", "d.wandb")] == [
        True
    ] * 4
    assert NO_FILE in lines["events.out.tfevents.1"]
    assert "a link to another place" in lines["zeros.csv"]
    assert "is a link to nothing" in lines["dead.jsonl"]
    assert "more than 1,073,741,824 bytes" in lines["giant.jsonl"]


def test_a_packed_log_is_read_to_a_limit_and_a_damaged_one_is_named(runs, monkeypatch):
    monkeypatch.setattr(formats, "LIMIT_UNPACKED", 10_000)
    bomb = gzip.compress(bytes(10_000_000))
    (runs / "bomb.jsonl.gz").write_bytes(bomb)
    (runs / "cut.csv.gz").write_bytes(gzip.compress(b"step,accuracy\n1,0.5\n")[:-9])
    (runs / "text.csv.gz").write_text("step,accuracy\n1,0.5\n")  # packed by its name alone
    found = read(runs)
    lines = said(found)
    assert "more than 10,000 bytes once unpacked" in lines["bomb.jsonl.gz"]
    assert "is damaged" in lines["cut.csv.gz"] and len(lines) == 2
    assert [log.name for log in found.logs] == ["good", "text"]


def database(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as base:
        base.execute("create table configs(run_id, config)")
        for statement in statements:
            base.execute(statement)
    base.close()


TABLE = "create table metrics(id integer primary key, run_id, run_name, timestamp, step, metrics)"
METRICS = "insert into metrics values (1, 'r1', null, '2026', 3, '{\"a\": {\"b\": 1}}')"
ENDLESS = """create view metrics as with recursive r(id) as
    (select 1 union all select id + 1 from r)
    select id, 'r' run_id, 'n' run_name, '2026' timestamp, id step, '{}' metrics from r"""
MANY = """insert into metrics with recursive r(id) as (select 1 union all select id + 1 from r
    where id < 50000) select id, 'r', 'n', '2026', id, '{}' from r"""


def test_a_database_that_is_odd_is_read_or_is_a_line(runs, monkeypatch):
    database(runs / "nameless.db", TABLE, METRICS)
    database(runs / "endless.db", ENDLESS)
    database(runs / "other.db", "create table users(name)")
    found = read(runs)
    lines = said(found)
    assert "has no table metrics" in lines["endless.db"] and "no table" in lines["other.db"]
    [log] = [log for log in found.logs if log.name == "r1"]
    assert log.rows == [{"step": 3, "timestamp": "2026", "a/b": 1}] and len(lines) == 2
    (runs / "nameless.db").unlink()
    database(runs / "long.db", TABLE, MANY)
    monkeypatch.setattr(trackers, "QUERY_SECONDS", -1)
    assert "takes more than -1 s to read" in said(read(runs))["long.db"]


def test_no_terminal_obeys_a_name(runs):
    names = [os.fsdecode(b"caf\xe9-seed0"), f"{ESCAPE}-seed1", "two\nlines"]
    for name in names:
        row = {"step": 1, f"acc{ESCAPE}": 0.5, "method": f"m{ESCAPE}", "note": "a\nb\x1b[31m"}
        write_rows(runs / f"{name}.jsonl", [row])
        write_rows(runs / name / "broken.csv", [])
    found = read(runs)
    texts = [text for log in found.logs for text in (log.name, str(log.path))]
    texts += found.left_out + found.notes
    texts += [text for log in found.logs for text in (*log.columns, *log.config.values())]
    texts += [str(cell) for log in found.logs for row in log.rows for cell in row.values()]
    assert [text for text in texts if not text.isprintable()] == []
    assert len(found.logs) == 4 and len(found.left_out) == 3
    assert r"caf\udce9-seed0" in [log.name for log in found.logs]


def test_links_out_of_the_folder_are_followed_to_logs_alone(runs, tmp_path):
    (tmp_path / "passwd").write_text("root:x:0:0:step,word\nsecret,secret\n")
    write_rows(tmp_path / "elsewhere" / "a.jsonl", ROWS)
    (runs / "passwd.csv").symlink_to(tmp_path / "passwd")
    (runs / "linked.jsonl").symlink_to(tmp_path / "elsewhere" / "a.jsonl")
    (runs / "folder").symlink_to(tmp_path / "elsewhere")
    (runs / "latest").symlink_to(runs)
    found = read(runs)
    assert [log.name for log in found.logs] == ["good", "linked"]
    lines = found.left_out + found.notes
    assert lines[0] == f"{runs / 'folder'}: a link, which is not followed"
    assert len(lines) == 2 and lines[1].endswith("it is a link to another place, and no log")
    assert "root:x" not in str(lines) and "word" not in str(lines)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder in folders, 3,000 deep: a path is longer than a system call takes."""
    before = os.getcwd()
    os.chdir(tmp_path)
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(before)
    yield tmp_path
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_folders_of_any_depth_are_walked_and_one_that_cannot_be_listed_is_said(deep):
    write_rows(deep / "good.jsonl", ROWS)
    write_rows(Path(deep, *["d"] * 1500, "b-seed1.jsonl"), ROWS)
    found = read(deep)
    assert len(found.logs) == 2
    [line] = found.left_out
    assert line.endswith("/d/d: File name too long") and len(line) < 400


def test_steps_that_are_no_steps_end_nothing(runs):
    huge = [{"step": 10**400, "accuracy": 0.5}, {"step": 1e308, "accuracy": 10**400}]
    write_rows(runs / "huge.jsonl", huge)
    (runs / "longer.jsonl").write_text('{"step": 1' + "0" * 5000 + "}\n" + '{"step": 1}\n')
    (runs / "nested.jsonl").write_text(
        '{"step": 1, "a": ' + '{"a":' * 5000 + "1" + "}" * 5001 + "\n"
    )
    (runs / "printed.log").write_text("step:" + "9" * 5000 + " - acc:0.5\nstep:1 - acc:0.5\n")
    found = read(runs)
    logs = {log.name: log for log in found.logs}
    assert logs["huge"].rows == huge and logs["printed"].rows == [{"step": 1, "acc": 0.5}]
    assert logs["longer"].rows == [{"step": 1}] and len(logs["longer"].faults) == 1
    assert list(said(found)) == ["nested.jsonl"]


def test_what_is_no_log_is_counted_and_is_no_missing_run(runs):
    for name in ("checkpoint-9/model.safetensors", "checkpoint-9/optimizer.pt", "README.md"):
        path = runs / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 40)
    (runs / "config.json").write_text('{"model_type": "llama", "architectures": ["A"]}')
    (runs / "install.log").write_text("installed\n")
    write_rows(runs / "data" / "train.jsonl", [{"problem": "1+1", "solution": 2}] * 3)
    (runs / "data" / "train.csv").write_text("problem,solution\n1+1,2\n1+2,3\n")
    found = read(runs)
    assert found.left_out == []
    assert [line.partition(": ")[2] for line in found.notes[:2]] == [
        f"not read as {kind}: no step column among problem, solution (--map FILE with "
        "step: [X], or if each row is the final score of a run: --by column:NAME)"
        for kind in ("CSV", "JSON lines")
    ]
    assert found.notes[2] == "5 files are no logs: 1 .md, 1 .safetensors, 1 .pt, 1 .json, 1 .log"
    with pytest.raises(ValueError, match=r"train.csv: not read as CSV: no step column"):
        read_logs([runs / "data" / "train.csv"], NAMES["step"])


def test_what_pods_wrote_is_no_log(runs):
    for folder, names in {
        "pods-audit": ("audit.json", "report.html", "runs.csv", "curves.csv"),
        "figures": ("accuracy_vs_time.csv", "accuracy_vs_time.runs.csv", "accuracy_vs_time.json"),
        "seed0-1234567890": ("identity.json", "metrics.jsonl"),
    }.items():
        for name in names:
            write_rows(runs / folder / name, ROWS)
            write_rows(runs / folder / "over_steps" / name, ROWS)
    found = read(runs)
    assert [log.name for log in found.logs] == ["good"] and found.left_out == []
    kinds = ("pages of pods audit", "folders of figures of pods", "runs of pods (see pods compare)")
    assert [kind in found.notes[0] for kind in kinds] == [True] * 3


def test_thousands_of_runs_in_one_file_are_read_in_one_go(runs):
    rows = [{"run": f"m{run % 2}-seed{run // 2}", "step": step, "accuracy": 0.5}
            for step in range(5) for run in range(3000)]  # fmt: skip
    write_rows(runs / "all.jsonl", rows)
    found = read(runs)
    assert found.formats["JSON lines"] == 3001
    assert {len(log.rows) for log in found.logs} == {2, 5}


def test_a_folder_that_is_named_twice_is_read_once(runs, monkeypatch):
    monkeypatch.chdir(runs)
    paths = [runs, Path("."), runs / "good.jsonl"]
    assert [len(log.rows) for log in read_logs(paths, NAMES["step"]).logs] == [2]
