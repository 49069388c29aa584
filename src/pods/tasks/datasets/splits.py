"""Splits of a data set, read strictly: a row that cannot be asked or graded is malformed.

A row is also malformed if its question appeared earlier in its split, or is a test question.
Messages count rows from 1, as the lines of a file. Blank lines are counted, and are no rows. A
problem's id comes from its row, so that it stays when other rows are dropped.
"""

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from pods.config.task_keys import TaskConfig
from pods.tasks.datasets.tables import hub_rows, parquet_rows

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it
MAX_PRINTED = 3  # reasons on the screen; the run's data.json has all
OTHER_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"PAR1": "Parquet, whose name must end in .parquet",
    b"ARROW1": "Arrow",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"[": "a JSON array",
}
"""The first bytes of files that are no JSON lines, and what these files are."""
PARQUET = ".parquet"  # of a file's name
JSON_LINES = """each line must be like {"question": "2+3?", "answer": "#### 5"}"""
Fields = Mapping[str, Any]
Right = Callable[[str, str], bool]  # `right(answer, gold)` decides whether an answer is correct


class ReadRow(NamedTuple):
    """The texts of one row of a data set."""

    question: str
    solution: str  # worked; "" if the row has none
    answer: str


Reader = Callable[[Fields], ReadRow]
"""Reads a row; raises ValueError if it is malformed."""


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a task that ask for an answer, in training and on whatever test set."""

    how: str  # the requested form of the answer, such as "as a single number"
    what: str  # placeholder for the answer in the form of the reply, such as "the number"
    reasoning: Callable[[str], str]  # of a worked solution, without the answer, for an example
    subject: str = "math question"


@dataclass(frozen=True, slots=True)
class Row:
    """One question that can be asked and graded."""

    index: int  # position in the split as read, from 0
    question: str
    solution: str  # worked, for few-shot examples; "" if the data have none
    answer: str  # as the data write it
    gold: str  # the answer that completions are graded against
    fields: Fields  # all that the data have of it


@dataclass(frozen=True, slots=True)
class Source:
    """A split on the Hugging Face hub, and how to read its rows, there or in a file."""

    dataset: str  # name on the hub, such as openai/gsm8k
    split: str
    reader: Reader
    wording: Wording
    subsets: tuple[str | None, ...] = (None,)  # configurations whose rows are joined, in this order
    gold: Callable[[str], str] = str  # makes the gold of the answer that the reader returns


@dataclass(frozen=True, slots=True)
class Split:
    """One split as it was read."""

    wording: Wording
    key: str  # of the config, and its value, that say where the split is, such as task.path=null
    location: str  # its file name, or its data set and split on the hub
    rows: tuple[Row, ...]
    malformed: tuple[str, ...]  # location and number of every other row, and why it is unusable


class Splits(NamedTuple):
    """What a task reads."""

    train: Split
    test: Split
    right: Right | None = None  # what the function of `task=own` may return


def text_field(fields: Fields, *names: str, or_number: bool = False) -> str:
    """Return the first of these fields, which must be text: not blank, and valid Unicode.

    With `or_number` it may be a finite number, which is written as text.
    """
    present = [name for name in names if name in fields]
    if not present:
        raise ValueError(f"`{'` or `'.join(names)}` is missing")
    name = present[0]
    value = fields[name]
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # also numpy's
    if or_number and is_number:
        if not math.isfinite(value):
            raise ValueError(f"`{name}` must be a finite number, not {value}")
        return _number_text(value)
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be text, not {_type(value)}")

    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`{name}` is not valid Unicode (character {error.start + 1})") from error
    if not any(character.isprintable() and not character.isspace() for character in value):
        raise ValueError(f"`{name}` is blank")
    return value


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _number_text(value: Any) -> str:
    whole = int(value)
    return str(whole if whole == value else value)


def read_split(file: Path | None, source: Source, key: str, tests: Sequence[Row] = ()) -> Split:
    """Read the rows of a file (JSON lines, or *.parquet) or, without one, of the hub.

    The questions of `tests`, rows of the test set, must not come again.
    """
    location = f"{source.dataset} {source.split}" if file is None else file.name
    lines: Sequence[bytes | Fields]
    try:
        if file is None:
            lines = hub_rows(source.dataset, source.subsets, source.split)
        elif file.suffix == PARQUET:
            lines = parquet_rows(file)
        else:
            content = file.read_bytes().removeprefix(BYTE_ORDER_MARK)
            lines = content.splitlines()
            _check_lines(content, lines)
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}: cannot read {location} ({error})") from error
    except MemoryError as error:
        raise ValueError(f"{key}: {location} does not fit into memory") from error
    return read_rows(lines, source, key, location, tests)


def _check_lines(content: bytes, lines: Sequence[bytes]) -> None:
    """Raise ValueError if a file has lines, but none with a JSON object."""
    for line in lines:
        with suppress(ValueError):
            _object(line)
            return
    if not content.strip():
        return

    why = "no line is a JSON object"
    for start, name in OTHER_FORMATS.items():
        if content.lstrip().startswith(start):
            why = f"it is {name}"
    raise ValueError(f"{why}; {JSON_LINES}")


def read_rows(
    lines: Iterable[bytes | Fields], source: Source, key: str, location: str, tests: Sequence[Row]
) -> Split:
    """Read rows in memory, as `read_split` does."""
    first_rows = {_normalise(row.question): f"test row {row.index + 1}" for row in tests}
    rows = []
    malformed = []
    for index, line in enumerate(lines):
        if isinstance(line, bytes) and not line.strip():  # as pandas and datasets read it
            continue
        name = f"row {index + 1}"
        try:
            fields = _object(line)
            read = source.reader(fields)
            earlier = first_rows.setdefault(_normalise(read.question), name)
            if earlier != name:
                raise ValueError(f"repeats the question of {earlier}")
            gold = source.gold(read.answer)
        except ValueError as error:
            malformed.append(f"{location} {name}: {error}")
            continue
        rows.append(
            Row(
                index=index,
                question=read.question,
                solution=read.solution,
                answer=read.answer,
                gold=gold,
                fields=fields,
            )
        )

    return Split(
        wording=source.wording,
        key=key,
        location=location,
        rows=tuple(rows),
        malformed=tuple(malformed),
    )


def _object(line: bytes | Fields) -> Fields:
    """Decode a line of a file, which must be a JSON object."""
    if not isinstance(line, bytes):
        return line
    try:
        row = json.loads(line.decode("utf-8"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"must be a JSON object, not {_type(row)}")
    return row


def _normalise(question: str) -> str:
    """Return a question as a reader sees it."""
    return unicodedata.normalize("NFC", " ".join(question.split()))


def check_splits(config: TaskConfig, train: Split, test: Split) -> None:
    """Raise ValueError if `task.malformed=fail` and a row is, or if too few others are left."""
    malformed = train.malformed + test.malformed
    if malformed and config.malformed == "fail":
        key = train.key if train.malformed else test.key
        hint = "task.malformed=drop drops malformed rows"
        if len(malformed) > 1:
            hint = f"{len(malformed)} rows are malformed, and this is the first; {hint}"
        raise ValueError(f"{key}: {malformed[0]} ({hint})")
    check_usable(train)
    check_usable(test)

    rows = len(train.rows)
    examples = config.few_shot
    usable = f"the number of usable rows in {train.location}"
    if rows <= examples:
        raise ValueError(f"task.few_shot={examples}: must be less than {rows}, {usable}")
    if config.train_size is not None and config.train_size > rows - examples:
        most = f"must be at most {rows - examples}, {usable}"
        if examples:
            most += f" besides {examples} few-shot examples"
        raise ValueError(f"task.train_size={config.train_size}: {most}")


def check_usable(split: Split) -> None:
    """Raise ValueError if a split has no usable row."""
    if split.rows:
        return
    why = f" ({split.malformed[0]})" if split.malformed else ""
    raise ValueError(f"{split.key}: {split.location} has no usable row{why}")


def print_malformed(name: str, split: Split) -> None:
    """Print how many rows of a split are left out, and why the first of them are."""
    count = len(split.malformed)
    if count == 0:
        return
    shown = "; ".join(split.malformed[:MAX_PRINTED])
    if count > MAX_PRINTED:
        shown += f"; and {count - MAX_PRINTED} more"
    print(f"dropped {count} of {count + len(split.rows)} {name} rows: {shown}")
