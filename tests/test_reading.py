"""A damaged or malicious small file of a run folder is one line in every verb."""

import json
import os

import pytest
from compose import composed
from rows import every

from pods.cli.main import main
from pods.runs.attempts import new_attempt, peak_bytes, recorded_changes, wall_seconds
from pods.runs.freeze import freeze
from pods.runs.reading import Damaged, read_bytes, read_json, read_object, read_yaml

BOMB = "study:\n  a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {name}: &{name} [*{before}, *{before}, *{before}, *{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)
HOSTILE_JSON = {
    "empty": b"", "cut off": b'{"a": ', "no object": b"[1, 2]", "deep": b"[" * 200_000,
    "closed and deep": b"[" * 400 + b"]" * 400, "infinite": b'{"step": 1e400}',
    "not a number": b'{"step": NaN}', "many digits": b'{"step": 1' + b"0" * 5000 + b"}",
    "no UTF-8": b'{"state": "\xff"}', "control characters": b'{"state": "\x1b"}',
    "large": b'{"state": "' + b"a" * 70_000 + b'"}', "another type": b'{"step": "1"}',
    "a truth value": b'{"step": true}', "no state": b'{"state": "dancing"}',
    "heartbeat": b'{"state": "running", "heartbeat": "x"}',
}  # fmt: skip
HOSTILE_YAML = {
    "deep flow": b"[" * 100_000, "deep blocks": b"- " * 30_000, "aliases": BOMB.encode(),
    "large": b"# " + b"a" * 70_000, "no mapping": b"- 1", "a number for a key": b"1: 2",
    "a tag": b"!!python/object/apply:os.system ['true']", "no UTF-8": b"a: \xff",
    "nothing": b"", "not YAML": b"seed: [",
}  # fmt: skip


def test_json_is_an_object_of_the_right_types_or_damaged(tmp_path):
    path = tmp_path / "status.json"
    may = {"state": (str,), "step": (int,), "heartbeat": (int, float)}

    def check(name):
        path.write_bytes(HOSTILE_JSON[name])
        if name == "no state":  # a type cannot tell
            assert read_object(path, {}, may) == {"state": "dancing"}
            return
        with pytest.raises(Damaged, match=r"status\.json is damaged: ") as error:
            read_object(path, {}, may)
        assert "\n" not in str(error.value) and len(str(error.value)) < 300 + len(str(path))

    every(((name,) for name in HOSTILE_JSON), check)
    path.write_text('{"state": "done", "step": 3, "heartbeat": 1.5, "more": null}')
    assert read_object(path, {"state": (str,)}, may)["step"] == 3
    with pytest.raises(Damaged, match="it has no accuracy"):
        read_object(path, {"accuracy": (float,)})
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none")


def test_yaml_has_no_alias_no_tag_and_is_not_deep(tmp_path):
    path = tmp_path / "config.yaml"

    def check(name):
        path.write_bytes(HOSTILE_YAML[name])
        with pytest.raises(Damaged, match=r"config\.yaml is damaged: "):
            read_yaml(path)

    every(((name,) for name in HOSTILE_YAML), check)
    path.write_text("seed: 0\nnm: {n: 4, m: 2}\n")
    assert read_yaml(path) == {"seed": 0, "nm": {"n": 4, "m": 2}}


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # blocks whoever opens it
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", "."):
        with pytest.raises(Damaged, match="it is not a regular file"):
            read_bytes(tmp_path / name, 10)


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
    rows += [("status.json", content) for content in HOSTILE_JSON.values()]
    rows += [("config.yaml", content) for content in HOSTILE_YAML.values()]
    rows += [("config.yaml", first.config_path.read_bytes() + b"arm: \"=cmd|'/c calc'!A1\"\n"),
             ("config.yaml", first.config_path.read_bytes().replace(
                 b"arm: null", b'arm: "\\e]0;title\\a"'))]  # fmt: skip
    rows += [("changes.json", content) for content in (b"5", b"garbage", b'["a", 1]')]
    for name in ("phases.json", "environment.json"):
        contents = (b"[1]", b'{"start": 5}', b"{", b'{"start": {"seconds": "x"}}')
        rows += [(f"attempts/{attempt.name}/{name}", content) for content in contents]

    def check(name, content):
        path = first.folder / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        try:
            for verb in ("status", "clean", "aggregate", "evaluate"):
                code = main([verb])
                shown = capsys.readouterr()
                assert "Traceback" not in shown.err and code in (0, 1, 2), (verb, shown.err)
                assert "\x1b" not in shown.out + shown.err
                if verb == "status":
                    lines = shown.out.splitlines()
                    assert len(lines) == 3 and "preempted" in lines[2]
                    assert name.startswith("attempts/") or "damaged" in lines[1] or (
                        "arm=" in lines[1] or "cannot be read" in lines[1]), lines[1]  # fmt: skip
        finally:
            path.unlink()
            if before is not None:
                path.write_bytes(before)

    every(rows, check)


def test_damaged_files_of_an_attempt_are_skipped(study):
    store = study[0]
    for content in ('{"start": {"seconds": 2.0, "peak_bytes": 7}}', '{"start": {"seconds": 1}}',
                    '{"start": 5, "update": {"seconds": 1e400}}', "[1]"):  # fmt: skip
        (new_attempt(store) / "phases.json").write_text(content)
    assert wall_seconds(store) == 3.0 and peak_bytes(store) == {"start": 7}
    (store.folder / "changes.json").write_text(json.dumps(["torch: 1 -> 2"]))
    assert recorded_changes(store) == ["torch: 1 -> 2"]


def test_escapes_in_an_error_are_shown_as_text(study, capsys):
    study[0].set_status(error="\x1b[2J\x1b]0;mine\x07 of \u202ereversed")
    assert main(["status"]) == 1
    assert r"\x1b[2J\x1b]0;mine\x07 of \u202ereversed" in capsys.readouterr().out
