"""The small files of a run folder are decoded strictly; a damaged one is one line in every verb."""

import errno
import gzip
import json
import os
from unittest.mock import Mock

import pytest
from compose import composed
from rows import every

from pods.cli.main import main
from pods.runs import records
from pods.runs.attempts import environments, new_attempt, recorded_changes
from pods.runs.freeze import freeze
from pods.runs.records import Damaged, Data, Status, parse_yaml, read, read_json
from pods.runs.store import RunStore

BAD_JSON = {
    "empty": b"", "cut off": b'{"state": ', "no object": b"[1, 2]",
    "infinite": b'{"state": "done", "train_seconds": 1e400}',
    "not a number": b'{"state": "done", "train_seconds": NaN}', "no UTF-8": b'{"state": "\xff"}',
    "deep": b"[" * 100_000,
    "another type": b'{"state": "done", "step": "1"}', "no state": b'{"step": 1}',
    "a truth value": b'{"state": "done", "step": true}', "unknown": b'{"state": "dancing"}',
    "heartbeat": b'{"state": "running", "heartbeat": "x"}'}  # fmt: skip
BAD_YAML = {
    "no mapping": b"- 1", "a number for a key": b"1: 2", "nothing": b"", "not YAML": b"seed: [",
    "a tag": b"!!python/object/apply:os.system ['true']", "no UTF-8": b"a: \xff"}  # fmt: skip


def test_a_status_has_the_right_types_or_is_damaged(tmp_path):
    path = tmp_path / "status.json"

    def check(name):
        path.write_bytes(BAD_JSON[name])
        with pytest.raises(Damaged, match=r"status\.json is damaged: ") as error:
            read_json(path, Status)
        assert "\n" not in str(error.value) and len(str(error.value)) < 300 + len(str(path))

    every(((name,) for name in BAD_JSON), check)
    path.write_text('{"state": "done", "step": 3, "heartbeat": 1}')
    assert read_json(path, Status) == {"state": "done", "step": 3, "heartbeat": 1.0}
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", Status)
    for content in ("", "[]", "{}", '{"train": {"sha256": "a"}}', '{"train": 1, "test": 1}',
                    '{"train": {"sha256": 1}, "test": {"sha256": 2}}'):  # fmt: skip
        path.write_text(content)
        with pytest.raises(Damaged, match=r"status\.json is damaged: "):
            read_json(path, Data)


def test_a_config_is_a_mapping_without_tags():
    for content in BAD_YAML.values():
        with pytest.raises(ValueError, match=r"."):
            parse_yaml(content)
    assert parse_yaml(b"seed: 0\nnm: {n: 4, m: 2}\n") == {"seed": 0, "nm": {"n": 4, "m": 2}}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Two runs that have begun; the first is to be damaged."""
    monkeypatch.chdir(tmp_path)
    stores = [freeze(composed(f"seed={seed}", "tracking=none")) for seed in range(2)]
    for store in stores:
        store.set_status(state="preempted", step=1, train_seconds=1.0, host="elsewhere")
    return stores


def test_a_bad_small_file_is_one_line_about_its_run_in_every_verb(study, capsys):
    (first, _), rows = study, []
    attempt = new_attempt(first)
    rows += [("status.json", content) for content in BAD_JSON.values()]
    rows += [("config.yaml", content) for content in BAD_YAML.values()]
    rows += [("config.yaml", first.config_path.read_bytes() + b"arm: \"=cmd|'/c calc'!A1\"\n")]
    rows += [("changes.json", content) for content in (b"5", b"garbage", b'["a", 1]')]
    rows += [("identity.json", content) for content in (None, b"", b"[1]", b"{}")]
    for name in ("phases.json", "environment.json"):
        contents = (b"[1]", b'{"start": 5}', b"{", b'{"start": {"seconds": "x"}}')
        rows += [(f"attempts/{attempt.name}/{name}", content) for content in contents]

    def check(name, content):
        path = first.folder / name
        before = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        try:
            for verb in ("status default", "clean", "plot --tables"):
                code = main(verb.split())
                shown = capsys.readouterr()
                assert "Traceback" not in shown.err and code in (0, 1, 2), (verb, shown.err)
                if verb == "status default":
                    said = shown.out
                    assert len(said.splitlines()) == 3 and "preempted" in said
                    assert name != "status.json" or "lost" in said
                    assert name.startswith("attempts/") or "damaged: " in said or (
                        "arm=" in said or "cannot be read" in said), said  # fmt: skip
        finally:
            path.unlink(missing_ok=True)
            if before is not None:
                path.write_bytes(before)

    every(rows, check)


def test_a_run_that_cannot_be_locked_is_a_line_and_may_be_done(study, capsys, monkeypatch):
    def lock(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self.folder / ".lock"))

    removed = study[0].folder.with_name("seed7-0123456789")
    removed.mkdir()
    (removed / ".lock").touch()  # with nothing else it is no run
    removed.with_name("seed8-0123456789").mkdir()  # nor with nothing at all
    study[0].set_status(state="done", step=9, train_seconds=99.0)
    monkeypatch.setattr(RunStore, "lock", lock)
    assert main(["clean", "--yes", "--state", "preempted"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("(cannot be read: " in line for line in lines[:2])
    assert freeze(composed("seed=0", "tracking=none")) == study[0]
    with pytest.raises(PermissionError):
        freeze(composed("seed=1", "tracking=none"))
    monkeypatch.setattr("pods.runs.store.read_json", Mock(side_effect=PermissionError("no")))
    assert study[0].status() == {"state": "lost", "error": "no"}


def test_a_file_that_is_badly_packed_is_named(tmp_path):
    packed = gzip.compress(bytes(200))
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    assert read(path) == bytes(200)
    for content in (b"", packed[:-1], packed[:5], packed[:-8] + bytes(8), b"x" + packed):
        path.write_bytes(content)
        with pytest.raises(Damaged, match=r"a\.gz is damaged: "):
            read(path)


def test_what_would_fill_the_memory_or_never_end_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LIMIT", 1000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "long").write_bytes(bytes(1001))
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1001)))
    for name, why in {"pipe": "it is no file", "device": "it is no file",
                      "long": "it has more than 1,000 bytes",
                      "bomb.gz": "it holds more than 1,000 bytes"}.items():  # fmt: skip
        with pytest.raises(Damaged, match=rf"{name} is damaged: {why}$"):
            read(tmp_path / name)

    for name, content in {"long": bytes(1000), "bomb.gz": gzip.compress(bytes(1000))}.items():
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name) == bytes(1000)


def test_damaged_files_of_an_attempt_are_skipped(study):
    store = study[0]
    for content in ('{"cpu": "A"}', '{"cpu": 5}', "[1]", "", '{"cpu": "B"}'):
        (new_attempt(store) / "environment.json").write_text(content)
    assert environments(store)[-2:] == [{"cpu": "A"}, {"cpu": "B"}]
    (store.folder / "changes.json").write_text(json.dumps(["torch: 1 -> 2"]))
    assert recorded_changes(store) == ["torch: 1 -> 2"]
