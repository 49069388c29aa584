"""What the reader of a format gives, `Log`, and what the readers of all formats share."""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pods.system.console import printable

Row = dict[str, Any]

LIMIT = 2**30  # bytes of a file: no log has more, and a machine's memory may have
LIMIT_UNPACKED = 2**28  # bytes of a packed file, once unpacked: a small one can hold terabytes
MOST_LINES = 10**7  # of a file of text: each takes a hundred times its bytes in memory
LONGEST = 300  # characters of a stranger's text in a message

ROTATED = r"(?P<rotation>\.\d{1,3}|-\d{8})?(\.gz)?"
"""What follows the name of a log that was set aside: `.1` is newer than `.2`, or a date."""
ENDING = re.compile(r"\.(jsonl?|csv|tsv|log|out|txt)" + ROTATED)
PLAIN_NAMES = re.compile(
    r"metrics|logging|trainer_log|experiment_log|logs?|history|progress|run|output|stdout|console"
)
"""Names of files that trainers give to the log of every run: the folder tells the run."""
OF_TRANSFORMERS = re.compile(r"(/checkpoint-\d+)?/trainer_state\.json$")
OF_TENSORBOARD = re.compile(r"/runs/[A-Z][a-z]{2}\d\d_[^/]*$")  # a folder as transformers names it


class NoLog(ValueError):
    """A file is readable, and holds nothing that a run's log has."""


@dataclass
class Log:
    """What one file says of one run."""

    name: str  # the run's own; "": its path tells it
    path: Path
    rows: list[Row]  # in the order of the log; what a row lacks has no key
    config: Row = field(default_factory=dict)  # nested keys are joined by dots
    machine: str = ""
    faults: list[str] = field(default_factory=list)  # what could not be read
    notes: list[str] = field(default_factory=list)  # how it was read, if that is not plain
    key: str = ""  # files with parts of one run share it; "": only its path is the run's
    ending: str = ""  # follows the name that the path tells, such as -seed3

    @cached_property
    def columns(self) -> set[str]:
        """The names of all columns."""
        names: set[str] = set()
        for row in self.rows:
            names.update(row)
        return names

    def cells(self, column: str) -> list[Any]:
        """Return what a column holds, in the order of the rows; None and lacking cells are out."""
        return [row[column] for row in self.rows if row.get(column) is not None]


def one_line(text: object, longest: int = LONGEST) -> str:
    r"""Return a stranger's text as one line that no terminal obeys.

    >>> one_line("a\x1b[31m\n b")
    'a\\x1b[31m b'
    """
    line = printable(" ".join(str(text).split()))
    if len(line) <= longest:
        return line
    half = longest // 2
    return f"{line[:half]} ... {line[-half:]}"


def some(names: Sequence[str], most: int = 4) -> str:
    """Name some of several things, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    hidden = len(names) - most
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def check_file(path: Path) -> None:
    """Raise a ValueError if reading a path could take for ever: a pipe, a device, a giant."""
    if not path.exists():
        raise ValueError("is a link to nothing")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is no file, but a pipe, a socket or a device")
    if status.st_size > LIMIT:
        raise ValueError(f"has more than {LIMIT:,} bytes")


def content(path: Path) -> bytes:
    """Return the text in a file in UTF-8, unpacked and without a byte order mark.

    Of zeros at its end, as a power cut leaves them, one remains, which no reader takes for a line.

    Raises:
        ValueError: it is packed and damaged, has more than `LIMIT_UNPACKED` bytes once unpacked, or
            more than `MOST_LINES` lines.
    """
    data = unpacked(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="replace").encode()
    if data.count(b"\n") > MOST_LINES:
        raise ValueError(f"has more than {MOST_LINES:,} lines")
    whole = data.rstrip(b"\0")
    return data[: len(whole) + 1].removeprefix(b"\xef\xbb\xbf")


def unpacked(path: Path) -> bytes:
    """Return what is in a file, which may be packed by gzip, whatever its name says."""
    with path.open("rb") as plain:
        if plain.read(2) != b"\x1f\x8b":
            plain.seek(0)
            return plain.read()
    try:
        with gzip.open(path) as file:
            data = file.read(LIMIT_UNPACKED + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(data) > LIMIT_UNPACKED:
        raise ValueError(f"has more than {LIMIT_UNPACKED:,} bytes once unpacked")
    return data


def flat(content: Row, joint: str = ".") -> Row:
    """Join the keys of nested dictionaries.

    >>> flat({"step": 1, "val": {"gsm8k": {"acc": 0.5}}}, "/")
    {'step': 1, 'val/gsm8k/acc': 0.5}
    """
    joined: Row = {}
    for key, value in content.items():
        if not isinstance(value, dict):
            joined[key] = value
            continue
        for inner_key, cell in flat(value, joint).items():
            joined[f"{key}{joint}{inner_key}"] = cell
    return joined


def run_path(path: Path) -> str:
    """Return the path of the run that a log belongs to.

    >>> run_path(Path("a-seed0/checkpoint-9/trainer_state.json")), run_path(Path("a/metrics.jsonl"))
    ('a-seed0', 'a')
    >>> run_path(Path("a/b-seed0.jsonl.1.gz"))
    'a/b-seed0'
    """
    text = str(path)
    if "tfevents" in path.name:
        return OF_TENSORBOARD.sub("", str(path.parent))
    if path.name == "trainer_state.json":
        return OF_TRANSFORMERS.sub("", text)
    name = without_ending(path.name)
    if PLAIN_NAMES.fullmatch(name) and path.parent.name:
        return str(path.parent)
    return os.path.join(path.parent, name)


def without_ending(name: str) -> str:
    """Return the name of a log's file without its ending.

    >>> without_ending("grpo-0.5.csv"), without_ending("run.log.2.gz"), without_ending("run.json")
    ('grpo-0.5', 'run', 'run')
    """
    for ending in ENDING.finditer(name):
        if ending.end() == len(name):
            return name[: ending.start()]
    return name
