"""The records of a run folder: one type per kind of JSON file or line, and how they are read.

Every reader of a run decodes with these types, so all accept the same: a missing field or a value
of another type is `Damaged`. In memory the records are plain dictionaries.
"""

import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict, TypeVar

import msgspec
import yaml

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # since 1970, too: it is 3,000 years
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
LIMIT = 2**30  # bytes of a file: no log or evaluation has more, and a machine's memory may have
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is 7 x faster


class Damaged(ValueError):
    """A file is not what was written; the message names it."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} is damaged: {' '.join(str(reason).split())}")


class Status(TypedDict, total=False):
    """status.json: how a run stands, for those who watch it."""

    state: Required[Literal["pending", "running", "done", "failed", "preempted", "lost"]]
    pid: int
    host: str
    heartbeat: Seconds
    step: Count
    train_seconds: Seconds
    accuracy: Share | None
    reward: float | None  # mean training reward of the last step, if it had any
    error: str | None
    exit_code: int | None
    skipped_steps: Count
    alarms: list[str]


class Clock(TypedDict):
    """clock.json of a checkpoint: last step, training clock, and the log as it was then."""

    run: str
    step: Count
    train_seconds: Seconds
    metrics_bytes: Count
    metrics_sha256: str
    evaluation: bool  # False: the checkpoint is only to resume from


class Split(TypedDict):
    """The problems that a run uses of one split."""

    problems: Count
    sha256: str
    too_long: NotRequired[list[str]]


class Data(TypedDict):
    """data.json: the problems that a run uses."""

    train: Split
    test: Split
    left_out: NotRequired[list[str]]


class Environment(TypedDict, total=False):
    """environment.json of an attempt: what its process ran on, and since when."""

    started: str  # ISO 8601, in UTC
    cpu: str | None
    cores: int | None
    gpus: list[str]
    cuda_math: Any
    platform: str
    python: str
    packages: dict[str, str | None]
    commit: str | None
    processes: int  # all of the run's
    engine: dict[str, Any]
    only_evaluates: bool  # the run had nothing left to train when the process began


class ManifestFile(TypedDict):
    """Size and SHA-256 of one file of a checkpoint, in its MANIFEST.json."""

    bytes: Count
    sha256: str


def read(path: Path) -> bytes:
    """Return a file's bytes, unpacked if it is gzip.

    `Damaged`: it is a pipe or a device, has more than `LIMIT` bytes, or cannot be unpacked.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise Damaged(path, "it is no file")
    if status.st_size > LIMIT:
        raise Damaged(path, f"it has more than {LIMIT:,} bytes")

    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    return _unpacked(path, content)


def _unpacked(path: Path, content: bytes) -> bytes:
    """Unpack gzip, of which a few bytes may hold more than a machine's memory."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # + 16: with the header of gzip
    try:
        unpacked = unpacker.decompress(content, LIMIT + 1)
    except zlib.error as error:
        raise Damaged(path, error) from error

    if len(unpacked) > LIMIT:
        raise Damaged(path, f"it holds more than {LIMIT:,} bytes")
    if not unpacker.eof:
        raise Damaged(path, "it is cut off")
    return unpacked


def read_json(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file; raise `Damaged` if it is not JSON, or not of this kind."""
    content = read(path)
    if not content:
        raise Damaged(path, "it is empty")
    try:
        return msgspec.json.decode(content, type=kind)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, error) from error


def decode_lines(content: bytes, decode: Callable[[bytes], T]) -> list[T]:
    """Decode JSON lines; blank ones are ignored, and a `ValueError` names one that is no record."""
    records = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        try:
            records.append(decode(line))
        except ValueError as error:
            raise ValueError(f"line {number} is no record: {error}") from error

    return records


def parse_yaml(content: bytes) -> dict[str, Any]:
    """Return a YAML mapping; raise a `ValueError` if it is not YAML, or not a mapping of texts."""
    try:
        value = LOADER(content).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(error) from error

    try:
        return msgspec.convert(value, dict[str, Any])
    except msgspec.ValidationError as error:
        raise ValueError("it does not map keys to values") from error
