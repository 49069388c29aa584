"""Splits of a data set, read strictly: a row that cannot be asked or graded is reported.

A row is malformed if its reader rejects it, if its question appeared earlier in its split, or if it
is a train row whose question is also a test question. Messages count rows from 1, as the lines of a
file. A problem's id comes from its row, so that dropping rows renames no other problem.
"""

import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pods.config.schema import TaskConfig
from pods.tasks.datasets.json_lines import Fields, parse_line

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it
MAX_PRINTED = 3  # reasons on the screen; the run's data.json has all
Reader = Callable[[Fields], tuple[str, str, str]]
"""Returns question, worked solution and answer of a row; raises ValueError if it is malformed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question that can be asked and graded."""

    index: int
    """Position of the row in its split as read, from 0."""
    question: str
    solution: str
    """Worked solution, for few-shot examples; empty where the data have none."""
    answer: str
    """The answer as the data write it."""
    gold: str
    """The answer that completions are graded against."""


@dataclass(frozen=True, slots=True)
class Source:
    """A split on the Hugging Face hub, and how to read its rows, there or in a file."""

    dataset: str
    """Name of the data set on the hub, such as openai/gsm8k."""
    split: str
    reader: Reader
    subsets: tuple[str | None, ...] = (None,)
    """Configurations of the data set whose rows are joined, in this order."""
    gold: Callable[[str], str] = str
    """Makes the gold of the answer that the reader returns."""


@dataclass(frozen=True, slots=True)
class Split:
    """One split as it was read."""

    key: str
    """The config's key and value that say where the split is, such as task.path=null."""
    location: str
    """Its file name, or its data set and split on the hub."""
    rows: tuple[Row, ...]
    malformed: tuple[str, ...]
    """Location and number of every other row, and why it cannot be used."""


def read_splits(
    config: TaskConfig, train_source: Source, test_source: Source
) -> tuple[Split, Split]:
    """Read the train and the test split of a known data set, with their malformed rows.

    Raises:
        ValueError: there are no data.
    """
    test = _read(config, "test", test_source, {})
    tested = {normalise(row.question): f"test row {row.index + 1}" for row in test.rows}
    return _read(config, "train", train_source, tested), test


def check_splits(
    config: TaskConfig, train: Split, test: Split, say: Callable[[str], None] = print
) -> None:
    """Check that a run can use the splits; say which malformed rows are to be dropped.

    Raises:
        ValueError: there are fewer rows than the config asks for, or a malformed row where
            `task.malformed=fail`.
    """
    malformed = train.malformed + test.malformed
    if malformed and config.malformed == "fail":
        key = train.key if train.malformed else test.key
        count = f"{len(malformed)} rows are malformed, and this is the first; "
        hint = f"{count * (len(malformed) > 1)}task.malformed=drop drops malformed rows"
        raise ValueError(f"{key}: {malformed[0]} ({hint})")
    check_rows("train", train, config.train_size, config.few_shot, say)
    check_rows("test", test, config.test_size, 0, say)


def read_set(file: Path | None, source: Source, key: str, trained: Sequence[str]) -> Split:
    """Read a further test set without malformed rows, which never end a run: it needs none of them.

    Args:
        file: JSON lines; None: the source on the hub.
        source: how to read a row.
        key: the config's key and value that say where the set is.
        trained: the training questions, which the set must not repeat.

    Raises:
        ValueError: there are no data, or no usable row.
    """
    repeated = {normalise(question): "a training problem" for question in trained}
    split = _read_rows(file, source, key, "a folder with a file of JSON lines per set", repeated)
    check_rows("test", split)
    return split


def _read(config: TaskConfig, name: str, source: Source, tested: Mapping[str, str]) -> Split:
    """Read one split; `tested` names the row of each question that it must not repeat."""
    in_folder = name == "train" or (config.test_set == "own" and config.test_path is None)
    key, value = ("path", config.path) if in_folder else ("test_path", config.test_path)
    key = f"task.{key}={'null' if value is None else value}"
    needed = "a folder with train.jsonl and test.jsonl" if in_folder else "a file of JSON lines"
    return _read_rows(config.files()[name], source, key, needed, tested)


def _read_rows(
    file: Path | None, source: Source, key: str, needed: str, tested: Mapping[str, str]
) -> Split:
    """Read the rows of a file or, without one, of the hub; messages say what is needed instead."""
    location = f"{source.dataset} {source.split}" if file is None else file.name
    try:
        lines = _hub_rows(source) if file is None else _file_lines(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}: cannot read {location} ({error}); give {needed}") from error
    return read_lines(lines, source, key, location, tested)


def read_file(file: Path | None, source: Source, key: str, tested: Mapping[str, str]) -> Split:
    """Read the rows of a file of JSON lines.

    Raises:
        ValueError: it cannot be read.
    """
    return _read_rows(file, source, key, "a file of JSON lines", tested)


def read_lines(
    lines: Sequence[bytes | Fields],
    source: Source,
    key: str,
    location: str,
    tested: Mapping[str, str],
) -> Split:
    """Read rows in memory; `tested` names the row of each question that must not come again."""
    first, rows, malformed = dict(tested), [], []
    for index, line in enumerate(lines):
        number = f"row {index + 1}"
        try:
            fields = parse_line(line) if isinstance(line, bytes) else line
            question, solution, answer = source.reader(fields)
            earlier = first.setdefault(normalise(question), number)
            if earlier != number:
                raise ValueError(f"repeats the question of {earlier}")
            rows.append(Row(index, question, solution, answer, source.gold(answer)))
        except ValueError as error:
            malformed.append(f"{location} {number}: {error}")
    return Split(key, location, tuple(rows), tuple(malformed))


def _file_lines(file: Path) -> Sequence[bytes | Fields]:
    lines = file.read_bytes().removeprefix(BYTE_ORDER_MARK).split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _hub_rows(source: Source) -> Sequence[bytes | Fields]:
    from datasets import disable_progress_bars, load_dataset  # takes a second to import
    from datasets.exceptions import DatasetsError

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it warns of every retry
    try:
        parts = [load_dataset(source.dataset, one, split=source.split) for one in source.subsets]
        return [row for part in parts for row in part]
    except (OSError, ValueError, DatasetsError) as error:
        raise ValueError(f"on the hub: {' '.join(str(error).split())}") from error


def normalise(question: str) -> str:
    """Return a question as a reader sees it."""
    return unicodedata.normalize("NFC", " ".join(question.split()))


def check_rows(
    name: str,
    split: Split,
    size: int | None = None,
    examples: int = 0,
    say: Callable[[str], None] = print,
) -> None:
    """Say which rows of a split are malformed, and raise ValueError if too few others are left."""
    reasons = split.malformed
    if reasons:
        more = f"; and {len(reasons) - MAX_PRINTED} more" if len(reasons) > MAX_PRINTED else ""
        total, shown = len(reasons) + len(split.rows), "; ".join(reasons[:MAX_PRINTED])
        say(f"dropped {len(reasons)} of {total} {name} rows: {shown}{more}")
    if not split.rows:
        why = f" ({reasons[0]})" if reasons else ""
        raise ValueError(f"{split.key}: {split.location} has no usable row{why}")
    available = len(split.rows) - examples
    if size is not None and size > available > 0:  # if none is left, few_shot is too large
        besides = f" besides {examples} few-shot examples" if examples else ""
        raise ValueError(
            f"task.{name}_size={size}: must be at most {available}, the number of usable rows in "
            f"{split.location}{besides}"
        )
