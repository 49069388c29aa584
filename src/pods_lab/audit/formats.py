"""Read one file of another trainer's logs, a generator per format: rows of numbers per run.

The library that defines a format parses it where it has a parser: W&B's and tensorboardX's
protobuf, sqlite3 for Trackio. Their frames (LevelDB's log, TFRecord) are read here.
"""

import csv
import json
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

Row = dict[str, Any]
CHECKPOINT, MORE = re.compile(r".*-\d+"), "\0"  # a checkpoint's name; cells without a header
ABOUT = ("method", "arm", "algorithm", "algo", "seed")  # columns that say of what run a row is


@dataclass
class Log:
    """What one file says of one run."""

    name: str  # the run's own, or else its path without the ending
    path: Path
    rows: list[Row]  # in the order of the log
    config: Row = field(default_factory=dict)  # nested keys are joined by dots
    machine: str = ""
    faults: list[str] = field(default_factory=list)  # what could not be read

    @cached_property
    def columns(self) -> set[str]:
        """The names of all columns."""
        return set(chain.from_iterable(self.rows))


def wandb_run(path: Path) -> Iterator[Log]:
    """Read the `.wandb` file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    log = Log(path.parent.name, path, [])
    for content in _leveldb(path.read_bytes(), log.faults):
        record = Record.FromString(content)
        if record.HasField("run"):
            run = record.run
            log.name, log.machine = run.display_name or log.name, log.machine or run.host
            log.config |= flat(_items(run.config.update))
            log.config |= {"id": run.run_id, "group": run.run_group}
        elif record.HasField("environment"):
            log.machine = record.environment.gpu_type or log.machine
        elif record.HasField("history"):
            log.rows.append({"_step": record.history.step.num} | _items(record.history.item))
    yield log


def _leveldb(data: bytes, faults: list[str]) -> Iterator[bytes]:
    """Yield the records of a `.wandb` file: 7 bytes of header, then LevelDB's log format."""
    position, parts = 7, b""
    while len(data) - position >= 7:
        left = 32768 - position % 32768  # in this block
        _, size, kind = struct.unpack_from("<IHB", data, position)
        ends = left < 7 or kind == 0
        parts += b"" if ends else data[position + 7 : position + 7 + size]
        position += left if ends else 7 + size
        if position > len(data):
            faults.append("the file is cut off, its last record is left out")
        elif not ends and kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def _items(items: Any) -> Row:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def tensorboard(path: Path) -> Iterator[Log]:
    """Read the scalars of an event file; each has the time of its event beside it."""
    from tensorboardX.proto.event_pb2 import Event

    folder = re.sub(r"/runs/[A-Z][a-z]{2}\d\d_[^/]*", "", str(path.parent))  # as transformers names
    log, data, position = Log(folder, path, []), path.read_bytes(), 0
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position : position + 8], "little")
        if end > len(data):
            log.faults.append("the file is cut off, its last event is left out")
            break
        event = Event.FromString(data[position + 12 : end])
        position = end + 4
        for value in event.summary.value:
            simple = value.WhichOneof("value") == "simple_value"
            for number in [value.simple_value] if simple else value.tensor.float_val[:1]:
                row = {"step": event.step, "wall_time": event.wall_time, value.tag: number}
                log.rows.append(row)
    yield log


def trackio(path: Path) -> Iterator[Log]:
    """Read a project's database; each run id is a run."""
    logs: dict[str, Log] = {}
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        configs = dict(base.execute("SELECT run_id, config FROM configs").fetchall())
        query = "SELECT run_id, run_name, timestamp, step, metrics FROM metrics ORDER BY id"
        for run, name, timestamp, step, metrics in base.execute(query):
            config = {} if run in logs else flat(json.loads(configs.get(run, "{}")))
            log = logs.setdefault(run, Log(name, path, [], {**config, "id": run}))
            log.rows.append({"step": step, "timestamp": timestamp, **json.loads(metrics)})
    yield from logs.values()


def json_rows(path: Path) -> Iterator[Log]:
    """Read JSON lines, or JSON with a list of rows (of TRL, W&B) or an object per checkpoint."""
    if path.suffix == ".json":
        content = _parse(path.read_bytes())
        lists = content.values() if isinstance(content, dict) else [content]
        found = next((rows for rows in lists if rows and isinstance(rows, list)), [])
        if isinstance(content, dict) and all(map(CHECKPOINT.fullmatch, content)):
            found = checkpoints(content)
    else:
        found = [_parse(line) for line in path.read_bytes().splitlines() if line.strip()]
    rows = [row for row in found if isinstance(row, dict)]
    bad = len(found) - len(rows)
    faults = [f"{bad} lines are cut off or no JSON objects, and left out"] if bad else []
    # verl's file logger has the metrics in `data`
    rows = [row | row["data"] if isinstance(row.get("data"), dict) else row for row in rows]
    yield from _by_run(Log(_name(path), path, rows, faults=faults))


