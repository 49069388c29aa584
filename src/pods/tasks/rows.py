"""Rows of a data set, read strictly: what cannot be asked and graded is named, never guessed.

A row's number counts from 1, as the lines of its file do. Problems are named after it, so that
leaving rows out renames none of the others.
"""

import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pods.config import TaskConfig
from pods.tasks.fields import Fields, parsed

BOM = b"\xef\xbb\xbf"  # some editors put it first
SHOWN = 3  # reasons that the screen gets; the run's data.json has all
Reader = Callable[[Fields], tuple[str, str, str]]
"""Question, solution and answer of one row's fields; raises ValueError with what is wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question that can be asked and graded."""

    index: int
    """Where it stands in its split as found, from 0."""
    question: str
    solution: str
    """Worked, for the examples; "" where the data have none."""
    answer: str
    """As the data write it."""
    gold: str
    """What answers are graded against."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a split is on the Hugging Face hub."""

    dataset: str
    split: str
    subsets: tuple[str | None, ...] = (None,)
    """Put together in this order."""


@dataclass(frozen=True, slots=True)
class Source:
    """A split of a data set: where it is, and how its rows are read."""

    hub: Hub
    """If there is no file."""
    reader: Reader
    gold: Callable[[str], str] = str
    """What answers are graded against, of the answer as the data write it."""


@dataclass(frozen=True, slots=True)
class Split:
    """One split as it was found."""

    name: str
    """train or test."""
    key: str
    """What the config says of its place, such as task.path=null."""
    place: str
    """Its file, or its place on the hub."""
    rows: tuple[Row, ...]
    faults: Mapping[int, str]
    """What is wrong with each of the other rows, by index."""

    def reasons(self) -> list[str]:
        """Each fault with the number of its row."""
        return [f"row {index + 1}: {why}" for index, why in sorted(self.faults.items())]


def read(config: TaskConfig, train_source: Source, test_source: Source) -> list[Split]:
    """Read the train and the test split, and leave out what is malformed if that is allowed.

    Malformed is what its reader refuses, a question that is there twice in its split, and a train
    question that is also a test question.

    Args:
        config: says where the data are, and whether malformed rows are an error.
        train_source: what is trained on.
        test_source: what is evaluated on.

    Raises:
        ValueError: no data, fewer rows than are asked for, or a malformed row where
            `task.malformed=fail`.
    """
    train, test = _found(config, "train", train_source), _found(config, "test", test_source)
    test = _without({}, test)
    asked = {_plain(row.question): f"test row {row.index + 1}" for row in test.rows}
    splits = [_without(asked, train), test]
    if config.malformed == "fail":
        _refuse(splits)
    for split in splits:
        _report(split)
        if not split.rows:
            why = f" ({split.reasons()[0]})" if split.faults else ""
            raise ValueError(f"{split.key}: {split.place} has no row to ask{why}")
    _see_to_sizes(config, splits)
    return splits


def left_out(splits: Sequence[Split]) -> tuple[str, ...]:
    """The rows that were left out, each with its place and what is wrong with it."""
    return tuple(f"{split.place} {reason}" for split in splits for reason in split.reasons())


def _found(config: TaskConfig, name: str, source: Source) -> Split:
    """One split, whose rows the reader takes or refuses one by one."""
    file, hub = config.files()[name], source.hub
    place = f"{hub.dataset} {hub.split}" if file is None else file.name
    folder = name == "train" or (config.test_set == "own" and config.test_path is None)
    key, value = ("path", config.path) if folder else ("test_path", config.test_path)
    key = f"task.{key}={'null' if value is None else value}"
    try:
        found: Sequence[bytes | Fields] = _from_hub(hub) if file is None else _lines(file)
    except ValueError as error:
        give = "a folder with train.jsonl and test.jsonl" if folder else "a file of JSON lines"
        raise ValueError(f"{key}: cannot read {place} {error}: give {give}") from error
    rows, faults = [], {}
    for index, one in enumerate(found):
        try:
            fields = parsed(one) if isinstance(one, bytes) else one
            question, solution, answer = source.reader(fields)
            rows.append(Row(index, question, solution, answer, source.gold(answer)))
        except ValueError as error:
            faults[index] = str(error)
    return Split(name, key, place, tuple(rows), faults)


def _lines(file: Path) -> list[bytes]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"({error.strerror})") from error
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.removeprefix(BOM) if i == 0 else line for i, line in enumerate(lines)]


def _from_hub(hub: Hub) -> list[Fields]:
    from datasets import disable_progress_bars, load_dataset  # takes a second to import
    from datasets.exceptions import DatasetsError

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # out of reach: each retry
    try:
        parts = [load_dataset(hub.dataset, part, split=hub.split) for part in hub.subsets]
        return [row for part in parts for row in part]
    except (OSError, ValueError, DatasetsError) as error:
        raise ValueError(f"on the hub ({' '.join(str(error).split())})") from error


def _without(asked: Mapping[str, str], split: Split) -> Split:
    """Count as faults the questions that were asked already, before this split or in it."""
    seen, rows, faults = dict(asked), [], dict(split.faults)
    for row in split.rows:
        before = seen.setdefault(_plain(row.question), f"row {row.index + 1}")
        if before == f"row {row.index + 1}":
            rows.append(row)
        else:
            faults[row.index] = f"the question of {before} again"
    return replace(split, rows=tuple(rows), faults=faults)


def _plain(question: str) -> str:
    """A question as a reader sees it."""
    return unicodedata.normalize("NFC", " ".join(question.split()))


def _refuse(splits: Sequence[Split]) -> None:
    faults = left_out(splits)
    key = next((split.key for split in splits if split.faults), "")
    if len(faults) == 1:
        raise ValueError(f"{key}: {faults[0]} (task.malformed=drop leaves it out)")
    if faults:
        raise ValueError(f"{key}: {faults[0]} (the first of {len(faults)} malformed rows; "
                         "task.malformed=drop leaves them out)")  # fmt: skip


def _see_to_sizes(config: TaskConfig, splits: Sequence[Split]) -> None:
    """A pool that is smaller than the config says is not the one that was meant."""
    sizes, shown = (config.train_size, config.test_size), (config.few_shot, 0)
    for split, size, examples in zip(splits, sizes, shown, strict=True):
        there = len(split.rows) - examples
        if size is not None and size > there > 0:  # none left: few_shot is what is wrong
            beside = f", beside {examples} for examples" if examples else ""
            raise ValueError(f"task.{split.name}_size={size}: must be at most {there}: "
                             f"{split.place} has no more rows to ask{beside}")  # fmt: skip


def _report(split: Split) -> None:
    if split.faults:
        reasons, total = split.reasons(), len(split.rows) + len(split.faults)
        more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
        print(f"left out {len(reasons)} of {total} {split.name} rows: "
              f"{'; '.join(reasons[:SHOWN])}{more}")  # fmt: skip
