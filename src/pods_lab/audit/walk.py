"""Find the files below some paths: safely in a stranger's folder, and not what we wrote there."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pods_lab.audit.formats import ENDING, one_line

RUN_OF_PODS = {"identity.json", "metrics.jsonl"}
PAGE_OF_AUDIT = {"audit.json", "report.html"}
COPIES_OF_WANDB = ("files", "logs")  # beside the file of an offline run

Order = tuple[list[list[str | int]], int]


@dataclass
class Found:
    """What lies below some paths."""

    files: list[Path] = field(default_factory=list)  # in the order of names, old parts first
    left_out: list[str] = field(default_factory=list)  # folders that cannot be listed
    notes: list[str] = field(default_factory=list)
    ours: Counter[str] = field(default_factory=Counter)  # folders of pods, which are no logs


def walk(paths: Sequence[Path]) -> Found:
    """List the files below the paths; a path that is not there is a ValueError.

    Links to files are followed, links to folders are not. Neither what W&B copies beside a run nor
    the runs, pages and figures of pods are listed.
    """
    found = Found()
    for path in paths:
        if not os.path.lexists(path):
            raise ValueError(f"{one_line(path)}: no such file or folder")
        if path.is_dir():
            _walk_folder(path, paths, found)
        else:
            found.files.append(path)
    unique = {os.path.abspath(path): path for path in reversed(found.files)}
    found.files = sorted(unique.values(), key=_order)
    return found


def is_below(path: str | Path, tops: Iterable[Path]) -> bool:
    """Return whether a path, its links resolved, is one of the tops or lies below one."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(top)) for top in tops)


def _walk_folder(top: Path, paths: Sequence[Path], found: Found) -> None:
    """Add what lies below a folder, without recursion: it may be thousands of folders deep."""
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as error:
            found.left_out.append(f"{one_line(folder)}: {error.strerror}")
            continue
        names = {entry.name for entry in listed}
        kind = _kind_of_pods(names)
        if kind:
            found.ours[kind] += 1
            continue
        of_wandb = "run-" in os.path.basename(folder)
        of_wandb = of_wandb and any(name.endswith(".wandb") for name in names)
        copied = COPIES_OF_WANDB if of_wandb else ()
        for entry in listed:
            if not _is_folder(entry):
                found.files.append(Path(entry.path))
            elif entry.is_symlink():
                if not is_below(entry.path, paths):
                    found.notes.append(f"{one_line(entry.path)}: a link, which is not followed")
            elif entry.name not in copied:
                waiting.append(entry.path)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):  # links in a circle
        return entry.is_dir()
    return False


def _kind_of_pods(names: set[str]) -> str:
    """Return what of pods a folder with these files is; empty: nothing."""
    if names >= RUN_OF_PODS:
        return "runs of pods (see pods compare)"
    if names >= PAGE_OF_AUDIT:
        return "pages of pods audit"
    figures = (name.removesuffix(".runs.csv") for name in names if name.endswith(".runs.csv"))
    if any({f"{figure}.csv", f"{figure}.json"} <= names for figure in figures):
        return "folders of figures of pods"
    return ""


def _order(path: Path) -> Order:
    """Sort by the numbers in names, and of a log that was set aside the oldest part first."""
    name = path.name
    age = 0
    ending = ENDING.search(name)
    if ending and ending["rotation"] and ending.end() == len(name):
        rotation = ending["rotation"]
        name = name[: ending.start("rotation")]
        is_date = rotation.startswith("-")  # as the newest date is last, so is the least number
        age = int(rotation[1:]) - 10**9 if is_date else -int(rotation[1:])
    return [_natural(part) for part in (*path.parent.parts, name)], age


def _natural(text: str) -> list[str | int]:
    """Split a name so that 9 comes before 10."""
    parts = re.split(r"(\d+)", text)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
