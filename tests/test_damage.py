"""A run never resumes from a damaged checkpoint, and never skips one silently."""

import errno
import itertools
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from compose import composed
from rows import every
from running import contents

from pods.launch import job
from pods.runs import checkpoint
from pods.runs.freeze import freeze
from pods.runs.history import mark_damaged, newest_checkpoint
from pods.runs.records import Damaged
from pods.runs.store import OPTIMIZER, RunStore
from pods.system.errors import DONE

STEPS = 3
FILES = (
    *(f"policy/{name}" for name in ("model.safetensors", "config.json", "generation_config.json",
                                    "tokenizer.json", "tokenizer_config.json",
                                    "chat_template.jinja")),
    OPTIMIZER, "selection.json", "clock.json", checkpoint.MANIFEST)  # fmt: skip


def execute(folder):
    """Run a folder to its end under a clock that advances with each reading."""
    ticks = itertools.count()  # of 1/128 s: sums of them are exact, whatever they start from
    assert job.execute(folder, now=lambda: next(ticks) / 128) == DONE


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a few steps."""
    folder = tmp_path_factory.mktemp("damage")
    store = freeze(composed(
        f"runs_dir={folder}", "tracking=none", "rollouts_every_steps=1", "prompts=greso",
        "nm.n=8", "nm.m=4", "task.train_size=2",
        "budget.train_seconds=null", f"budget.max_steps={STEPS}", "checkpoint.every_steps=1",
        "evaluation=quick", "evaluation.questions=4"))  # fmt: skip
    execute(store.folder)
    return store


@pytest.fixture
def store(run, tmp_path):
    """A copy of the run, to be damaged."""
    return RunStore(Path(shutil.copytree(run.folder, tmp_path / run.folder.name)))


def flipped(content, *bits):
    """Content with some bits flipped, counted from its start."""
    changed = bytearray(content)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


DAMAGES = {
    "empty": lambda content: b"",
    "half of it cut off": lambda content: content[: len(content) // 2],
    "a byte cut off": lambda content: content[:-1],
    "its first bit flipped": lambda content: flipped(content, 0),
    "a bit in the middle flipped": lambda content: flipped(content, 4 * len(content)),
    "its last bit flipped": lambda content: flipped(content, 8 * len(content) - 1),
    "eight bits flipped": lambda content: flipped(content, *range(0, 8 * len(content) - 7,
                                                                  len(content))[:8]),
    "filled with zeros": lambda content: bytes(len(content)),
    "a byte added": lambda content: content + b"\0",
    "a line break added": lambda content: content + b"\n"}  # fmt: skip
REMOVALS = ("missing", "a folder")


@contextmanager
def damaged(path, damage, start, end):
    """A file of which these bytes are damaged, or that is removed, while the block runs."""
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage in DAMAGES:
        path.write_bytes(whole[:start] + DAMAGES[damage](whole[start:end]) + whole[end:])
        assert path.read_bytes() != whole
    try:
        yield
    finally:
        if path.is_dir():
            path.rmdir()
        path.write_bytes(whole)


def assert_skipped(store, sound=STEPS - 1):
    """The run resumes from the last sound checkpoint, and each later one is reported by name."""
    newest, faults = newest_checkpoint(store, OPTIMIZER)
    resumable = sound >= STEPS - 1  # those before it have no optimizer any more
    assert newest == (store.checkpoint(sound) if resumable else None)
    after = [store.checkpoint(step) for step in range(STEPS, sound, -1)]
    assert list(faults)[: len(after)] == after
    assert set(faults) <= {*after, store.checkpoint(0)}
    assert all(faults.values())


def test_a_damaged_file_is_detected(store):
    folder = store.checkpoint(STEPS)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == {*FILES}
    assert newest_checkpoint(store, OPTIMIZER) == (folder, {})

    def check(name, damage):
        path = store.checkpoint(STEPS) / name
        with damaged(path, damage, 0, path.stat().st_size):
            assert_skipped(store)

    every(itertools.product(FILES, [*DAMAGES, *REMOVALS]), check)
    assert newest_checkpoint(store, OPTIMIZER) == (store.checkpoint(STEPS), {})


def test_a_file_that_the_disk_cannot_read_is_damaged(store, monkeypatch):
    def check(name):
        lost = store.checkpoint(STEPS) / name

        def failing(plain):
            def reading(path, *args, **kwargs):
                if path == lost:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
                return plain(path, *args, **kwargs)

            return reading

        with monkeypatch.context() as broken:
            broken.setattr(Path, "open", failing(Path.open))
            broken.setattr(os, "open", failing(os.open))
            assert_skipped(store)

    every(((name,) for name in FILES), check)


def test_a_log_damaged_before_its_recorded_end_is_detected(store):
    ends = [store.clock(store.checkpoint(step))["metrics_bytes"] for step in range(STEPS + 1)]

    def check(damage, since):
        sound = since + 1 if damage.endswith("added") else since
        with damaged(store.metrics_path, damage, ends[since], ends[since + 1]):
            if sound == STEPS - 1:
                assert_skipped(store, sound)
            else:  # only the log is at fault, and an older checkpoint has no optimizer
                with pytest.raises(Damaged, match=r"metrics\.jsonl is damaged: it is not "):
                    newest_checkpoint(store, OPTIMIZER)

    rows = [(damage, 0) for damage in REMOVALS]
    rows += [(damage, since) for damage in DAMAGES for since in range(STEPS)
             if since < STEPS - 1 or not damage.endswith("added")]  # fmt: skip
    every(rows, check)


def results(folder):
    """The content of all files that are equal in equal runs, by name."""
    own = ("status.json", ".lock", "attempts")
    return {name: content for name, content in contents(folder).items()
            if not name.startswith(own) and ".damaged/" not in name}  # fmt: skip


def test_a_run_with_damaged_files_says_so_and_ends_in_the_same_bytes(run, store, capsys):
    rollouts = store.folder / "rollouts" / "step-000001.jsonl.gz"
    for path in (store.checkpoint(STEPS) / "policy" / "model.safetensors", rollouts):
        path.write_bytes(flipped(path.read_bytes(), 4 * path.stat().st_size))
    store.data_path.write_bytes(store.data_path.read_bytes().replace(b"too_long", b"too_lonc"))
    execute(store.folder)
    console = capsys.readouterr().out
    assert "data.json was not what the run had written" in console
    assert f"set aside: {rollouts} is damaged: " in console
    assert f"damaged checkpoint set aside: {store.checkpoint(STEPS).name}: policy/" in console
    assert f"resuming from step {STEPS - 1}" in console
    aside = store.checkpoints / f"{store.checkpoint(STEPS).name}.damaged"
    assert (aside / "policy" / "model.safetensors").exists()  # to be looked at; clean removes it
    again, undisturbed = results(store.folder), results(run.folder)
    assert {name for name in again.keys() | undisturbed.keys()
            if again.get(name) != undisturbed.get(name)
            } == {f"rollouts/{rollouts.name}", f"rollouts/{rollouts.name}.damaged"}  # fmt: skip
    assert json.loads((store.folder / "status.json").read_text())["state"] == "done"


def test_a_resumed_run_shows_the_step_that_it_resumes_from(store, monkeypatch):
    (store.checkpoint(STEPS) / "clock.json").write_text("")
    seen, look = [], "pods.training.trainer.check_rollouts"
    monkeypatch.setattr(look, lambda store, say: seen.append(store.status()["step"]))
    execute(store.folder)
    assert [*seen, store.status()["step"]] == [STEPS - 1, STEPS]


def test_a_damaged_checkpoint_that_an_overlay_cannot_rename_is_copied(store, monkeypatch):
    path, overlay = store.checkpoint(STEPS), OSError(errno.EXDEV, "overlayfs")
    monkeypatch.setattr(os, "rename", Mock(side_effect=overlay))
    mark_damaged(store, path)
    assert not path.exists() and (path.with_name(f"{path.name}.damaged") / "policy").is_dir()
