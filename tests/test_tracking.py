"""The W&B mirror, read back from W&B's own files; and its client, against a stand-in server."""

import gzip
import http.server
import json
import logging
import os
import re
import shutil
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from compose import composed
from running import SHORT

from pods.config.parse import ConfigError
from pods.launch import job
from pods.runs import checkpoint
from pods.runs.attempts import new_attempt
from pods.runs.files import append, read_lines
from pods.runs.freeze import freeze
from pods.runs.history import abandoned_paths, roll_back
from pods.runs.store import RunStore
from pods.runs.tracking import dashboard, exporter
from pods.runs.tracking import tracker as live
from pods.runs.tracking.examples import COLUMNS
from pods.runs.tracking.names import EXAMPLES, PREFIXES, SUMMARIES, run_name
from pods.runs.tracking.rows import History, evaluation_row, read_history, training_row
from pods.runs.tracking.sync import NotSynced, sync
from pods.runs.tracking.tracker import Tracker, open_tracker
from pods.seeding import evaluation_seed


@pytest.fixture(autouse=True)
def environment(tmp_path):
    """None of W&B's variables, and no key in a home; its service process ends with the test."""
    before = dict(os.environ)
    for key in [key for key in os.environ if key.startswith("WANDB")]:
        del os.environ[key]
    os.environ |= {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    os.environ["WANDB_FINISH_TIMEOUT"] = "1"
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def server(environment):
    """A stand-in for W&B's server, with a key for it in the environment."""
    server = Server()
    os.environ |= {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
    yield server
    server.shutdown()
    server.server_close()


def line_of(step: int, attempt: int = 1) -> dict:
    """A step of 3 s: its numbers repeat when the run is resumed, but not its seconds."""
    return {
        "step": step, "nonfinite": None, "train_seconds": 3.0 * step + attempt / 7,
        "prompts": ["a"], "seconds/generate": 2.0 + attempt / 7, "reward": step / 9,
        "zero_variance_groups": 1, "kept": [[0, 2]], "logprob_gap": 1e-6 * step,
    }  # fmt: skip


def start(runs_dir: Path, *overrides: str) -> RunStore:
    config = composed(f"runs_dir={runs_dir}", "arm=pods", "evaluation.repeats=2", "study=s",
                      "checkpoint.every_steps=2", "checkpoint.every_train_seconds=null",
                      *overrides)  # fmt: skip
    store = freeze(config)
    (new_attempt(store) / "environment.json").write_text(json.dumps({"cpu": "A CPU", "gpus": []}))
    store.set_status(state="running", pid=1, host="a-host")
    return store


def evaluate(store: RunStore, step: int, right: int, seconds: float) -> None:
    """Commit a checkpoint; 4 questions twice, `right` of the 8 answers are correct."""
    write = partial(store.write_clock, step=step, train_seconds=seconds, evaluation=True)
    checkpoint.commit(store.checkpoint(step), write)
    append(store.evaluation_path(step), [
        {"repeat": r, "question": f"q{q}", "correct": 4 * r + q < right, "format": True,
         "lenient": None, "verdict": "right" if 4 * r + q < right else "timeout",
         "length": 5, "finished": True, "seed": evaluation_seed(0, step, r, q)}
        for r in range(2) for q in range(4)
    ])  # fmt: skip


def rewrite_seeds(store: RunStore, seed: int) -> None:
    """Make its evaluations those of a run with another seed than 0."""
    for path in store.folder.glob("evaluations/*"):
        step = int(path.stem[5:])
        places = [(row["repeat"], int(row["question"][1:])) for row in read_lines(path)]
        found = [{**row, "seed": evaluation_seed(seed, step, *place)}
                 for row, place in zip(read_lines(path), places, strict=True)]  # fmt: skip
        path.unlink()
        append(path, found)


def train(store: RunStore, first: int, last: int, attempt: int = 1) -> None:
    """Steps of a run, with a checkpoint every second one, on which `step` answers are right."""
    if first == 1:
        evaluate(store, 0, 1, 0.0)
    for step in range(first, last + 1):
        store.append_metrics(line_of(step, attempt))
        if step % 2 == 0:
            evaluate(store, step, step, line_of(step, attempt)["train_seconds"])


def resume(store: RunStore, step: int) -> None:
    roll_back(store, step, store.clock(store.checkpoint(step))["metrics_bytes"])


@contextmanager
def tracked(store: RunStore) -> Iterator[Tracker]:
    """One attempt at a run, with its tracker, which fails in the end."""
    tracker = open_tracker(store.config(), store.folder)
    yield tracker
    store.set_status(state="failed")
    tracker.finish(1)
    store.set_status(state="running")


def positions(history: History) -> list[int]:
    return [row.position for row in history.rows]


def records(path: Path) -> list:
    """Read a .wandb file: 7 bytes of header, then LevelDB's log format around W&B's protobuf."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, found, parts = path.read_bytes(), 7, [], b""
    while len(data) - position >= 7:
        left = 32768 - position % 32768  # in this block
        _, size, kind = struct.unpack_from("<IHB", data, position)
        if left < 7 or kind == 0:
            position += left
            continue
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def value(items) -> dict:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def offline(store: RunStore) -> SimpleNamespace:
    """What the run's only offline folder holds."""
    [path] = store.folder.glob("wandb/**/*.wandb")
    found = records(path)
    [run] = [record.run for record in found if record.HasField("run")]
    history = [record.history for record in found if record.HasField("history")]
    summary: dict = {}
    for record in found:
        summary |= value(record.summary.update)
    return SimpleNamespace(
        run=run,
        config=value(run.config.update),
        metrics=[record.metric for record in found if record.HasField("metric")],
        positions=[row.step.num for row in history],
        rows=[{k: v for k, v in value(row.item).items() if k[0] != "_"} for row in history],
        summary=summary,
        exits=[record.exit.exit_code for record in found if record.HasField("exit")],
    )


def test_rows_by_hand():
    row = training_row(line_of(3))
    assert row.position == 6 and set(row.values) == {
        "step", "train_seconds", "time/generate_seconds", "rollouts/reward",
        "rollouts/zero_variance_groups", "train/logprob_gap",
    }  # fmt: skip
    fields = ("correct", "format", "length", "verdict")
    answers = [(True, True, 3, "right"), (False, True, 6, "timeout"), (False, False, 9, "none")]
    found = [dict(zip(fields, answer, strict=True), lenient=None) for answer in answers]
    row = evaluation_row(4, 2.5, found, {})
    means = {
        "step": 4, "train_seconds": 2.5, "eval/accuracy": 1 / 3, "eval/format": 2 / 3,
        "eval/length": 6.0, "eval/timeouts": 1 / 3,
    }  # fmt: skip
    assert row.position == 9 and row.values == means
    graded = [{**record, "lenient": k < 2} for k, record in enumerate(found)]
    assert evaluation_row(4, 2.5, graded, {}).values == {**means, "eval/lenient": 2 / 3}
    whole = [{**record, "correct": True, "verdict": "right"} for record in graded]
    assert evaluation_row(4, 2.5, whole, {}).values["eval/timeouts"] == 0  # always there
    assert evaluation_row(4, 2.5, found, {"amc23": whole[:1] + found[1:]}).values == {
        **means, "eval/amc23/accuracy": 1 / 3
    }  # fmt: skip


def rollout(group: int, reward: float | str, advantage: float | None, kept: bool = True) -> dict:
    return {"group": group, "question": "1+1", "completion": f"about {reward}", "reward": reward,
            "advantage": advantage, "kept": kept}  # fmt: skip


def test_an_evaluation_has_a_table_of_the_newest_rollouts_until_then(tmp_path):
    store = start(tmp_path)
    kept = [rollout(0, k / 8, k / 8 - 0.5) for k in (3, 7, 0, 1, 5, 2, 6)]
    dropped = [rollout(0, "nan", None, kept=False) for _ in range(4)]
    store.write_rollouts(3, [*dropped, *kept, rollout(1, 9.0, 9.0)])
    train(store, 1, 6)
    store.set_status(state="done", step=6)
    with store.folder.joinpath("rollouts/step-000005.jsonl.gz").open("wb") as file:
        file.write(gzip.compress(b'{"group": 0')[:9])  # damaged
    tables = {row.position: row.examples for row in read_history(store.config(), store).rows}
    assert tables[1] == tables[5] == tables[13] == () and tables[6] == ()
    found = tables[9]
    assert [row[3] for row in found[:6]] == [7 / 8, 6 / 8, 5 / 8, 2 / 8, 1 / 8, 0.0]
    assert [(row[4], row[5]) for row in found[6:]] == [(None, False)] * 2
    assert found[0] == (3, "1+1", "about 0.875", 0.875, 0.375, True)
    assert len(list(sync([store.folder], offline=True))) == 1
    [shown] = [row for row in offline(store).rows if f"{EXAMPLES}/path" in row]
    [run] = store.folder.glob("wandb/offline-run-*")
    table = json.loads((run / "files" / shown[f"{EXAMPLES}/path"]).read_text())
    assert (shown[f"{EXAMPLES}/nrows"], table["columns"]) == (8, [*COLUMNS])
    assert table["data"][0] == [3, "1+1", "about 0.875", 0.875, 0.375, True]
    assert not (tmp_path / ".local").exists()  # no artifact in the home


def test_an_evaluation_waits_for_the_further_test_sets_that_are_asked_for(tmp_path):
    """Whatever else is there is sent too; answers with the seeds of another set do not count."""
    (tmp_path / "amc23.jsonl").touch()
    store = start(tmp_path, "evaluation.sets=[amc23]", f"evaluation.sets_path={tmp_path}")
    train(store, 1, 4)
    for name, wrong, steps in (("amc23", "", (0, 2)), ("gsm8k", "", (2,)), ("amc23", "x", (4,))):
        for step in steps:
            path = store.evaluation_path(step, name)
            path.parent.mkdir(exist_ok=True)
            append(path, [
                {**row, "seed": evaluation_seed(0, step, row["repeat"], k % 4, name + wrong),
                 "answer": None}
                for k, row in enumerate(read_lines(store.evaluation_path(step)))
            ])  # fmt: skip
    store.set_status(state="done", step=4)
    history = read_history(store.config(), store)
    assert history.gaps == {9: "the evaluation of step 4 is not complete"}
    found = {row.position: row.values for row in history.rows if row.position % 2}
    assert found[1]["eval/amc23/accuracy"] == 1 / 8 and "eval/gsm8k/accuracy" not in found[1]
    assert found[5]["eval/amc23/accuracy"] == found[5]["eval/gsm8k/accuracy"] == 2 / 8
    rows, gap = history.after(0)
    assert [row.position for row in rows] == [1, 2, 4, 5, 6, 8] and gap == history.gaps[9]


def test_runs_are_named_as_people_speak_of_them():
    assert run_name(composed("arm=grpo", "seed=3")) == "grpo 16→16 s3"
    assert run_name(composed("sampler=random", "nm=n32_m8")) == "random 32→8 s0"


def test_offline_sync_gives_one_run_with_each_row_once(tmp_path):
    store = start(tmp_path)
    with tracked(store):
        train(store, 1, 5)
    resume(store, 4)
    [first] = store.folder.glob("wandb/offline-run-*")
    first.rename(f"{first}-first")  # W&B names folders by the second
    with tracked(store):
        train(store, 5, 6, attempt=2)  # step 5 again, slower
    resume(store, 6)
    train(store, 7, 8, attempt=3)
    (store.folder / "wandb.tmp").mkdir()  # of a sync that was killed
    (new_attempt(store) / "environment.json").write_text(json.dumps({"cpu": "Another", "gpus": []}))
    phases = {"generate": {"seconds": 1.0, "peak_bytes": 7}}
    (new_attempt(store) / "phases.json").write_text(json.dumps(phases))
    store.set_status(state="done", step=8, void_steps=1)
    assert len(list(store.folder.glob("wandb/offline-run-*"))) == 2
    for _ in range(2):
        [line] = sync([store.folder], offline=True)
        assert "13 rows in" in line
    assert not list(store.folder.glob("wandb.*"))
    found, lines = offline(store), read_lines(store.metrics_path)
    assert [line["train_seconds"] for line in lines[4:7]] == [15 + 2 / 7, 18 + 2 / 7, 21 + 3 / 7]
    assert found.positions == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17]
    trained = [row for row in found.rows if "rollouts/reward" in row]
    assert trained == [training_row(line).values for line in lines]
    evaluated = [row for row in found.rows if "eval/accuracy" in row]
    assert [row["eval/timeouts"] for row in evaluated] == [7 / 8, 6 / 8, 4 / 8, 2 / 8, 0]
    assert [(row["step"], row["eval/accuracy"], row["train_seconds"]) for row in evaluated] == [
        (0, 1 / 8, 0.0), (2, 2 / 8, 6 + 1 / 7), (4, 4 / 8, 12 + 1 / 7), (6, 6 / 8, 18 + 2 / 7),
        (8, 1.0, 24 + 3 / 7),
    ]  # fmt: skip
    run = found.run
    assert (run.run_id, run.run_group, run.job_type, run.host, list(run.tags)) == (
        f"s-{store.folder.name}", "s", "train", "a-host", ["pods", "chainsum", "tiny"]
    )  # fmt: skip
    assert run.display_name == "pods 64→16 s0"
    assert found.config["nm"]["n"] == 64 and found.config["series"] == "pods 64→16"
    assert found.config["environment"]["cpu"] == "Another"
    axes = {m.name or m.glob_name: (m.step_metric, m.options.defined) for m in found.metrics}
    assert axes.pop("train_seconds") == ("", True) and {*axes.values()} == {("train_seconds", True)}
    assert {"*", "train/*", "rollouts/*", "time/*", "eval/*", "eval/accuracy"} <= set(axes)
    wanted = {"state": "done", "void_steps": 1, "peak_bytes/generate": 7,
              "eval/accuracy": {"max": 1.0, "last": 1.0}, "train_seconds": 24 + 3 / 7,
              "rollouts/reward": {"mean": pytest.approx(0.5), "last": 8 / 9}}  # fmt: skip
    assert {key: found.summary[key] for key in wanted} == wanted
    assert found.exits == [0]


@pytest.mark.slow
def test_the_live_mirror_writes_what_sync_would(tmp_path):
    short = [argument for argument in SHORT if not argument.startswith("tracking")]
    store = freeze(composed(*short, "tracking=offline", f"runs_dir={tmp_path}"))
    assert job.execute(store.folder) == job.DONE
    live = offline(store)
    assert live.positions == [1, 2, 4, 5, 6, 8, 9]
    assert len(list(sync([store.folder], offline=True))) == 1
    again = offline(store)
    assert (again.positions, again.rows, again.config) == (live.positions, live.rows, live.config)
    assert again.run.run_id == live.run.run_id
    ours = [key for key in again.summary if key[0] != "_"]
    assert {"state", "eval/accuracy", "peak_bytes/generate", "peak_bytes/start"} <= set(ours)
    assert {key: live.summary.get(key) for key in ours} == {k: again.summary[k] for k in ours}
    drawn = {key for keys in dashboard.PANELS.values() for key in keys}
    known = {key for row in again.rows for key in row}
    assert drawn | set(SUMMARIES) <= known
    grouped = {key.partition("/")[0] for key in known} - {"step", "train_seconds"}
    assert grouped == set(PREFIXES)


def test_the_dashboard_draws_the_studys_series_against_the_training_clock():
    section = dashboard.dashboard("a-project", "me", "fig1")._to_model().spec.section
    panels = [panel for part in section.panel_bank_config.sections for panel in part.panels]
    assert [panel.config.metrics for panel in panels] == [
        [key] for keys in dashboard.PANELS.values() for key in keys
    ]
    assert {
        (p.config.x_axis, p.config.group_by, p.config.group_agg, p.config.group_area)
        for p in panels
    } == {("train_seconds", "series.value", "mean", "stderr")}  # fmt: skip
    [shown] = section.run_sets[0].filters["filters"]
    assert (shown["key"]["name"], shown["op"], shown["value"]) == ("group", "=", "fig1")


def test_a_run_without_a_key_goes_on_and_is_not_asked_for_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", None)
    store = start(tmp_path, "tracking=online")
    with tracked(store):
        train(store, 1, 2)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("W&B is off for this run (ValueError: no W&B key: set WANDB_API_KEY")
    assert line.endswith("the run continues, and `pods sync` can send its rows later")


def test_a_row_is_sent_once_and_an_evaluation_that_was_cut_off_later(tmp_path):
    store = start(tmp_path)
    with tracked(store) as tracker:
        train(store, 1, 4)
        for _ in range(2):
            tracker.update(now=True)
    assert offline(store).positions == [1, 2, 4, 5, 6, 8, 9]
    store.set_status(state="failed")
    path = store.evaluation_path(4)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    with store.metrics_path.open("ab") as file:
        file.write(b'{"step": 5, "train_sec')  # the disk was full
    assert len(list(sync([store.folder], offline=True))) == 1
    assert (offline(store).positions, offline(store).exits) == ([1, 2, 4, 5, 6, 8], [1])
    with store.metrics_path.open("ab") as file:
        file.write(b"\n\0\0\n")
    assert positions(read_history(store.config(), store)) == [1, 2, 4, 5, 6, 8]
    assert positions(read_history(store.config(), store, settled=True)) == [1, 2, 4, 5, 6, 8]


def test_an_attempt_offline_writes_what_comes_after_the_checkpoint_it_begins_with(tmp_path):
    store = start(tmp_path)
    train(store, 1, 4)
    with tracked(store):
        train(store, 5, 6)
    assert offline(store).positions == [9, 10, 12, 13]


def test_only_what_no_resume_repeats_is_settled(tmp_path):
    store = start(tmp_path)
    train(store, 1, 5)
    assert positions(read_history(store.config(), store))[-2:] == [9, 10]
    assert positions(read_history(store.config(), store, settled=True))[-2:] == [8, 9]


@pytest.mark.parametrize("first", range(12))
def test_a_history_can_be_read_from_any_position(tmp_path, first):
    store = start(tmp_path)
    train(store, 1, 5)
    store.evaluation_path(2).unlink()
    whole = read_history(store.config(), store)
    assert read_history(store.config(), store, first).after(first) == whole.after(first)


def test_what_runs_or_has_not_begun_or_is_damaged_is_said(tmp_path):
    running, new, damaged = (start(tmp_path, f"seed={seed}") for seed in (1, 2, 3))
    for store in (running, damaged):
        train(store, 1, 2)
    evaluate(new, 0, 1, 0.0)
    for store in (running, new, damaged):
        store.set_status(state="preempted")
    damaged.config_path.write_text("{")
    found: list[str] = []
    with running.lock():
        found, error = synced(running, new, damaged, offline=True)
    assert error == "1 of 3 runs could not be read or are not complete in W&B"
    assert found[:2] == ["skipped: it is running", "skipped: it has no steps yet"]
    assert found[2].startswith("cannot be read: Damaged") and "config.yaml" in found[2]
    assert not list(tmp_path.rglob("*.wandb"))


def test_a_damaged_run_is_named_and_the_others_go_on(tmp_path):
    damaged, odd, whole = (start(tmp_path, f"seed={seed}") for seed in (1, 2, 3))
    for seed, store in enumerate((damaged, odd, whole), 1):
        train(store, 1, 4)
        rewrite_seeds(store, seed)
        store.set_status(state="done")
    lines = damaged.metrics_path.read_bytes().splitlines(keepends=True)
    damaged.metrics_path.write_bytes(b"".join([*lines[:2], b"17\n", *lines[3:]]))
    path = damaged.evaluation_path(0)
    path.write_bytes(path.read_bytes().replace(b"5, ", b'"5", ', 1))
    lines = odd.metrics_path.read_bytes()
    odd.metrics_path.write_bytes(lines.replace(b'"seconds/generate": ', b'"seconds/x": "y", "z": '))
    told, error = synced(damaged, odd, whole, offline=True)
    assert told[0].startswith("4 rows in ") and told[0].endswith(
        ", without what is damaged or missing: the evaluation of step 0 is not complete; "
        "metrics.jsonl is damaged in line 3"
    )
    assert offline(damaged).positions == [2, 4, 5, 9]
    assert "cannot be read" in told[1] and told[2].startswith("7 rows in ")
    assert error == "2 of 3 runs could not be read or are not complete in W&B"


def test_a_sync_that_fails_leaves_the_old_folder_and_one_that_dies_is_done_again(
    tmp_path, monkeypatch
):
    store = start(tmp_path)
    train(store, 1, 2)
    store.set_status(state="done")
    assert synced(store, offline=True)[1] == ""
    before, scratch = offline(store), store.folder / "wandb.tmp"
    with monkeypatch.context() as patched:
        patched.setattr(exporter.WandbRun, "close", lambda *_: shutil.rmtree(scratch / "wandb"))
        with pytest.raises(NotSynced, match="it has written no folder; the old one is unchanged"):
            list(sync([store.folder], offline=True))
    sys.modules["wandb"].teardown()
    assert offline(store).rows == before.rows and abandoned_paths(store) == []
    (store.folder / "wandb").rename(store.folder / "wandb.trash")  # as a kill leaves it
    scratch.mkdir()
    assert abandoned_paths(store) == [scratch, store.folder / "wandb.trash"]
    assert synced(store, offline=True)[1] == ""
    assert abandoned_paths(store) == [store.folder / "wandb.trash"]
    shutil.rmtree(store.folder / "wandb.trash")
    assert offline(store).rows == before.rows


def events(store: RunStore) -> list:
    """Read the run's only event file: each record is its length, a checksum, itself, another."""
    from tensorboardX.proto.event_pb2 import Event

    [path] = (store.folder / "tensorboard").iterdir()
    data, place, found = path.read_bytes(), 0, []
    while place < len(data):
        [size] = struct.unpack_from("<Q", data, place)
        found.append(Event.FromString(data[place + 12 : place + 12 + size]))
        place += 16 + size
    return found


def points(store: RunStore) -> dict[tuple[str, int], float]:
    """Return the numbers of an event file by name and step; each is there once."""
    found = [
        ((value.tag, event.step), value.simple_value)
        for event in events(store)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_tensorboard_has_the_same_rows_once_also_after_a_resume(tmp_path):
    store = start(tmp_path, "tracking=none", "tracking.tensorboard=true")
    with tracked(store):
        train(store, 1, 5)
    resume(store, 4)
    with tracked(store):
        store.write_rollouts(6, [rollout(0, 0.5, 0.1)])
        train(store, 5, 6, attempt=2)
    lived = points(store)
    assert {step for name, step in lived if name == "rollouts/reward"} == {1, 2, 3, 4, 5, 6}
    assert lived["time/generate_seconds", 5] == pytest.approx(2 + 2 / 7)
    assert lived["eval/accuracy", 0] == 1 / 8 and lived["eval/accuracy", 6] == 6 / 8
    assert {name.partition("/")[0] for name, _ in lived} == {*PREFIXES}
    version, session, *found = events(store)
    assert (version.file_version, session.session_log.status, session.step) == (
        "brain.Event:2",
        1,
        0,
    )
    assert {event.wall_time for event in found if event.step == 6} == {18 + 2 / 7}
    [text] = [v for event in found for v in event.summary.value if v.HasField("tensor")]
    assert text.tag == "rollouts/examples/text_summary"
    assert b"| 6 | 1+1 | about 0.5 | 0.5 | 0.1 | True |" in text.tensor.string_val[0]
    store.set_status(state="failed")
    [line] = sync([store.folder], offline=False, tensorboard=True)
    assert line.endswith(f"10 rows in {store.folder / 'tensorboard'}")
    assert points(store) == lived and not list(store.folder.glob("wandb*"))


def test_a_disk_without_space_for_tensorboard_does_not_stop_a_run(tmp_path, monkeypatch, capsys):
    store = start(tmp_path, "tracking=none", "tracking.tensorboard=true")
    (store.folder / "tensorboard").write_text("in the way")
    monkeypatch.setattr("pathlib.Path.mkdir", lambda *_: Path("/dev/full").write_text("x"))
    tracker = open_tracker(store.config(), store.folder)
    monkeypatch.undo()
    tracker.update(now=True)
    tracker.finish(0)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("TensorBoard is off for this run (OSError: ")
    assert line.endswith("the run continues, and `pods sync --tensorboard` can send its rows later")


def test_tensorboard_that_is_not_installed_is_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr("pods.config.checks.find_spec", lambda _: None)
    line = "tracking.tensorboard=true: tensorboardX is not installed: pip install 'pods-rl"
    with pytest.raises(ConfigError, match=re.escape(f"{line}[tensorboard]'")):
        composed("tracking.tensorboard=true")


# --- online: W&B's own client, and a server of ours that answers what it asks ---


class Server(http.server.ThreadingHTTPServer):
    """Takes runs as W&B does: history lines go to an offset, a resume asks for the last one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, dict] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, query: str, given: dict | None) -> dict:
        if "upsertBucket" in query:
            self.runs.setdefault(given["name"], {"lines": [], "group": given["groupName"]})
            return {"upsertBucket": {"inserted": True, "bucket": self.bucket(given["name"])}}
        if "viewer" in query:
            return {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}",
                               "teams": {"edges": []}}, "serverInfo": {}}  # fmt: skip
        if "RunFragment" in query:
            run = {**self.bucket(given["name"]), "projectId": "1", "state": "finished",
                   "user": {"name": "me", "username": "me"}, "systemMetrics": "{}"}  # fmt: skip
            return {"project": {"run": run}}
        if "RunResumeStatus" in query:
            known = given["name"] in self.runs
            bucket = self.bucket(given["name"]) if known else None
            return {"model": {"id": "p", "name": "pods", "entity": {"id": "e", "name": "me"},
                              "bucket": bucket}}  # fmt: skip
        if "createRunFiles" in query:
            files = [{"name": n, "uploadUrl": f"{self.url}/file/{n}"} for n in given["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def bucket(self, name: str) -> dict:
        lines = self.runs[name]["lines"]
        return {
            "id": "b", "name": name, "displayName": name, "description": None, "config": "{}",
            "sweepName": None, "tags": [], "notes": None, "wandbConfig": '{"t": 1}',
            "project": {"id": "p", "name": "pods", "entity": {"id": "e", "name": "me"}},
            "summaryMetrics": "{}", "logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]",
            "historyLineCount": len(lines), "historyTail": json.dumps(lines[-1:]),
        }  # fmt: skip

    def stream(self, name: str, content: dict) -> None:
        history = content.get("files", {}).get("wandb-history.jsonl", {})
        if history:
            lines = self.runs[name]["lines"]
            lines[history["offset"] :] = history["content"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        answer: dict = {}
        if self.path == "/graphql":
            asked = json.loads(body)
            answer = {"data": self.server.answer(asked["query"], asked.get("variables"))}
        elif self.path.endswith("/file_stream"):
            self.server.stream(self.path.split("/")[-2], json.loads(body))
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PUT = do_GET = do_POST

    def log_message(self, *_) -> None:
        """No noise."""


def synced(*stores: RunStore, offline: bool = False) -> tuple[list[str], str]:
    """What `pods sync` says of each run, and its error; "" if it ends well."""
    told = []
    try:
        for line in sync([store.folder for store in stores], offline):
            told.append(line.split(": ", 1)[1])
    except ValueError as error:
        return told, str(error)
    return told, ""


def sent(server: Server, store: RunStore) -> list[dict]:
    """The rows that the server has of a run."""
    return [json.loads(line) for line in server.runs[f"s-{store.folder.name}"]["lines"]]


def sent_positions(server: Server, store: RunStore) -> list[int]:
    return [row["_step"] for row in sent(server, store)]


@pytest.mark.slow
def test_online_sync_sends_what_the_server_lacks(tmp_path, server):
    store = start(tmp_path)
    train(store, 1, 5)
    store.set_status(state="preempted")
    # not step 5, which a resume takes back
    assert synced(store) == (["7 rows sent, 0 were there"], "")
    resume(store, 4)
    train(store, 5, 8, attempt=2)
    store.set_status(state="done")
    assert synced(store) == (["6 rows sent, 7 were there"], "")
    assert synced(store) == (["0 rows sent, 13 were there"], "")
    [(name, run)] = server.runs.items()
    assert (name, run["group"]) == (f"s-{store.folder.name}", "s")
    history = read_history(store.config(), store)
    assert sent_positions(server, store) == positions(history)
    assert [{k: v for k, v in row.items() if k[0] != "_"} for row in sent(server, store)] == [
        row.values for row in history.rows
    ]
    assert not list(store.folder.glob("wandb*"))


def test_rows_that_a_server_cannot_take_any_more_are_counted(tmp_path, server, monkeypatch):
    store, whole = start(tmp_path), start(tmp_path, "seed=1")
    for one in (store, whole):
        train(one, 1, 6)
        one.set_status(state="done")
    rewrite_seeds(whole, 1)
    lines = [json.dumps({"_step": place, "step": place // 2}) for place in (9, 10)]
    server.runs[f"s-{store.folder.name}"] = {"lines": lines, "group": "s"}
    told, error = synced(store, whole)
    assert told == [
        "2 rows sent; W&B has 2 of the 8 rows before position 11 and can no longer take the other "
        "6: use `pods sync --offline`, then `wandb sync --id NEW_ID FOLDER`",
        "10 rows sent, 0 were there",
    ]  # fmt: skip
    assert error == "1 of 2 runs could not be read or are not complete in W&B"
    assert sent_positions(server, store) == [9, 10, 12, 13]
    monkeypatch.setattr("wandb.Api", None)  # as if W&B did not answer
    assert synced(store) == (
        ["0 rows sent, W&B did not say whether it has the 10 rows before position 14"], ""
    )  # fmt: skip


@pytest.mark.slow
def test_online_nothing_is_sent_past_an_evaluation_or_a_line_that_is_missing(tmp_path, server):
    store = start(tmp_path)
    train(store, 1, 4)
    store.set_status(state="done")
    path = store.evaluation_path(2)
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"true", b"1", 1))
    told, error = synced(store)
    assert told == ["3 rows sent, 0 were there; stopped because the evaluation of step 2 is not "
                    "complete: `pods evaluate` may restore it"]  # fmt: skip
    assert error and sent_positions(server, store) == [1, 2, 4]
    path.write_bytes(kept)
    logged = store.metrics_path.read_bytes()
    store.metrics_path.write_bytes(logged.replace(b'{"step": 3', b'x"step": 3'))
    told, error = synced(store)
    assert (
        "1 rows sent, 3 were there; stopped because metrics.jsonl is damaged in line 3" in told[0]
    )
    assert error and sent_positions(server, store) == [1, 2, 4, 5]
    store.metrics_path.write_bytes(logged)
    assert synced(store) == (["3 rows sent, 4 were there"], "")
    assert sent_positions(server, store) == [1, 2, 4, 5, 6, 8, 9]


def test_without_a_key_or_a_server_sync_says_so_and_ends(tmp_path):
    store = start(tmp_path)
    train(store, 1, 2)
    store.set_status(state="done")
    began = time.monotonic()
    # nobody listens there
    os.environ |= {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "1"}
    assert synced(store) == (
        [], "no W&B key: set WANDB_API_KEY or run `wandb login`; offline mode needs none"
    )  # fmt: skip
    os.environ["WANDB_API_KEY"] = "short"
    told, error = synced(store)
    assert told == [] and error.startswith("W&B does not accept the key (AuthenticationError: ")
    assert "\n" not in error
    os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_MODE": "offline"}
    assert synced(store) == ([], "WANDB_MODE=offline: must be unset to reach W&B's server")
    del os.environ["WANDB_MODE"]
    told, error = synced(store)
    assert told == [] and "W&B failed (CommError: " in error and "\n" not in error
    assert time.monotonic() - began < 20


def test_a_tracker_resumes_where_the_server_is(tmp_path, server, capsys):
    store = start(tmp_path, "tracking=online")
    with tracked(store):
        train(store, 1, 5)
    resume(store, 4)
    with tracked(store):
        train(store, 5, 6, attempt=2)
    assert capsys.readouterr().out == ""
    assert sent_positions(server, store) == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13]


def test_a_tracker_sends_first_what_an_attempt_without_a_server_could_not(tmp_path, server):
    store = start(tmp_path, "tracking=online")
    train(store, 1, 5)
    resume(store, 4)
    with tracked(store):
        train(store, 5, 6, attempt=2)
    assert sent_positions(server, store) == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13]
    store.set_status(state="done")
    assert synced(store) == (["0 rows sent, 10 were there"], "")


def test_a_tracker_waits_at_a_gap_until_it_is_filled(tmp_path, server, capsys):
    store = start(tmp_path, "tracking=online")
    train(store, 1, 4)
    path = store.evaluation_path(2)
    kept = path.read_bytes()
    path.unlink()
    with tracked(store) as tracker:
        for _ in range(2):
            tracker.update(now=True)
        [line] = capsys.readouterr().out.splitlines()
        assert "(the evaluation of step 2 is not complete); the run continues" in line
        path.write_bytes(kept)
    assert sent_positions(server, store) == [1, 2, 4, 5, 6, 8, 9]


def test_what_a_resume_repeats_is_not_sent_at_the_end_of_an_attempt(tmp_path, server):
    store = start(tmp_path, "tracking=online")
    tracker = open_tracker(store.config(), store.folder)
    train(store, 1, 5)
    store.set_status(state="preempted")  # without a checkpoint of step 5: the disk was full
    tracker.finish(0)
    assert sent_positions(server, store) == [1, 2, 4, 5, 6, 8, 9]


@pytest.mark.slow
def test_a_network_that_dies_does_not_keep_a_run_from_ending(tmp_path, server, capsys):
    store = start(tmp_path, "tracking=online")
    train(store, 1, 5)
    tracker = open_tracker(store.config(), store.folder)
    server.shutdown()
    server.server_close()
    began = time.monotonic()
    tracker.finish(0)
    assert "W&B is off for this run (TimeoutError" in capsys.readouterr().out
    assert time.monotonic() - began < 15


def test_rows_wait_for_a_checkpoint_or_a_minute(tmp_path, monkeypatch):
    sent: list[int] = []
    log = lambda values, step, commit: sent.append(step)  # noqa: E731
    monkeypatch.setattr(exporter.WandbRun, "__init__", lambda self, *_: None)
    monkeypatch.setattr(exporter.WandbRun, "run", SimpleNamespace(log=log), raising=False)
    store = start(tmp_path)
    tracker = open_tracker(store.config(), store.folder)
    train(store, 1, 3)
    tracker.update()
    assert sent == []
    tracker.update(now=True)
    assert sent == [1, 2, 4, 5, 6]
    train(store, 4, 4)
    tracker.update()
    assert sent == [1, 2, 4, 5, 6]
    monkeypatch.setattr(live, "LAG_SECONDS", 0.0)
    tracker.update()
    assert sent == [1, 2, 4, 5, 6, 8, 9]


def test_nobody_else_may_write_into_the_logs_of_wandb(tmp_path):
    tracker = open_tracker(composed("tracking=offline"), tmp_path)
    logs = list(tmp_path.glob("wandb/*/logs/*.log"))
    tracker.finish(0)
    assert "debug-core.log" in [path.name for path in logs]
    assert [path.name for path in logs if path.stat().st_mode & 0o022] == []


def test_a_log_that_the_disk_does_not_take_says_nothing(tmp_path, capfd):
    open_tracker(composed("tracking=offline"), tmp_path).finish(0)
    capfd.readouterr()
    log = logging.getLogger("of wandb")
    log.addHandler(handler := logging.FileHandler("/dev/full"))
    log.error("a line that is lost")
    handler.stream = None  # else it would fail once more at the end
    assert capfd.readouterr().err == ""
