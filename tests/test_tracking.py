"""The W&B mirror, read back from W&B's own files; and its client, against a stand-in server."""

import gzip
import http.server
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest
from compose import composed
from running import SHORT, run_here
from studies import write_evaluation

from pods.runs.attempts import new_attempt
from pods.runs.evaluations import EvaluationRecord
from pods.runs.files import append, read_lines
from pods.runs.freeze import freeze
from pods.runs.history import roll_back
from pods.runs.store import RunStore
from pods.runs.tracking import sinks
from pods.runs.tracking import tracker as live
from pods.runs.tracking.rows import PREFIXES, evaluation_row, read_rows, training_row
from pods.runs.tracking.tracker import Tracker, sync
from pods_lab.audit.trackers import items, leveldb_records, tensorboard


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """None of W&B's variables, and no key in a home; its service process ends with the test."""
    for key in [key for key in os.environ if key.startswith("WANDB")]:
        monkeypatch.delenv(key)
    own = {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none"), "WANDB_FINISH_TIMEOUT": "1"}
    with patch.dict(os.environ, own):
        yield
        if "wandb" in sys.modules:
            sys.modules["wandb"].teardown()


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
        "zero_variance_fraction": 0.5, "kept": [[0, 2]], "logprob_gap": 1e-6 * step}  # fmt: skip


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
    write_evaluation(store, step, seconds, right, 2, 4, unanswered=["timeout"] * 8)


def train(store: RunStore, first: int, last: int, attempt: int = 1) -> None:
    """Steps of a run, with a checkpoint every second one, on which `step` answers are right."""
    if first == 1:
        evaluate(store, 0, 1, 0.0)
    for step in range(first, last + 1):
        append(store.metrics_path, [line_of(step, attempt)])
        if step % 2 == 0:
            evaluate(store, step, step, line_of(step, attempt)["train_seconds"])


def resume(store: RunStore, step: int) -> None:
    roll_back(store, step, store.clock(store.checkpoint(step))["metrics_bytes"])


@contextmanager
def tracked(store: RunStore) -> Iterator[Tracker]:
    """One attempt at a run, with its tracker, which fails in the end."""
    tracker = Tracker(store.config(), store)
    yield tracker
    store.set_status(state="failed")
    tracker.finish()
    store.set_status(state="running")


