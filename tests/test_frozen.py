"""A run resumes only as what it began as, or is marked as changed."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from compose import composed
from running import SHORT, run_here, science_of

from pods.cli.main import main
from pods.config.parse import leaves
from pods.runs.attempts import recorded_changes, version_changes
from pods.runs.freeze import Changed, check_unchanged, freeze
from pods.runs.store import RunStore

OTHER = {
    int: lambda v: v + 1, float: lambda v: v / 3 + 0.25, bool: lambda v: not v,
    str: lambda v: v + "x", list: lambda v: v[:-1],
    type(None): lambda v: 7,
}  # fmt: skip
SCIENCE = [name for name, (_, key) in leaves().items() if not key.operational]
PLACES = {"task.path", "task.test_path", "task.system", "model.path", "model.hub",
          "budget.clock", "budget.clock_model"}  # fmt: skip


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
        if not re.search(rf"\n  {re.escape(name)}: .* -> ", message):
            accepted.append(f"{name}: {message}")
        assert store.config_path.read_bytes() == before != original
        store.config_path.write_bytes(original)
    assert accepted == []
    assert freeze(config).config() == config  # what is not edited is not refused


OPERATIONAL = {
    "study": "other", "arm": "pods", "reproduction": None, "runs_dir": None,
    "retry": "failed", "allow_changed": True, "dry_run": None, "watchdog_seconds": 999.0,
    "rollouts_every_steps": None, "task.workers": 1,
    "update.nonfinite_limit": 9, "hardware.name": "other", "hardware.processes": None,
    "engine.min_kept": 0.5, "engine.gap_bound": 0.5, "engine.gap_limit": 9,
    "tracking.wandb": None, "tracking.project": "other", "tracking.entity": "other",
    "tracking.tensorboard": True,
    "evaluation.sets": None, "evaluation.sets_path": None,
    "evaluation.save_completions": True,
    "launch.on": None, "launch.jobs": 1, "launch.fork_server": False,
}  # fmt: skip
"""Another value for each operational key; None: it cannot differ in such a run, since it decides
where its files are or which there are, or that nothing runs, or that several processes do."""


def test_a_run_computes_the_same_whatever_its_operational_keys_say(tmp_path):
    assert set(OPERATIONAL) == {name for name, (_, key) in leaves().items() if key.operational}
    short = ("tracking=none", "budget.max_steps=2", "nm.n=8", "nm.m=4", "evaluation.questions=4",
             "evaluation.repeats=1", "checkpoint.every_steps=null")  # fmt: skip
    others = [f"{name}={value}" for name, value in OPERATIONAL.items() if value is not None]
    one = run_here(*short, f"runs_dir={tmp_path}")
    other = run_here(*short, *others, f"runs_dir={tmp_path}")
    assert one.folder.name == other.folder.name and one.folder != other.folder
    assert science_of(one.folder) == science_of(other.folder)


def test_a_frozen_config_that_is_damaged_is_frozen_again(tmp_path):
    config = composed(f"runs_dir={tmp_path}")
    freeze(config).config_path.write_text("seed: [")
    assert freeze(config).config() == config


def test_operational_keys_follow_the_newest_command(tmp_path):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    edit(store, "tracking.project", lambda value: "mine")
    freeze(composed(f"runs_dir={tmp_path}", "tracking.project=yours"))
    assert store.config().tracking.project == "yours"


def test_data_that_were_edited_are_refused(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n')
    config = composed("task=gsm8k", "model=smollm2_135m", f"task.path={data}",
                      f"runs_dir={tmp_path}")  # fmt: skip
    store = freeze(config)
    assert check_unchanged(store, config) == []
    (data / "test.jsonl").write_text('{"question": "q", "answer": "#### 2"}\n')
    with pytest.raises(Changed, match=r"data: \['.*'\] -> \['.*'\]"):
        check_unchanged(store, config)


def test_a_system_message_that_was_edited_is_refused(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("a")
    config = composed("task=gsm8k", "model=smollm2_135m", f"task.system={file}",
                      f"runs_dir={tmp_path}")  # fmt: skip
    store = freeze(config)
    assert check_unchanged(store, config) == []
    file.write_text("b")
    with pytest.raises(Changed, match=r"system message: .* -> "):
        check_unchanged(store, config)


def test_only_minor_versions_of_decisive_packages_count(monkeypatch):
    versions = {"torch": "2.13.0+cpu", "transformers": "5.19.0", "peft": "0.21.2", "numpy": "2.4"}
    monkeypatch.setattr("pods.runs.attempts._version", versions.get)
    same = {"torch": "2.13.1", "transformers": "5.19.3", "peft": "0.21.0", "numpy": "1.0",
            "vllm": "0.31.0"}  # fmt: skip
    assert version_changes({"packages": same}) == []
    assert version_changes({"packages": {**same, "torch": "2.12.1", "peft": "0.20.2"}}) == [
        "torch: 2.12.1 -> 2.13.0+cpu", "peft: 0.20.2 -> 0.21.2",
    ]  # fmt: skip


def test_a_changed_run_is_refused_by_every_command_and_marked_where_it_is_allowed(
    run_py, tmp_path, monkeypatch, capsys
):
    """From the second step on with another learning rate and, as far as is known, torch."""
    monkeypatch.chdir(tmp_path)
    store = run_here(*SHORT)
    store.set_status(state="preempted")
    edit(store, "update.lr", lambda value: value / 2)
    environment = store.folder / "attempts" / "001" / "environment.json"
    text = json.loads(environment.read_text())
    text["packages"]["torch"] = "1.9.0"
    environment.write_text(json.dumps(text))
    before = {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()}
    refused = run_py(*SHORT)
    assert refused.returncode == 2 and "update.lr: 0.0001 -> 5e-05" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()} == before
    job = subprocess.run(
        [sys.executable, "-m", "pods.launch.job", str(store.folder)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert job.returncode == 1 and "  update.lr: 0.0001 -> 5e-05\n  torch: 1.9.0 -> " in job.stderr
    assert store.status()["state"] == "preempted"
    assert "update.lr: 0.0001 -> 5e-05; torch: 1.9.0 -> " in store.status()["error"]
    swept = run_py("-m", *SHORT)
    assert swept.returncode == 2 and "update.lr: 0.0001 -> 5e-05" in swept.stderr
    run_here(*SHORT, "allow_changed=true")
    assert store.config().update.lr == 5e-5  # the frozen config runs
    assert [mark.partition(":")[0] for mark in recorded_changes(store)] == ["update.lr", "torch"]
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert "changed: update.lr: 0.0001 -> 5e-05, torch: 1.9.0 -> " in said
    assert main(["aggregate"]) == 2
    assert "seed 0: changed during the run: update.lr" in capsys.readouterr().err
    assert main(["aggregate", "--allow-mixed"]) == 0
