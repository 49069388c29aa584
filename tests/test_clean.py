"""`pods clean` and links: nothing outside the study is ever touched."""

import os
import socket
from functools import partial
from pathlib import Path

import pytest
from compose import composed

from pods.cli.main import main
from pods.runs import checkpoint
from pods.runs.clean import clean
from pods.runs.files import append, remove, size
from pods.runs.freeze import freeze
from pods.runs.history import roll_back
from pods.runs.store import OPTIMIZER, RunStore


def fill(store, folder):
    (folder / OPTIMIZER).write_bytes(b"0" * 2000)
    store.write_clock(folder, 0, 0.0, True)


def run_in(folder, seed):
    """A run that is done, with what `pods clean` takes from it."""
    store = freeze(composed(f"seed={seed}", f"runs_dir={folder}", "tracking=none"))
    checkpoint.commit(store.checkpoint(0), partial(fill, store))
    (store.folder / "status.json.tmp123").write_text("{")
    store.set_status(state="done", accuracy=0.5)
    return store


def tree(folder):
    """Every file below, by its name, with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    "a folder of runs": lambda inside, other: link(
        Path("runs/default/alias"), other.folder.parents[1]
    ),
    "a run": lambda inside, other: link(inside.folder.with_name(other.folder.name), other.folder),
    "its checkpoints": lambda inside, other: link(inside.checkpoints, other.checkpoints),
    "a checkpoint": lambda inside, other: link(inside.checkpoint(0), other.checkpoint(0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_beyond_a_link_is_touched_and_the_link_is_named(places, kind, capsys):
    inside, other = places
    created, before = KINDS[kind](inside, other), tree(other.folder.parents[2])
    for yes in ([], ["--yes"], ["--yes"]):
        assert main(["clean", *yes]) == 0
        shown = capsys.readouterr().out
        assert (
            str(created).rpartition("runs/")[2] in shown
            and "a link to" in shown
            and "kept" in shown
        )
    assert tree(other.folder.parents[2]) == before and created.is_symlink()
    assert not (inside.folder / "status.json.tmp123").exists()  # the study's own goes
    assert main(["clean", "--yes", "--state", "done"]) == 0
    assert tree(other.folder.parents[2]) == before
    assert not inside.folder.exists()
    assert created.is_symlink() == (kind == "a folder of runs")  # else it is the run's, or the run


def test_of_a_link_that_is_removed_the_target_stays_whatever_its_name(places, capsys):
    """A run that was a link and half removed: each later clean of the study used to fail."""
    inside, other = places
    before = tree(other.folder)
    for name in ("seed9-0123456789.trash", inside.folder.name + ".trash"):
        link(inside.folder.with_name(name), other.folder)
    for name in ("checkpoints/step-000004.tmp", "checkpoints/step-000005.damaged", "wandb.trash"):
        link(inside.folder / name, other.folder)
    (inside.folder / "wandb").mkdir()
    for _ in range(2):
        assert main(["clean", "--yes"]) == 0
    assert not [path for path in inside.folder.parent.rglob("*") if path.is_symlink()]
    assert main(["clean", "--yes", "--state", "done"]) == 0
    assert tree(other.folder) == before


def test_a_link_counts_its_own_bytes_and_an_old_trash_link_is_replaced(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"0" * 10_000)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert size(folder) == size(folder / "link") == len(os.fsencode(outside))
    (tmp_path / "folder.trash").symlink_to(outside)
    remove(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "file").exists()


def test_a_run_may_be_a_link_but_nothing_in_it(places, monkeypatch):
    inside, other = places
    for name in ("checkpoints", "evaluations", "metrics.jsonl"):
        path = inside.folder / name
        link(path, other.folder / name)
        with pytest.raises(ValueError, match=f"{name} is a link to .*: only the whole run folder"):
            freeze(composed("seed=0", "tracking=none"))
        path.unlink()
    (inside.folder / "evaluations").mkdir()
    further = inside.folder / "evaluations" / "amc23"
    link(further, other.folder)
    with pytest.raises(ValueError, match=r"amc23 is a link to .*: only the whole run folder"):
        freeze(composed("seed=0", "tracking=none"))
    further.unlink()
    moved = inside.folder.rename(Path("elsewhere").absolute())
    inside.folder.symlink_to(moved)
    assert freeze(composed("seed=0", "tracking=none")).folder.resolve() == moved
    append(inside.metrics_path, [{"step": 1}])
    assert (moved / "metrics.jsonl").exists()


def test_only_half_written_files_of_a_further_test_set_are_removed(tmp_path):
    store = freeze(composed("seed=0", f"runs_dir={tmp_path}"))
    folder = store.evaluation_path(2, "amc23").parent
    folder.mkdir(parents=True)
    for name in ("step-000002.jsonl", "data.json", "step-000004.jsonl.tmp", "data.json.tmp12"):
        (folder / name).write_text("x")
    store.set_status(state="done")
    removed = [item.path.name for item in clean(tmp_path / "default", [], dry_run=False)]
    assert sorted(removed) == ["data.json.tmp12", "step-000004.jsonl.tmp"]
    assert sorted(path.name for path in folder.iterdir()) == ["data.json", "step-000002.jsonl"]
    (folder / "step-000006.jsonl").write_text("x")
    roll_back(store, 2, 0)  # to the checkpoint of step 2
    assert sorted(path.name for path in folder.iterdir()) == ["data.json", "step-000002.jsonl"]


@pytest.mark.parametrize("name", ["..", "/", "../runs/default", "a/b", "", "x" * 101, "a\x1b[31m"])
def test_a_study_is_a_name_in_every_verb(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    verbs = [[verb, name] for verb in ("status", "clean", "evaluate", "aggregate", "plot", "plan",
                                       "report", "sync", "rank")]  # fmt: skip
    verbs += [["compare", "--study", name], ["plan", "--study", name], ["plan", "--from", name],
              ["plot", "--overlay", name], ["import-published", ".", "--study", name]]  # fmt: skip
    for words in verbs:
        assert main(words) == 2, words
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.startswith("error: study="), words
        assert "letters, digits, dots" in shown.err and "\x1b" not in shown.err


def test_a_manifest_names_nothing_outside_its_checkpoint(tmp_path):
    """Also what is other and not in it is refused: a loader would open it."""
    store = RunStore(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("secret")

    def write(folder):
        (folder / "policy").mkdir()
        (folder / "policy" / "weights").write_bytes(b"0")

    folder = store.checkpoint(1)
    checkpoint.commit(folder, write)
    assert checkpoint.damage(folder) is None
    entry = {"bytes": 6, "sha256": checkpoint.sha256(outside)}
    for name in ("../../outside", str(outside)):
        files = {**checkpoint.manifest_files(folder), name: entry}
        whole = (folder / checkpoint.MANIFEST).read_text()
        (folder / checkpoint.MANIFEST).write_text(checkpoint._manifest(files))
        assert "names a file outside" in checkpoint.damage(folder)
        (folder / checkpoint.MANIFEST).write_text(whole)
    for make in (os.mkfifo, lambda path: path.symlink_to(outside), lambda path: path.touch()):
        make(folder / "policy" / "more")
        assert "policy/more is n" in checkpoint.damage(folder)
        (folder / "policy" / "more").unlink()
    (folder / "policy" / "weights").unlink()
    (folder / "policy" / "weights").symlink_to(outside)
    assert checkpoint.damage(folder) == "policy/weights is not a regular file"
    link(store.checkpoint(2), folder)
    assert "it is a link" in checkpoint.damage(store.checkpoint(2))


def test_a_lock_that_is_not_a_file_is_one_line_about_its_run(places, capsys):
    inside, _ = places
    run_in(Path("runs"), 2)
    inside.set_status(state="running", host=socket.gethostname())
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/null")):
        lock = inside.folder / ".lock"
        lock.unlink(missing_ok=True)
        make(lock)
        for words in (["status"], ["clean"], ["clean", "--yes"], ["plot"]):
            assert main(words) in (0, 1, 2)
            shown = capsys.readouterr()
            assert "Traceback" not in shown.err
            if words == ["status"]:
                assert len(shown.out.splitlines()) == 3
        if lock.is_dir():
            lock.rmdir()


def test_writing_follows_no_link_that_was_set_as_a_trap(places):
    inside, other = places
    victim = other.folder / "victim"
    victim.write_text("before")
    link(inside.folder / f"status.json.tmp{os.getpid()}", victim)
    inside.set_status(step=1)
    link(inside.folder / "log.jsonl", victim)
    with pytest.raises(OSError, match="symbolic links"):
        append(inside.folder / "log.jsonl", [{"step": 1}])
    assert victim.read_text() == "before" and inside.status()["step"] == 1
    assert not (inside.folder / "status.json").is_symlink()