def offline(store: RunStore) -> SimpleNamespace:
    """What the run's only offline folder holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = store.folder.glob("wandb/**/*.wandb")
    found = [Record.FromString(content) for content in leveldb_records(path.read_bytes(), [])]
    [run] = [record.run for record in found if record.HasField("run")]
    history = [record.history for record in found if record.HasField("history")]
    summary: dict = {}
    for record in found:
        summary |= items(record.summary.update)
    return SimpleNamespace(
        run=run,
        config=items(run.config.update),
        metrics=[record.metric for record in found if record.HasField("metric")],
        positions=[row.step.num for row in history],
        rows=[{k: v for k, v in items(row.item).items() if k[0] != "_"} for row in history],
        summary=summary,
        exits=[record.exit.exit_code for record in found if record.HasField("exit")],
    )


def test_rows_by_hand():
    row = training_row(line_of(3))
    assert row.position == 6 and set(row.values) == {
        "step", "train_seconds", "time/generate_seconds", "rollouts/reward",
        "rollouts/zero_variance_fraction", "train/logprob_gap"}  # fmt: skip
    answers = [(True, True, 3, "right"), (False, True, 6, "timeout"), (False, False, 9, "none")]

    def values(*lenient):
        records = [
            EvaluationRecord(0, "q", correct, format, graded, verdict, length, True, 0)
            for (correct, format, length, verdict), graded in zip(answers, lenient, strict=False)
        ]
        row = evaluation_row(4, 2.5, records)
        assert row.position == 9
        return row.values

    means = {
        "step": 4, "train_seconds": 2.5, "eval/accuracy": 1 / 3, "eval/format": 2 / 3,
        "eval/length": 6.0, "eval/timeouts": 1 / 3}  # fmt: skip
    assert values(None, None, None) == means
    assert values(True, True, False) == {**means, "eval/lenient": 2 / 3}
    assert values(None)["eval/timeouts"] == 0  # always there


def test_offline_sync_gives_one_run_with_each_row_once(tmp_path):
    store = start(tmp_path)
    with tracked(store):
        train(store, 1, 5)
    resume(store, 4)
    with tracked(store):
        train(store, 5, 6, attempt=2)  # step 5 again, slower
    resume(store, 6)
    train(store, 7, 8, attempt=3)
    (new_attempt(store) / "environment.json").write_text(json.dumps({"cpu": "Another", "gpus": []}))
    store.set_status(state="done", step=8, skipped_steps=1)
    for _ in range(2):
        [line] = sync([store.folder], "offline")
        assert "13 rows sent" in line
    found, lines = offline(store), read_lines(store.metrics_path)
    assert [line["train_seconds"] for line in lines[4:7]] == [15 + 2 / 7, 18 + 2 / 7, 21 + 3 / 7]
    assert found.positions == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17]
    trained = [row for row in found.rows if "rollouts/reward" in row]
    assert trained == [training_row(line).values for line in lines]
    evaluated = [row for row in found.rows if "eval/accuracy" in row]
    assert [row["eval/timeouts"] for row in evaluated] == [7 / 8, 6 / 8, 4 / 8, 2 / 8, 0]
    assert [(row["step"], row["eval/accuracy"], row["train_seconds"]) for row in evaluated] == [
        (0, 1 / 8, 0.0), (2, 2 / 8, 6 + 1 / 7), (4, 4 / 8, 12 + 1 / 7), (6, 6 / 8, 18 + 2 / 7),
        (8, 1.0, 24 + 3 / 7)]  # fmt: skip
    run = found.run
    assert (run.run_id, run.run_group, run.job_type, run.host, list(run.tags)) == (
        f"s-{store.folder.name}", "s", "train", "a-host", ["pods", "chainsum", "tiny"])  # fmt: skip
    assert run.display_name == "pods 64→16 s0"
    assert found.config["nm"]["n"] == 64 and found.config["series"] == "pods 64→16"
    assert found.config["environment"]["cpu"] == "Another"
    axes = {m.name or m.glob_name: (m.step_metric, m.options.defined) for m in found.metrics}
    assert axes.pop("train_seconds") == ("", True) and {*axes.values()} == {("train_seconds", True)}
    assert {"*", "train/*", "rollouts/*", "time/*", "eval/*"} <= set(axes)
    wanted = {"state": "done", "skipped_steps": 1, "eval/accuracy": 1.0,
              "train_seconds": 24 + 3 / 7, "rollouts/reward": 8 / 9}  # fmt: skip
    assert {key: found.summary[key] for key in wanted} == wanted
    assert found.exits == [0]


@pytest.mark.slow
def test_the_live_mirror_writes_what_sync_would(tmp_path):
    short = [argument for argument in SHORT if not argument.startswith("tracking")]
    store = run_here(*short, "tracking=offline", f"runs_dir={tmp_path}")
    live = offline(store)
    assert live.positions == [1, 2, 4, 5, 6, 8, 9]
    [_] = sync([store.folder], "offline")
    again = offline(store)
    assert (again.positions, again.rows, again.config) == (live.positions, live.rows, live.config)
    assert again.run.run_id == live.run.run_id
    ours = [key for key in again.summary if key[0] != "_"]
    assert {"state", "eval/accuracy"} <= set(ours)
    assert {key: live.summary.get(key) for key in ours} == {k: again.summary[k] for k in ours}
    known = {key for row in again.rows for key in row}
    assert ({key.partition("/")[0] for key in known} - {"step", "train_seconds"}) == set(PREFIXES)


def test_a_row_is_sent_once_and_an_unfinished_evaluation_is_not(tmp_path):
    store = start(tmp_path)
    with tracked(store) as tracker:
        train(store, 1, 4)
        for _ in range(2):
            tracker.update(now=True)
    assert offline(store).positions == [1, 2, 4, 5, 6, 8, 9]
    store.set_status(state="failed")
    path = store.evaluation_path(4)
    path.rename(path.with_name(f"{path.name}.part"))
    with store.metrics_path.open("ab") as file:
        file.write(b'{"step": 5, "train_sec')  # the disk was full
    assert len(list(sync([store.folder], "offline"))) == 1
    assert (offline(store).positions, offline(store).exits) == ([1, 2, 4, 5, 6, 8], [1])
    with store.metrics_path.open("ab") as file:
        file.write(b"\n\0\0\n")
    assert "cannot be read" in next(sync([store.folder], "offline"))


def test_what_runs_or_has_not_begun_or_is_damaged_is_said(tmp_path):
    running, new, damaged = (start(tmp_path, f"seed={seed}") for seed in (1, 2, 3))
    for store in (running, damaged):
        train(store, 1, 2)
    for store in (running, new, damaged):
        store.set_status(state="preempted")
    damaged.config_path.write_text("{")
    with running.lock():
        found, error = synced(running, new, damaged, mode="offline")
    assert error == "1 of 3 runs could not be read"
    assert found[:2] == ["skipped: it is running", "skipped: it has no steps yet"]
    assert found[2].startswith("cannot be read: ") and "config.yaml" in found[2]
    assert not list(tmp_path.rglob("*.wandb"))


def points(store: RunStore) -> dict[tuple[str, int], tuple[float, float]]:
    """Return numbers and times of the run's only event file by name and step, each there once."""
    [path] = (store.folder / "tensorboard").iterdir()
    [log] = tensorboard(path)
    found = {
        (name, row["step"]): (row[name], row["wall_time"])
        for row in log.rows for name in row.keys() - {"step", "wall_time"}}  # fmt: skip
    assert len(found) == len(log.rows)
    return found


