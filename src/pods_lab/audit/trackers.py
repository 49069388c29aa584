"""Read the files of experiment trackers: W&B's offline runs, TensorBoard's events, Trackio.

The library that defines a format parses its records (W&B's and tensorboardX's protobuf, sqlite3
for Trackio). The frames around the records (LevelDB's log, TFRecord) are read here.
"""

import json
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from pods_lab.audit.formats import Log, Row, flat, unpacked

WANDB_HEADER = 7  # bytes before the first record of a `.wandb` file
BLOCK = 32768  # bytes of a block of LevelDB's log; a record that is longer has a part in each
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of parts; between first and last any number of kind 3

QUERY_SECONDS = 60.0  # a database of a million rows takes ten
QUERY_STEPS = 100_000  # of SQLite's machine between two looks at the clock

DTYPES = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "u1",
    5: "<i2",
    6: "i1",
    9: "<i8",
    17: "<u2",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
"""Types of numbers in TensorFlow's `types.proto`; 14 is bfloat16."""
BFLOAT16 = 14


def wandb_run(path: Path) -> Iterator[Log]:
    """Read the `.wandb` file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    log = Log(path.parent.name, path, [])
    for number, data in enumerate(leveldb_records(path.read_bytes(), log.faults), 1):
        record = _parsed(Record, data)
        if record is None:
            log.faults.append(f"record {number} is damaged, and what follows is left out")
            break
        if record.HasField("run"):
            _take_run(record.run, log)
        elif record.HasField("environment"):
            log.machine = record.environment.gpu_type or log.machine
        elif record.HasField("history"):
            row = {"_step": record.history.step.num} | items(record.history.item)
            log.rows.append(flat(row, "/"))
    yield log


def _take_run(run: Any, log: Log) -> None:
    """Take name, machine and config of a W&B run."""
    log.name = run.display_name or log.name
    log.machine = log.machine or run.host
    log.config |= flat(items(run.config.update))
    log.config |= {"id": run.run_id, "group": run.run_group}
    log.key = "\0".join([run.entity, run.project, run.run_id])


def _parsed(message: Any, data: bytes) -> Any:
    """Return a record of a type of protobuf; None: it is damaged."""
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(data)
    except DecodeError:
        return None


def leveldb_records(data: bytes, faults: list[str]) -> Iterator[bytes]:
    """Yield the records of a `.wandb` file: 7 bytes of header, then LevelDB's log format.

    Each part of a record has a checksum, its size and its kind before it. Blocks are counted from
    the beginning of the file.
    """
    position = WANDB_HEADER
    record = b""
    while len(data) - position >= 7:
        left_in_block = BLOCK - position % BLOCK
        _, size, kind = struct.unpack_from("<IHB", data, position)
        if left_in_block < 7 or kind == 0:  # zeros fill the rest of a block
            position += left_in_block
            continue
        part = data[position + 7 : position + 7 + size]
        position += 7 + size
        if position > len(data):
            faults.append("the file is cut off, its last record is left out")
            return
        record = part if kind in (WHOLE, FIRST) else record + part
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def items(pairs: Iterable[Any]) -> Row:
    """Return W&B's items as a dictionary; of a nested key the parts are joined."""
    row = {}
    for pair in pairs:
        key = pair.key or "/".join(pair.nested_key)
        row[key] = json.loads(pair.value_json)
    return row


def tensorboard(path: Path) -> Iterator[Log]:
    """Read the scalars of an event file, each with the time of its event."""
    from tensorboardX.proto.event_pb2 import Event

    log = Log("", path, [])
    data = unpacked(path)
    position = 0
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position : position + 8], "little")
        if end > len(data):
            log.faults.append("the file is cut off, its last event is left out")
            break
        event = _parsed(Event, data[position + 12 : end])
        if event is None:
            log.faults.append(f"the event at byte {position} is damaged, the rest is left out")
            break
        position = end + 4
        for value in event.summary.value:
            number = _scalar(value)
            if number is not None:
                row = {"step": event.step, "wall_time": event.wall_time, value.tag: number}
                log.rows.append(row)
    yield log


def _scalar(value: Any) -> float | None:
    """Return the number of a summary value; None: it is text, a picture or many numbers.

    Since TensorFlow 2 a scalar is a tensor, whose number is in a list or in raw bytes.
    """
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor":
        return None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(numbers) == 1:
            return float(numbers[0])

    return _from_bytes(tensor)


def _from_bytes(tensor: Any) -> float | None:
    """Return the number in the raw bytes of a tensor; None: it is no number, or it is several."""
    raw = tensor.tensor_content or np.array(tensor.half_val, "<u2").tobytes()
    code = DTYPES.get(tensor.dtype)
    if tensor.dtype == BFLOAT16:  # the upper half of a float32
        raw = b"\0\0" + raw
        code = "<f4"
    if code is None or len(raw) != np.dtype(code).itemsize:
        return None
    return float(np.frombuffer(raw, code)[0])


def trackio(path: Path) -> Iterator[Log]:
    """Read a project's database; each run id is a run.

    A ValueError says that a database is not Trackio's, or that its reading has no end.
    """
    logs: dict[str, Log] = {}
    end = time.monotonic() + QUERY_SECONDS
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        base.set_progress_handler(lambda: time.monotonic() > end, QUERY_STEPS)
        kinds = dict(base.execute("SELECT name, type FROM sqlite_master"))
        for name in ("configs", "metrics"):
            if kinds.get(name) != "table":  # a view can have rows without end
                raise ValueError(f"has no table {name}")
        configs = dict(base.execute("SELECT run_id, config FROM configs"))
        for run, name, timestamp, step, metrics in _metrics(base):
            if run not in logs:
                config = flat(json.loads(configs.get(run) or "{}")) | {"id": run}
                logs[run] = Log(str(name or run), path, [], config, key=f"{path}\0{run}")
            row = {"step": step, "timestamp": timestamp} | json.loads(metrics)
            logs[run].rows.append(flat(row, "/"))
    yield from logs.values()


def _metrics(base: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    query = "SELECT run_id, run_name, timestamp, step, metrics FROM metrics ORDER BY id"
    try:
        yield from base.execute(query)
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise
        raise ValueError(f"takes more than {QUERY_SECONDS:g} s to read") from error
