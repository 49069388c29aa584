"""What the reader of a format gives, `Log`, and what the readers of all formats share."""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pods.system.console import printable

Row = dict[str, Any]

LIMIT = 2**30  # bytes of a file: no log has more, and a machine's memory may have
LIMIT_UNPACKED = 2**28  # bytes of a packed file, once unpacked: a small one can hold terabytes
MOST_LINES = 10**7  # of a file of text: each takes a hundred times its bytes in memory
LONGEST = 300  # characters of a stranger's text in a message

RUN_COLUMNS = ("run", "run_name", "run_id")
METHOD_COLUMNS = ("method", "arm", "algorithm", "algo")
SEED_COLUMNS = ("seed", "rng_seed", "random_seed")
LIKE_A_METHOD = re.compile(
    r"(?i)(?:.*[^a-z])?(?:method|algorithm|algo|arm|variant|approach|trainer|agent|system|condition)"
    r"(?:[^a-z].*)?"
)
LIKE_A_SEED = re.compile(
    r"(?i)(?:.*[^a-z])?(?:seed|rng|init|initiali[sz]ation|replicate|repetition|trial)(?:[^a-z].*)?"
)
"""Names that count if no usual one is there and no other column has such a name."""

ROTATED = r"(?P<rotation>\.\d{1,3}|-\d{8})?(\.gz)?"
"""What follows the name of a log that was set aside: `.1` is newer than `.2`, or a date."""
ENDING = re.compile(r"\.(jsonl?|csv|tsv|log|out|txt)" + ROTATED)
PLAIN_NAMES = re.compile(r"metrics|logging|trainer_log|experiment_log|logs?|history|progress")
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
        return set().union(*self.rows)


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


def check_file(path: Path) -> None:
    """Raise a ValueError if reading a path could take for ever: a pipe, a device, a giant."""
    if not path.exists():
        raise ValueError("is a link to nothing")
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("is no file, but a pipe, a socket or a device")
    if about.st_size > LIMIT:
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
    if not any(isinstance(value, dict) for value in content.values()):
        return content
    joined: Row = {}
    for key, value in content.items():
        if isinstance(value, dict):
            joined |= {f"{key}{joint}{below}": cell for below, cell in flat(value, joint).items()}
        else:
            joined[key] = value
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


def by_run(log: Log, about: Iterable[str] = ()) -> Iterator[Log]:
    """Split rows of several runs by the columns that say of which run a row is.

    These are a column `run`, those of method and seed, and the columns `about` of a mapping. A row
    that has none of their values is of the only run there is, or else of none.
    """
    telling = _telling(log, about)
    if not telling:
        yield log
        return
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in log.rows:
        cells = [row.get(column) for column in telling]
        values = tuple(["" if cell is None else str(cell).strip() for cell in cells])
        parts.setdefault(values, []).append(row)

    nameless = ("",) * len(telling)
    lost = len(parts.get(nameless, ()))
    if lost and len(parts) == 2:
        [values] = parts.keys() - {nameless}
        parts = {values: log.rows}
    elif lost and len(parts) > 2:
        del parts[nameless]
        columns = " and ".join(telling)
        log.faults.append(f"{lost} rows have no {columns}, so no run, and are left out")

    several = len(parts) > 1
    first_tells_all = len({values[0] for values in parts}) == len(parts)
    for values, rows in parts.items():
        run = replace(log, rows=rows, config=log.config | _about(log, telling, values))
        if telling[0].lower() in RUN_COLUMNS and first_tells_all:
            run.name = values[0]
        elif several and {column.lower() for column in telling} <= {*SEED_COLUMNS}:
            run.ending = f"-seed{values[0]}"
        elif several:
            run.name = " ".join(filter(None, values))
        if several:
            run.key = "\0".join([run_path(log.path), *values])
        yield run


def _telling(log: Log, about: Iterable[str]) -> list[str]:
    """Return the columns that say of which run a row is, the one of the run's name first."""
    names = {column.lower(): column for column in sorted(log.columns)}
    telling = []
    for usual in (RUN_COLUMNS, METHOD_COLUMNS, SEED_COLUMNS):
        telling += [names[name] for name in usual if name in names]
    telling += [name for name in about if name in log.columns and name not in telling]
    if not telling:
        telling = [*_guessed(log).values()]
        log.notes += [f"{name!r} says of which run a row is" for name in telling]
    return telling


def _guessed(log: Log) -> dict[str, str]:
    """Return the columns that must be method and seed by unusual names, by these words."""
    texts = {name for row in log.rows for name, cell in row.items() if isinstance(cell, str)}
    guessed: dict[str, str] = {}
    for key, pattern in (("method", LIKE_A_METHOD), ("seed", LIKE_A_SEED)):
        alike = [name for name in sorted(log.columns) if pattern.fullmatch(name)]
        if key == "method":
            alike = [name for name in alike if name in texts]
        if len(alike) == 1 and alike[0] not in guessed.values():
            guessed[key] = alike[0]
    return guessed


def _about(log: Log, telling: list[str], values: tuple[str, ...]) -> Row:
    """Return method and seed of a run, under the names that a config would have for them."""
    told = {column.lower(): value for column, value in zip(telling, values, strict=True) if value}
    for key, column in _guessed(log).items():
        if column in telling and column.lower() in told:
            told.setdefault(key, told[column.lower()])
    about = {key: told[key] for key in (*METHOD_COLUMNS, *SEED_COLUMNS) if key in told}
    seed = next((about[key] for key in SEED_COLUMNS if key in about), None)
    return about if seed is None else about | {"seed": seed}