def test_tensorboard_has_the_same_rows_once_also_after_a_resume(tmp_path):
    store = start(tmp_path, "tracking=tensorboard")
    with tracked(store):
        train(store, 1, 5)
    resume(store, 4)
    with tracked(store):
        train(store, 5, 6, attempt=2)
    lived = points(store)
    assert {step for name, step in lived if name == "rollouts/reward"} == {1, 2, 3, 4, 5, 6}
    assert lived["time/generate_seconds", 5][0] == pytest.approx(2 + 2 / 7)
    assert [lived["eval/accuracy", step][0] for step in (0, 6)] == [1 / 8, 6 / 8]
    assert {name.partition("/")[0] for name, _ in lived} == {*PREFIXES}
    assert {at for (_, step), (_, at) in lived.items() if step == 6} == {18 + 2 / 7}
    store.set_status(state="failed")
    [line] = sync([store.folder], "tensorboard")
    assert line.endswith("10 rows sent")
    assert points(store) == lived and not list(store.folder.glob("wandb*"))


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
            bucket = self.bucket(given["name"]) if (given["name"] in self.runs) else None
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
            "historyLineCount": len(lines), "historyTail": json.dumps(lines[-1:])}  # fmt: skip

    def stream(self, name: str, content: dict) -> None:
        history = content.get("files", {}).get("wandb-history.jsonl", {})
        if history:
            self.runs[name]["lines"][history["offset"] :] = history["content"]


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


def synced(*stores: RunStore, mode: str = "online") -> tuple[list[str], str]:
    """What `pods sync` says of each run, and its error; "" if it ends well."""
    told = []
    try:
        for line in sync([store.folder for store in stores], mode):
            told.append(line.split(": ", 1)[1])
    except ValueError as error:
        return told, str(error)
    return told, ""


def sent(server: Server, store: RunStore) -> list[dict]:
    """The rows that the server has of a run."""
    return [json.loads(line) for line in server.runs[f"s-{store.folder.name}"]["lines"]]


def test_the_server_gets_every_row_once_whoever_sends_it(tmp_path, server, capsys):
    store = start(tmp_path, "tracking=online")
    tracker = Tracker(store.config(), store)
    train(store, 1, 5)
    store.set_status(state="preempted")  # without a checkpoint of step 5: the disk was full
    tracker.finish()
    positions = [row["_step"] for row in sent(server, store)]
    assert positions == [1, 2, 4, 5, 6, 8, 9]  # a resume repeats step 5
    resume(store, 4)
    train(store, 5, 6, attempt=2)  # by an attempt without a server
    resume(store, 6)
    store.set_status(state="running")
    with tracked(store):
        train(store, 7, 8, attempt=3)
    assert capsys.readouterr().out == ""
    rows = read_rows(store.config(), store)
    assert [row["_step"] for row in sent(server, store)] == [row.position for row in rows]
    assert len(rows) == 13
    append(store.metrics_path, [line_of(9)])
    store.set_status(state="done")
    assert [synced(store), synced(store)] == [(["1 rows sent"], ""), (["0 rows sent"], "")]
    [(name, run)] = server.runs.items()
    assert (name, run["group"]) == (f"s-{store.folder.name}", "s")
    assert [{k: v for k, v in row.items() if k[0] != "_"} for row in sent(server, store)] == [
        row.values for row in read_rows(store.config(), store)
    ]


