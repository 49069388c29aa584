"""`pods status` and `pods clean`."""

import errno
import json
import os
import random
import shutil
import socket
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
from compose import composed
from running import contents
from studies import A, pods, refused, write_run

from pods.analysis.loading.load import load
from pods.cli.main import main
from pods.runs import checkpoint
from pods.runs.attempts import new_attempt, set_queued
from pods.runs.files import remove, size
from pods.runs.freeze import freeze
from pods.runs.history import check_evaluable, newest_checkpoint, roll_back
from pods.runs.records import Damaged
from pods.runs.status import state_of
from pods.runs.store import OPTIMIZER, RunStore, run_folders


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs in every state, by state; each has a checkpoint and something left half-written."""
    monkeypatch.chdir(tmp_path)
    stores = {}
    for seed, state in enumerate(("done", "preempted", "lost", "failed", "running")):
        store = stores[state] = run_in("runs", seed)
        store.set_status(state=state, step=seed, train_seconds=1.5 * seed, host="elsewhere")
        store.set_status(error="ValueError: x" if state == "failed" else None)
    for _ in range(2):
        phases = {name: {"seconds": 1.0} for name in ("generate", "update", "other")}
        (new_attempt(stores["done"]) / "phases.json").write_text(json.dumps(phases))
    return stores


def run_in(folder, seed):
    """A run that is done, with what `pods clean` takes from it."""
    store = freeze(composed(f"seed={seed}", f"runs_dir={folder}"))
    checkpoint.commit(store.checkpoint(0), partial(fill, store))
    (store.folder / "status.json.tmp123").write_text("{")
    store.set_status(state="done", accuracy=0.5)
    return store


def rows_of(name, capsys):
    assert main(["status", name, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def fill(store, folder):
    (folder / "policy").write_bytes(b"0" * 1000)
    (folder / OPTIMIZER).write_bytes(b"0" * 2000)
    store.write_clock(folder, 0, 0.0, True)


def test_status_prints_one_line_per_run_and_returns_an_exit_code(study, capsys):
    folder = study["done"].folder.parent
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert main(["status", "default"]) == 1  # and writes nothing: the folder may be another user's
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    header, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "arm n→m seed state step train / budget accuracy"
    shown = "max_variance 64→16 3 failed 3 4.5 / 30 s 0.500 ValueError: x"
    assert " ".join(lines[3].split()) == shown
    assert [row["state"] for row in rows_of("default", capsys)] == list(study)
    for state in ("failed", "lost"):
        study[state].set_status(state="done", error=None)
    assert main(["status", "default"]) == 0


def test_clean_lists_first_and_removes_what_no_run_needs(study, capsys):
    everything = {path for store in study.values() for path in store.folder.rglob("*")}
    assert main(["clean"]) == 0
    assert "--yes removes it" in capsys.readouterr().out
    assert {path for store in study.values() for path in store.folder.rglob("*")} == everything
    assert main(["clean", "--yes"]) == 0
    gone = {path for path in everything if not path.exists()}
    temporary = {store.folder / "status.json.tmp123" for store in study.values()}
    needed = {study["running"].folder / "status.json.tmp123"}
    assert gone == temporary - needed | {study["done"].checkpoint(0) / OPTIMIZER}
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
    assert (study["done"].checkpoint(0) / OPTIMIZER).exists()
    assert all(study[state].config_path.exists() for state in study if state != "failed")
    with pytest.raises(SystemExit):
        main(["clean", "--state", "running"])


def with_weights(runs_dir: Path, *overrides: str) -> RunStore:
    """Write a finished run whose last checkpoint has weights."""
    store = write_run(runs_dir, A, *overrides)

    def write(folder: Path) -> None:
        store.write_clock(folder, step=2, train_seconds=12.0, evaluation=True)
        (folder / "policy").mkdir()
        (folder / "policy/model.safetensors").write_bytes(b"w" * 1000)

    checkpoint.commit(store.checkpoint(2), write)
    return store


def test_weights_can_be_removed_and_the_numbers_stay(tmp_path, capsys):
    stores = [with_weights(tmp_path, f"arm={arm}") for arm in ("pods", "grpo")]
    lacking = with_weights(tmp_path, "arm=pods", "study=lacking")
    lacking.evaluation_path(2).unlink()
    before = load(tmp_path / "default", run_folders(tmp_path / "default"))
    words = ("--weights", "--runs-dir", tmp_path)
    assert pods("clean", "default", *words) == 0
    assert "0.00 MB can be removed" in capsys.readouterr().out.splitlines()[-1]
    policies = [store.checkpoint(2) / "policy" for store in (*stores, lacking)]
    assert all(path.is_dir() for path in policies)
    for study in ("default", "lacking"):
        assert pods("clean", study, *words, "--yes") == 0
    assert [path.is_dir() for path in policies] == [False, False, True]  # which evaluates it yet
    assert checkpoint.damage(stores[0].checkpoint(2)) is None
    after = load(tmp_path / "default", run_folders(tmp_path / "default"))
    for name in ("runs", "evaluations", "steps"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name))
    folder = stores[0].folder
    line = refused(capsys, "generate", folder, "1+1", "--step", 2)
    assert "--step=2: that checkpoint cannot be used: `pods clean --weights` removed" in line
    with pytest.raises(Damaged, match=r"step 2 cannot be evaluated: .* removed its weights"):
        check_evaluable(stores[0], 2)  # if its answers were lost
    assert "--weights=true: must be given without" in refused(
        capsys, "clean", "default", *words, "--state", "done"
    )
    assert pods("clean", folder, "--weights", "--yes") == 0 and folder.is_dir()


def test_clean_takes_one_run_by_its_folder_or_name(study, capsys):
    folder = study["lost"].folder
    for name in ("seed 2", f"default/{folder.name}", str(folder)):
        assert main(["clean", name]) == 0 and f"{folder}  (run is lost)" in capsys.readouterr().out
    with study["lost"].lock():
        main(["clean", "seed 2", "--yes"])
    for words in (["seed 2", "--state", "done"], [".."], ["/"], [""], ["seed2 pods"]):
        main(["clean", *words, "--yes"])
        assert folder.exists(), words
    assert main(["clean", "seed 2", "--yes"]) == 0
    assert [store.folder.exists() for store in study.values()] == [True, True, False, True, True]


def test_without_a_study_the_studies_are_listed_and_what_varies_in_one_is_a_column(study, capsys):
    freeze(composed("update.lr=0.5"))
    freeze(composed("study=other"))
    assert main(["status"]) == 1
    header, default, other = capsys.readouterr().out.splitlines()
    assert {*header.split()} == {"study", "MB", "last", "change", "pending", *study}
    assert default.split()[-6:] == ["1"] * 6 and sorted(other.split()[-6:]) == [*"000001"]
    assert main(["status", "default"]) == 1
    column = [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert column[0] == "update.lr" and sorted(column[1:]) == ["0.0001"] * 5 + ["0.5"]
    assert sum(row["update.lr"] for row in rows_of("default", capsys)) == 0.5005
    freeze(composed("model=smollm2_135m", "task=gsm8k", "dry_run=true"))
    assert main(["status", "default"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["arm", "n→m", "model-task", "update.lr", "seed"]
    assert {line.split()[2] for line in lines[1:]} == {"tiny-chainsum", "smollm2_135m-gsm8k"}


def test_runs_are_in_the_order_of_what_their_rows_show(tmp_path, monkeypatch, capsys):
    """Arm, keys that vary, and seed, all numbers by size: not in that of their folders' names."""
    monkeypatch.chdir(tmp_path)
    rates = ("0.0001", "0.001", "0.003", "0.01")
    expected = []
    for arm in ("grpo", "pods"):
        for rate in rates:
            expected += [(arm, float(rate), seed) for seed in (2, 10)]
    for arm, rate, seed in random.Random(0).sample(expected, len(expected)):
        freeze(composed(f"arm={arm}", f"update.lr={rate}", f"seed={seed}"))
    damaged = freeze(composed("arm=grpo", "seed=1"))
    damaged.config_path.write_text("{")
    rows = rows_of("default", capsys)
    assert [row["folder"] for row in rows if row["seed"] == "?"] == [str(damaged.folder)]
    readable = [row for row in rows if row["seed"] != "?"]
    assert [(row["arm"], row["update.lr"], row["seed"]) for row in readable] == expected
    main(["status", "default"])
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2:4] for line in lines if "?" not in line] == [
        [str(rate), str(seed)] for _, rate, seed in expected
    ]


