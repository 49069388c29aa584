"""Find the files below some paths: safely in a stranger's folder, and not what we wrote there."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pods_lab.audit.formats import ENDING, one_line

RUN_OF_PODS = {"identity.json", "metrics.jsonl"}
PAGE_OF_AUDIT = {"audit.json", "report.html"}
COPIES_OF_WANDB = ("files", "logs")  # beside the file of an offline run
LATEST_DATE = 10**9  # above all of eight digits, so that dated parts are older than the log itself


@dataclass
class Listing:
    """What lies below some paths."""

    files: list[Path] = field(default_factory=list)  # in the order of names, old parts first
    left_out: list[str] = field(default_factory=list)  # folders that cannot be listed
    notes: list[str] = field(default_factory=list)
    ours: Counter[str] = field(default_factory=Counter)  # folders of pods, which are no logs


def walk(paths: Sequence[Path]) -> Listing:
    """List the files below the paths; a path that is not there is a ValueError.

    Links to files are followed, links to folders are not. Neither what W&B copies beside a run nor
    the runs, pages and figures of pods are listed.
    """
    listing = Listing()
    for path in paths:
        if not os.path.lexists(path):
            raise ValueError(f"{one_line(path)}: no such file or folder")
        if path.is_dir():
            _walk_folder(path, paths, listing)
        else:
            listing.files.append(path)

    unique: dict[str, Path] = {}
    for path in listing.files:
        unique.setdefault(os.path.abspath(path), path)
    listing.files = sorted(unique.values(), key=_order)
    return listing


def is_below(path: str | Path, tops: Iterable[Path]) -> bool:
    """Return whether a path, its links resolved, is one of the tops or lies below one."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(top)) for top in tops)


def _walk_folder(top: Path, paths: Sequence[Path], listing: Listing) -> None:
    """Add what lies below a folder, without recursion: it may be thousands of folders deep."""
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as scanned:
                entries = list(scanned)
        except OSError as error:
            listing.left_out.append(f"{one_line(folder)}: {error.strerror}")
            continue

        names = {entry.name for entry in entries}
        kind = _kind_of_pods(names)
        if kind:
            listing.ours[kind] += 1
            continue
        copied = _copied_by_wandb(folder, names)
        for entry in entries:
            if not _is_folder(entry):
                listing.files.append(Path(entry.path))
            elif entry.is_symlink():
                _note_link(entry.path, paths, listing)
            elif entry.name not in copied:
                waiting.append(entry.path)


def _note_link(path: str, tops: Sequence[Path], listing: Listing) -> None:
    """Say that a link to a folder is not followed, unless the folder is listed anyway."""
    if not is_below(path, tops):
        listing.notes.append(f"{one_line(path)}: a link, which is not followed")


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):  # links in a circle
        return entry.is_dir()
    return False


def _copied_by_wandb(folder: str, names: set[str]) -> tuple[str, ...]:
    """Return the folders in which W&B copies files of a run, if the folder is that of a run."""
    if "run-" not in os.path.basename(folder):
        return ()
    has_run = any(name.endswith(".wandb") for name in names)
    return COPIES_OF_WANDB if has_run else ()


def _kind_of_pods(names: set[str]) -> str:
    """Return what of pods a folder with these files is; empty: nothing."""
    if names >= RUN_OF_PODS:
        return "runs of pods (see pods compare)"
    if names >= PAGE_OF_AUDIT:
        return "pages of pods audit"
    for name in names:
        figure = name.removesuffix(".runs.csv")
        if figure != name and {f"{figure}.csv", f"{figure}.json"} <= names:
            return "folders of figures of pods"
    return ""


class _Order(NamedTuple):
    """By what files are sorted."""

    parts: list[list[str | int]]
    """The names of the folders and of the file, split so that 9 comes before 10."""
    age: int
    """Less for the older parts of a log that was set aside."""


def _order(path: Path) -> _Order:
    """Sort by the numbers in names, and of a log that was set aside the oldest part first."""
    name = path.name
    age = 0
    ending = ENDING.search(name)
    if ending and ending["rotation"] and ending.end() == len(name):
        rotation = ending["rotation"]
        name = name[: ending.start("rotation")]
        number = int(rotation[1:])
        is_date = rotation.startswith("-")
        age = number - LATEST_DATE if is_date else -number
    parts = [_natural(part) for part in (*path.parent.parts, name)]
    return _Order(parts, age)


def _natural(text: str) -> list[str | int]:
    """Split a name so that 9 comes before 10.

    >>> _natural("seed10.csv")
    ['seed', 10, '.csv']
    """
    parts: list[str | int] = []
    for place, part in enumerate(re.split(r"(\d+)", text)):
        is_number = place % 2 == 1
        parts.append(int(part) if is_number else part)
    return parts
