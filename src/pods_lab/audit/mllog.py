"""Read the log of a run in MLPerf: lines `:::MLLOG {...}`, an event each."""

import json
from collections.abc import Iterator
from typing import Any

from pods_lab.audit.formats import Row, flat

MARK = ":::MLLOG "
STEPS = ("step_num", "samples_count", "epoch_num")
"""Keys of an event's metadata of which one says how far the training was."""
FIRST = (
    "stopped with success at the first evaluation, so samples and time to the target are those of "
    "its schedule"
)


def events(text: str) -> Iterator[Row]:
    """Yield the events of a log, without lines that are cut off or have no time."""
    for line in text.splitlines():
        _, mark, content = line.partition(MARK)
        try:
            event = json.loads(content) if mark else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or "key" not in event:
            continue
        if type(event.get("time_ms")) in (int, float):
            yield event


def read_mllog(text: str) -> tuple[list[Row], Row, list[str]]:
    """Return the rows of a log, with the seconds since `run_start`; its config; and notes.

    A value with the place that training had come to becomes a row, and any other goes to the
    config. A place without a value is left out: that of `block_start` is where its block will end.
    After success the last row has seconds_to_target.
    """
    rows: list[Row] = []
    config: Row = {}
    start = 0.0
    for event in events(text):
        key = str(event["key"])
        metadata = event.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        place = {name: metadata[name] for name in STEPS if name in metadata}
        seconds = (event["time_ms"] - start) / 1000
        if key == "run_start":
            start = event["time_ms"]
        elif key == "run_stop":
            config["status"] = metadata.get("status", "")
            if rows and config["status"] == "success":
                last = {name: rows[-1][name] for name in STEPS if name in rows[-1]}
                rows.append(last | place | {"seconds_to_target": seconds})
        elif not place:
            config |= _values(key, event.get("value"))
        elif event.get("value") is not None:
            rows.append(place | {"seconds": seconds} | _values(key, event["value"]))

    evaluations = [row for row in rows if any(name.startswith("eval") for name in row)]
    at_first = len(evaluations) == 1 and config.get("status") == "success"
    return rows, config, [FIRST] if at_first else []


def _values(key: str, value: Any) -> Row:
    """Return the value of an event under its key; without a value there is none."""
    return {} if value is None else flat({key: value}, "/")
