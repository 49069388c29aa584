"""Tell what pods wrote from logs, so that no audit reads its own output, or that of a study."""

import json
from collections.abc import Collection
from pathlib import Path

MARK = "audit.json"  # in each folder that an audit writes
MARK_KEYS = {"took", "left_out", "over"}  # of that file
BESIDE_MARK = "curves.csv"
TABLE_COLUMNS = {"series", "arm", "n", "m"}  # of all tables of a study, see `writing.write_csv`
LARGEST_MARK = 2**28  # bytes


def is_own_output(folder: Path, names: Collection[str]) -> bool:
    """Whether an audit wrote a folder, whatever it is called now; `names` are its files."""
    return MARK in names and BESIDE_MARK in names and is_mark(folder / MARK)


def is_mark(path: Path) -> bool:
    """Whether a file is the record of an audit."""
    if path.name != MARK:
        return False
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_MARK:
            return False
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() >= MARK_KEYS


def is_own_table(columns: Collection[str]) -> bool:
    """Whether a table with these columns is one that pods wrote of a study."""
    return {*columns} >= TABLE_COLUMNS