def test_a_run_whose_lock_is_held_is_running_on_whatever_machine(study):
    """A shared disk may show the lock of another machine's job; else the heartbeat decides."""
    store = study["running"]
    status = json.loads((store.folder / "status.json").read_text())
    # an age below 0: that machine's clock is ahead
    for age, state in ((1100, "running"), (1300, "lost"), (-1100, "running"), (-1300, "lost")):
        changed = {**status, "heartbeat": time.time() - age}
        (store.folder / "status.json").write_text(json.dumps(changed))
        assert state_of(store) == state
    with store.lock():
        assert state_of(store) == "running"
        assert state_of(store, ours=True) == "lost"
    store.set_status(host=socket.gethostname())  # whose process released the lock, without an end
    assert state_of(store) == "lost"


@pytest.mark.parametrize(
    "error", ["a\nmax_variance 8→4 1 done", "\x1b]0;owned\x07", "a\r\tb", "a \u202eb"]
)
def test_an_error_stays_on_its_line_and_writes_nothing_but_text(study, capsys, error):
    before = main(["status", "default"]), capsys.readouterr().out.splitlines()
    study["failed"].set_status(error=error)
    after = main(["status", "default"]), capsys.readouterr().out.splitlines()
    assert (before[0], len(before[1])) == (after[0], len(after[1]))
    assert all(line.isprintable() for line in after[1])