def checkpoints(content: Row) -> list[Row]:
    """Return a row per object with a name such as checkpoint-100, in order of steps.

    It has the object's numbers, and the mean of each list of them, such as repeats.
    """
    rows = []
    for name, block in content.items():
        lists = {k: v if isinstance(v, list) else [v] for k, v in flat(block).items()}
        known = {k: fmean(of) for k, of in lists.items() if of and {*map(type, of)} <= {int, float}}
        rows.append({"step": int(name.rpartition("-")[2]), **known})
    return sorted(rows, key=lambda row: row["step"])


def _parse(content: bytes) -> Any:
    """Parse JSON, which may have NaN as Python writes it; None: it is damaged."""
    with suppress(ValueError):
        return json.loads(content)
    return None


def table(path: Path) -> Iterator[Log]:
    """Read a CSV: one with columns for each run, as W&B exports a chart, or a row per step."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, restkey=MORE)
        names, cells = list(reader.fieldnames or ()), list(reader)
    named = [*filter(None, names)]
    if len({*named}) < len(named):
        raise ValueError("two columns have one name")
    whole = [row for row in cells if not any(row.pop(MORE, ()))]
    rows = [{k: v for k, v in row.items() if k and v not in ("", None)} for row in whole]
    lost = len(cells) - len(rows)
    faults = [f"{lost} rows have more cells than the header, and are left out"] if lost else []
    charted = [name.removesuffix("__MIN") for name in names if name.endswith("__MIN")]
    if not charted:
        yield from _by_run(Log(_name(path), path, rows, faults=faults))
    for run in dict.fromkeys(name.rpartition(" - ")[0] for name in charted):
        start = f"{run} - "
        own = {name: name.removeprefix(start) for name in charted if name.startswith(start)}
        own |= {names[0]: names[0]}
        of_run = [{own[name]: v for name, v in row.items() if name in own} for row in rows]
        yield Log(run, path, [row for row in of_run if len(row) > 1], faults=faults)


def _by_run(log: Log) -> Iterator[Log]:
    """Split rows of several runs by the column that names them, or else by method and seed."""
    name = next((name for name in ("run", "run_name", "run_id") if name in log.columns), "")
    parts: dict[str, Log] = {}
    for row in log.rows if log.columns & {name, *ABOUT} else ():
        about = {key: row[key] for key in ABOUT if key in row}
        known = [f"{log.name}-seed{about['seed']}"] if {*about} == {"seed"} else about.values()
        run = str(row.get(name)) if name else " ".join(map(str, known))
        parts.setdefault(run, Log(run, log.path, [], about, faults=log.faults)).rows.append(row)
    if len(parts) == 1 and not name:
        log.config |= about
    yield from parts.values() if name or len(parts) > 1 else [log]


CONSOLE = re.compile(r"\bstep:(\d+)((?: - [^\s:]+:[^\s]+)+)|\bStep (\d+) \| (.*)")
NUMBER = re.compile(r"(?:np\.\w+\()?(-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf))")


def console(path: Path) -> Iterator[Log]:
    """Read the lines of verl (step:3 - critic/score/mean:0.4) and prime-rl (Step 3 | Time: 2s)."""
    log = Log(_name(path), path, [])
    for found in filter(None, map(CONSOLE.search, path.read_text(errors="replace").splitlines())):
        between, colon = (" - ", ":") if found[2] else ("|", ": ")
        pairs = [part.rpartition(colon) for part in (found[2] or found[4]).split(between)]
        numbers = {key.strip(): NUMBER.match(value.strip()) for key, _, value in pairs if key}
        row = {key: float(number[1]) for key, number in numbers.items() if number}
        log.rows.append({"step": int(found[1] or found[3]), **row})
    yield log


def flat(content: Row) -> Row:
    """Join the keys of nested dictionaries by dots."""
    return {str(key): value[0] for key, value in pd.json_normalize(content).items()}


def _name(path: Path) -> str:
    """Return the path without its ending, or the folder of a trainer's state."""
    ending = r"(/checkpoint-\d+)?/trainer_state\.json|(/metrics)?\.(jsonl?|csv|log|out|txt)(\.\d+)?"
    return re.sub(f"({ending})$", "", str(path))


FORMATS: tuple[tuple[str, str, Callable[[Path], Iterator[Log]]], ...] = (
    (r"trainer_state\.json", "TRL or transformers trainer_state.json", json_rows),
    (r".*\.wandb", "W&B offline run", wandb_run),
    (r".*tfevents.*", "TensorBoard events", tensorboard),
    (r".*\.db", "Trackio database", trackio),
    (r".*\.jsonl(\.\d+)?", "JSON lines", json_rows),
    (r".*\.csv(\.\d+)?", "CSV", table),
    (r".*\.json", "JSON", json_rows),
    (r".*\.(log|out|txt)(\.\d+)?", "console lines of verl or prime-rl", console),
)
"""File name, what it is called, and its reader; the first that fits."""
