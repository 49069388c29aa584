"""`pods status` and `pods clean`."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from compose import composed

from pods.cli.main import WATCH_SECONDS, main
from pods.runs import checkpoint
from pods.runs.attempts import new_attempt, set_queued, wall_seconds
from pods.runs.freeze import freeze
from pods.runs.history import newest_checkpoint
from pods.runs.status import state_of, statuses
from pods.runs.store import OPTIMIZER


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs in every state, by state; each has a checkpoint and something left half-written."""
    monkeypatch.chdir(tmp_path)
    stores = {}
    for seed, state in enumerate(("done", "preempted", "lost", "failed", "running")):
        store = stores[state] = freeze(composed(f"seed={seed}"))
        checkpoint.commit(store.checkpoint(0), partial(fill, store))
        (store.folder / "status.json.tmp123").write_text("{")
        store.set_status(state=state, step=seed, train_seconds=1.5 * seed, host="elsewhere")
        store.set_status(accuracy=0.5, error="ValueError: x" if state == "failed" else None)
    measured(stores["done"], generate=7, update=4)
    measured(stores["done"], generate=6, update=5)
    return stores


def measured(store, **peaks):
    phases = {name: {"seconds": 1.0, "peak_bytes": peak} for name, peak in peaks.items()}
    text = json.dumps({**phases, "other": {"seconds": 1.0}})
    (new_attempt(store) / "phases.json").write_text(text)


def fill(store, folder):
    (folder / "policy").write_bytes(b"0" * 1000)
    (folder / OPTIMIZER).write_bytes(b"0" * 2000)
    store.write_clock(folder, 0, 0.0, True)


def test_status_prints_one_line_per_run_and_returns_an_exit_code(study, capsys):
    assert main(["status"]) == 1
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "arm", "n→m", "seed", "state", "step", "train", "/", "budget", "accuracy",
    ]  # fmt: skip
    assert lines[3].split() == [
        "max_variance", "64→16", "3", "failed", "3", "4.5", "/", "30", "s", "0.500",
        "ValueError:", "x",
    ]  # fmt: skip
    assert main(["status", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in rows] == list(study)
    assert rows[0]["peak_bytes"] == {"generate": 7, "update": 5, "other": 0}
    assert wall_seconds(study["done"]) == 6.0  # two attempts of 1 s to generate, update, and else
    for state in ("failed", "lost"):
        study[state].set_status(state="done", error=None)
    assert main(["status"]) == 0


def test_one_run_that_cannot_be_read_does_not_hide_the_others(study, capsys):
    study["done"].config_path.write_text("seed: [")
    (study["preempted"].folder / "status.json").write_text("")  # as a power cut can leave it
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 5
    assert "config.yaml is damaged" in lines[0] and str(study["done"].folder) in lines[0]
    assert "lost" in lines[1] and "status.json is damaged: it is empty" in lines[1]


def test_status_loads_no_heavy_library(study):
    code = (
        "import sys\nfrom pods.cli import main\nmain.main(['status'])\n"
        "print(*sorted({'torch', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, check=True)
    assert out.stdout.splitlines()[-1] == b""


def test_peak_memory_is_in_json_only(study):
    folders = [store.folder for store in study.values()]
    assert "peak_bytes" not in statuses(folders)[0]
    assert statuses(folders, memory=True)[0]["peak_bytes"]["generate"] == 7


def test_watching_ends_when_no_run_is_running(study, capsys, monkeypatch):
    """Twice in a row: a sweep's next job takes a moment to begin."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            study["running"].set_status(state="done")

    monkeypatch.setattr("pods.cli.main.time", SimpleNamespace(sleep=sleep))
    assert main(["status", "--watch"]) == 1
    tables = capsys.readouterr().out.split("arm ")[1:]
    assert waits == [WATCH_SECONDS] * 4
    assert ["running" in table for table in tables] == [True] * 3 + [False] * 2


def test_clean_lists_first_and_removes_what_no_run_needs(study, capsys):
    everything = {path for store in study.values() for path in store.folder.rglob("*")}
    assert main(["clean"]) == 0
    assert "--yes removes it" in capsys.readouterr().out
    assert {path for store in study.values() for path in store.folder.rglob("*")} == everything
    assert main(["clean", "--yes"]) == 0
    gone = {path for path in everything if not path.exists()}
    temporary = {store.folder / "status.json.tmp123" for store in study.values()}
    assert gone == temporary - {study["running"].folder / "status.json.tmp123"} | {
        study["done"].checkpoint(0) / OPTIMIZER
    }
    assert checkpoint.damage(study["done"].checkpoint(0)) is None
    assert newest_checkpoint(study["preempted"], OPTIMIZER)[0] is not None
    capsys.readouterr()
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == "0.00 MB can be removed; --yes removes it\n"


def test_runs_are_removed_only_by_their_state_and_never_while_they_run(study, capsys):
    half = study["failed"].folder.parent / "seed9-0123456789.trash"
    shutil.copytree(study["done"].folder, half)  # a clean that was killed
    with study["lost"].lock():
        assert main(["clean", "--state", "lost", "--state", "failed", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "run is failed" in out and "run is lost" not in out
    assert not study["failed"].folder.exists() and not half.exists()
    assert all(study[state].config_path.exists() for state in study if state != "failed")
    with pytest.raises(SystemExit):
        main(["clean", "--state", "running"])


def test_status_writes_nothing(study, capsys):
    """Neither a lock nor a heartbeat: the folder may be another user's."""
    before = {p: p.stat().st_mtime_ns for p in study["done"].folder.parent.rglob("*")}
    main(["status"])
    assert {p: p.stat().st_mtime_ns for p in study["done"].folder.parent.rglob("*")} == before


def test_a_run_whose_lock_is_held_is_running_on_whatever_machine(study):
    """A shared disk may show the lock of another machine's job; else the heartbeat decides."""
    store = study["running"]
    status = json.loads((store.folder / "status.json").read_text())
    (store.folder / "status.json").write_text(json.dumps({**status, "heartbeat": 0.0}))
    assert state_of(store) == "lost"
    with store.lock():
        assert state_of(store) == "running"
        assert state_of(store, ours=True) == "lost"


def test_the_cluster_job_of_a_run_is_shown_until_it_runs(study, capsys):
    for store in study.values():
        set_queued(store, "Slurm job 7_1")
    main(["status", "--json"])
    rows = {row["state"]: row["queued"] for row in json.loads(capsys.readouterr().out)}
    assert rows["preempted"] == rows["failed"] == rows["lost"] == "Slurm job 7_1"
    assert rows["running"] is rows["done"] is None
    main(["status"])
    assert capsys.readouterr().out.count("submitted as Slurm job 7_1") == 3