@pytest.mark.parametrize(("name", "value", "why"), [
    ("heartbeat", 1e308, "<= 100000000000.0"), ("heartbeat", -1, ">= 0.0"),
    ("train_seconds", -1, ">= 0.0"), ("train_seconds", 1e308, "<= 100000000000.0"),
    ("step", -3, ">= 0"), ("skipped_steps", -1, ">= 0"), ("accuracy", 7, "<= 1.0"),
])  # fmt: skip
def test_a_value_that_cannot_be_is_a_damaged_status(name, value, why, study, capsys):
    """It is said, not shown as if it were true; the same command makes the run."""
    path = study["running"].folder / "status.json"
    path.write_text(json.dumps(study["running"].status() | {name: value}))
    [row] = [row for row in rows_of("default", capsys) if row["folder"] == str(path.parent)]
    assert row["state"] == "lost" and (row["step"], row["train_seconds"]) == (0, 0.0)
    assert row["error"].startswith(f"{path} is damaged: Expected ") and f"$.{name}" in row["error"]
    assert why in row["error"]
    study["running"].set_status(state="done", step=4)
    assert study["running"].status()["step"] == 4


def test_a_running_run_shows_its_last_reward_and_others_their_cluster_job(study, capsys):
    for store in study.values():
        store.set_status(reward=0.25)
        set_queued(store, "Slurm job 7_1")
    rows = rows_of("default", capsys)
    assert {row["state"]: (row["reward"], row["queued"]) for row in rows} == {
        **dict.fromkeys(("preempted", "failed", "lost"), (None, "Slurm job 7_1")),
        "running": (0.25, None), "done": (None, None)}  # fmt: skip
    main(["status", "default"])
    said = capsys.readouterr().out
    assert said.count("submitted as Slurm job 7_1") == 3
    assert said.splitlines()[-1].split()[-2:] == ["0.500", "0.250"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A study with a run in it, and one outside of it."""
    monkeypatch.chdir(tmp_path)
    return run_in(tmp_path / "runs", 0), run_in(tmp_path / "outside", 1)


def link(path, target):
    if path.exists():
        remove(path)
    path.symlink_to(target)
    return path


KINDS = {
    "a folder of runs": lambda _, other: link(Path("runs/default/alias"), other.folder.parents[1]),
    "its checkpoints": lambda inside, other: link(inside.checkpoints, other.checkpoints),
    "a checkpoint": lambda inside, other: link(inside.checkpoint(0), other.checkpoint(0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_beyond_a_link_is_touched(places, kind):
    inside, other = places
    created, before = KINDS[kind](inside, other), contents(other.folder.parents[2])
    for words in ([], ["--yes"], ["--yes", "--state", "done"]):
        assert main(["clean", *words]) == 0
    assert contents(other.folder.parents[2]) == before
    assert not inside.folder.exists()
    assert created.is_symlink() == (kind == "a folder of runs")  # else it is the run's


def test_of_a_link_that_is_removed_the_target_stays_whatever_its_name(places, capsys):
    """A run that was a link and half removed: each later clean of the study used to fail."""
    inside, other = places
    before = contents(other.folder)
    for name in ("seed9-0123456789.trash", inside.folder.name + ".trash"):
        link(inside.folder.with_name(name), other.folder)
    for name in ("checkpoints/step-000004.tmp", "checkpoints/step-000005.damaged", "wandb.trash"):
        link(inside.folder / name, other.checkpoints)
    (inside.folder / "wandb").mkdir()
    for _ in range(2):
        assert main(["clean", "--yes"]) == 0
    assert not [path for path in inside.folder.parent.rglob("*") if path.is_symlink()]
    assert main(["clean", "--yes", "--state", "done"]) == 0
    assert contents(other.folder) == before


def test_a_run_removes_nothing_beyond_a_link_when_it_resumes(places):
    inside, other = places
    before = contents(other.folder)
    link(inside.checkpoints, other.checkpoints)
    for act in (lambda: roll_back(inside, -1, 0), lambda: inside.remove(inside.checkpoint(0)),
                lambda: inside.remove(inside.checkpoint(0) / OPTIMIZER)):  # fmt: skip
        with pytest.raises(ValueError, match="checkpoints is a link: nothing beyond it is removed"):
            act()
    assert contents(other.folder) == before


FOREIGN = {
    "weights": {"lr1e-5/seed0/model.pt": "x"},
    "notes": {"lr1e-5/seed-plans/a.txt": "x"},
    "the name of a run": {"lr1e-5/seed0-0123456789/model.pt": "x"},
    "names of our files": {
        "lr1e-5/seed0/status.json": '{"state": "done", "heartbeat": 1.0}',
        "lr1e-5/seed0/metrics.jsonl": '{"step": 1}\n',
        "lr1e-5/seed0/status.json.tmp123": "{",
    },
    "a config and an identity": {
        "lr1e-5/seed0-0123456789/config.yaml": "seed: 0\nlr: 1e-5\n",
        "lr1e-5/seed0-0123456789/identity.json": '{"seed": 0}',
        "lr1e-5/seed0-0123456789/status.json": '{"state": "failed"}',
    },
    "checkpoints": {
        "lr1e-5/seed0/status.json": '{"state": "done"}',
        "lr1e-5/seed0/checkpoints/step-000100/optimizer.safetensors": "x",
        "lr1e-5/seed0/checkpoints/step-000100/MANIFEST.json": "{}",
        "lr1e-5/seed0/checkpoints/step-000100/clock.json": '{"run": "seed0", "step": 100}',
        "lr1e-5/seed0/checkpoints/step-000100.damaged/model.pt": "x",
    },
    "what is called trash": {"lr1e-5/seed0.trash/model.pt": "x"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_folder_that_pods_did_not_write_is_left_alone(kind, tmp_path, monkeypatch, capsys):
    """Nothing in it is removed or written, not even a lock."""
    monkeypatch.chdir(tmp_path)
    for name, content in FOREIGN[kind].items():
        path = tmp_path / "results" / "grpo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder,) = (tmp_path / "results" / "grpo" / "lr1e-5").glob("seed*")
    before = contents(tmp_path)
    states = ("pending", "preempted", "lost", "failed", "done")
    every_state = [word for state in states for word in ("--state", state)]
    for words in (["results", *every_state], ["results"], [str(folder)], [folder.name]):
        code = main(["clean", *words, "--runs-dir", ".", "--yes"])
        shown = capsys.readouterr()
        assert contents(tmp_path) == before and folder.is_dir(), words
        left_alone = f"{Path(*folder.parts[-4:])}  (pods did not write it: it is left alone)"
        assert words[0] != "results" or folder.suffix or (code == 1 and left_alone in shown.out)


def test_a_link_to_a_folder_that_pods_did_not_write_stays(places, capsys):
    """The study has a run of its own, too, which is removed."""
    inside, _ = places
    (theirs := Path("theirs")).mkdir()
    (theirs / "model.pt").write_text("x")
    alias = link(inside.folder.with_name("seed7"), theirs.absolute())
    assert main(["clean", "--state", "done", "--state", "pending", "--yes"]) == 1
    assert alias.is_symlink() and [path.name for path in theirs.iterdir()] == ["model.pt"]
    assert not inside.folder.exists()
    assert "seed7  (pods did not write it: it is left alone)" in capsys.readouterr().out


def test_a_run_is_told_from_other_folders_by_any_of_its_three_proofs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    proofs = ("identity.json", "config.yaml", "checkpoints/step-000000/clock.json")
    for seed, proof in enumerate(proofs):
        store = run_in("runs", seed)
        for other in {*proofs} - {proof}:
            (store.folder / other).write_text("{")
        assert main(["clean", "--state", "done", "--yes"]) == 0
        assert not store.folder.exists(), proof


def test_a_link_counts_its_own_bytes_and_an_old_trash_link_is_replaced(tmp_path, monkeypatch):
    (outside := tmp_path / "outside").mkdir()
    (outside / "file").write_bytes(b"0" * 10_000)
    (folder := tmp_path / "folder").mkdir()
    (folder / "link").symlink_to(outside)
    assert size(folder) == size(folder / "link") == len(os.fsencode(outside))
    (tmp_path / "folder.trash").symlink_to(outside)
    remove(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "file").exists()
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(errno.EACCES, "read-only")))
    with pytest.raises(OSError, match="read-only"):
        remove(outside)
    assert (outside / "file").exists()
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(errno.EXDEV, "overlayfs")))
    remove(outside)
    assert not outside.exists()


@pytest.mark.parametrize("name", ["..", "/", "../runs/default", "a/b", "", "x" * 101, "a\x1b[31m"])
def test_a_study_is_a_name_in_every_verb(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    verbs = [[verb, name] for verb in ("status", "plot", "price", "report", "sync")]
    verbs += [["compare", "--study", name]]
    for words in verbs:
        assert main(words) == 2, words
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.startswith("error: study="), words
        assert "letters, digits, dots" in shown.err and "\x1b" not in shown.err