def test_without_a_key_or_a_server_run_and_sync_say_so_and_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", None)  # nobody is asked for a key
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")  # W&B reads it once in a process
    store = start(tmp_path, "tracking=online")
    with tracked(store):
        train(store, 1, 2)
    said = capsys.readouterr().out
    assert said.startswith("the tracker is off for this run (ValueError: no W&B key: set WANDB_API")
    store.set_status(state="done")
    began = time.monotonic()
    os.environ |= {"WANDB_BASE_URL": "http://127.0.0.1:9"}  # nobody listens there
    assert synced(store)[1].startswith("no W&B key: ")
    os.environ["WANDB_API_KEY"] = "short"
    told, error = synced(store)
    assert told == [] and error.startswith("W&B does not accept the key (AuthenticationError: ")
    assert "\n" not in error
    os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_MODE": "offline"}
    assert synced(store) == ([], "WANDB_MODE=offline: must be unset to reach W&B's server")
    del os.environ["WANDB_MODE"]
    told, error = synced(store)
    assert told == [] and "the tracker failed (CommError: " in error and "\n" not in error
    assert time.monotonic() - began < 40


@pytest.mark.slow
def test_a_network_that_dies_does_not_keep_a_run_from_ending(tmp_path, server, capsys):
    store = start(tmp_path, "tracking=online")
    train(store, 1, 5)
    tracker = Tracker(store.config(), store)
    server.shutdown()
    server.server_close()
    began = time.monotonic()
    tracker.finish()
    assert "the tracker is off for this run (TimeoutError" in capsys.readouterr().out
    assert time.monotonic() - began < 40


def test_rows_wait_for_a_checkpoint_or_a_minute(tmp_path, monkeypatch, capsys):
    sent: list[int] = []
    run = SimpleNamespace(log=sent.append)
    store = start(tmp_path)
    copy = sinks.Copy(store.config(), store, lambda row: run.log(row.position), lambda *_: None)
    monkeypatch.setattr(live, "open_copy", lambda *_: copy)
    tracker = Tracker(store.config(), store)
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
    train(store, 5, 5)
    run.log = None  # so that a call of it fails
    tracker.update()
    tracker.finish()
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("the tracker is off for this run (TypeError: ")


def test_a_log_that_the_disk_does_not_take_says_nothing(tmp_path, capfd):
    Tracker(composed("tracking=offline"), RunStore(tmp_path)).finish()
    capfd.readouterr()
    log = logging.getLogger("of wandb")
    log.addHandler(handler := logging.FileHandler("/dev/full"))
    log.error("a line that is lost")
    handler.stream = None  # else it would fail once more at the end
    assert capfd.readouterr().err == ""


HANGING = """
import os, signal, sys
from pathlib import Path
import psutil
from pods.runs.store import RunStore
from pods.runs.tracking import tracker
from pods.system.machine import end_process

tracker.PATIENCE_SECONDS = 1.0
store = RunStore(Path(sys.argv[1]))
copy = tracker.Tracker(store.config(), store)
[service] = [one for one in psutil.Process().children(True) if "wandb-core" in one.name()]
print(service.pid)
os.kill(service.pid, signal.SIGSTOP)
copy.finish()
copy.update(now=True)
print("the run goes on")
end_process(0)
"""


@pytest.mark.slow
def test_a_service_that_hangs_neither_stops_nor_slows_a_run(tmp_path):
    """Stopped, as by a disk that hangs; a service that is killed is a failure like any other."""
    store = start(tmp_path, "tracking=offline")
    train(store, 1, 4)
    timeouts = {"WANDB_INIT_TIMEOUT": "19", "WANDB_FINISH_TIMEOUT": "1"}
    output = tmp_path / "output.txt"  # a pipe would be open as long as the service is there
    started = time.monotonic()
    try:
        with output.open("w") as file:
            command = [sys.executable, "-u", "-c", HANGING, store.folder]
            environment = {**os.environ, **timeouts}
            code = subprocess.call(command, stdout=file, env=environment, timeout=300)
    finally:
        service, *printed = output.read_text().splitlines()
        os.kill(int(service), signal.SIGKILL)
    assert code == 0 and time.monotonic() - started < 120  # 20 s, and the imports
    assert "the tracker is off for this run (it has not answered for 20 s)" in printed[0]
    assert printed[1:] == ["the run goes on"]


@pytest.mark.parametrize("error", [SystemExit(3), RuntimeError("no project"), KeyboardInterrupt()])
def test_a_tracker_that_fails_in_any_way_is_turned_off(error, capsys):
    tracker = Tracker()
    tracker.copy = Mock()
    tracker.copy.send.side_effect = error
    tracker.update(now=True)
    assert tracker.copy is None
    assert "the tracker is off for this run" in capsys.readouterr().out
    tracker.update(now=True)
    tracker.finish()
