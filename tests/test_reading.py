"""The small files of a run folder are decoded strictly; a damaged one is one line in every verb."""

import json

import pytest
from compose import composed
from rows import every

from pods.cli.main import main
from pods.runs.attempts import new_attempt, recorded_changes, wall_seconds
from pods.runs.freeze import freeze
from pods.runs.records import Damaged, Status, parse_yaml, read_json

BAD_JSON = {
    "empty": b"", "cut off": b'{"state": ', "no object": b"[1, 2]", "deep": b"[" * 200_000,
    "infinite": b'{"state": "done", "train_seconds": 1e400}',
    "not a number": b'{"state": "done", "train_seconds": NaN}', "no UTF-8": b'{"state": "\xff"}',
    "another type": b'{"state": "done", "step": "1"}', "no state": b'{"step": 1}',
    "a truth value": b'{"state": "done", "step": true}', "unknown": b'{"state": "dancing"}',
    "heartbeat": b'{"state": "running", "heartbeat": "x"}',
}  # fmt: skip
BAD_YAML = {
    "no mapping": b"- 1", "a number for a key": b"1: 2", "nothing": b"", "not YAML": b"seed: [",
    "a tag": b"!!python/object/apply:os.system ['true']", "no UTF-8": b"a: \xff",
}  # fmt: skip


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
    for name in ("phases.json", "environment.json"):
        contents = (b"[1]", b'{"start": 5}', b"{", b'{"start": {"seconds": "x"}}')
        rows += [(f"attempts/{attempt.name}/{name}", content) for content in contents]

    def check(name, content):
        path = first.folder / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        try:
            for verb in ("status", "clean", "plot --tables", "evaluate"):
                code = main(verb.split())
                shown = capsys.readouterr()
                assert "Traceback" not in shown.err and code in (0, 1, 2), (verb, shown.err)
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
    assert wall_seconds(store) == 3.0
    (store.folder / "changes.json").write_text(json.dumps(["torch: 1 -> 2"]))
    assert recorded_changes(store) == ["torch: 1 -> 2"]
