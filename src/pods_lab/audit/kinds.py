"""The kinds of files that are read: how each is called, and who reads it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pods_lab.audit.console import console
from pods_lab.audit.formats import ROTATED, Log
from pods_lab.audit.json_logs import json_file, json_lines
from pods_lab.audit.tables import table
from pods_lab.audit.trackers import tensorboard, trackio, wandb_run


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is called, who reads it, and whether it can hold several runs."""

    pattern: str  # that a file's name has
    title: str
    read: Callable[[Path], Iterator[Log]]
    mixed: bool = False  # columns may say of which run a row is
    perhaps: bool = False  # other files have such names, too


FORMATS = (
    Format(r"trainer_state\.json", "TRL or transformers trainer_state.json", json_file),
    Format(r".*\.wandb", "W&B offline run", wandb_run),
    Format(r".*tfevents.*", "TensorBoard events", tensorboard),
    Format(r".*\.db", "Trackio database", trackio),
    Format(r".*\.jsonl" + ROTATED, "JSON lines", json_lines, mixed=True),
    Format(r".*\.(csv|tsv)" + ROTATED, "CSV", table, mixed=True),
    Format(r".*\.json(\.gz)?", "JSON", json_file, mixed=True, perhaps=True),
    Format(
        r".*\.(log|out|txt)" + ROTATED,
        "console lines of verl, prime-rl or MLPerf",
        console,
        perhaps=True,
    ),
)
"""The first that fits a file's name counts."""


def kind_of(name: str) -> Format | None:
    """Return the format of a file with this name; None: no log has such a name."""
    for kind in FORMATS:
        if re.fullmatch(kind.pattern, name, re.DOTALL):
            return kind
    return None
