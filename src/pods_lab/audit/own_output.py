"""Tell what pods wrote from logs, so that no audit reads its own output, or that of a study.

Folders that an audit or a study wrote are passed over by `walk.py`; here are single files of them.
"""

import json
from collections.abc import Collection
from pathlib import Path

MARK = "audit.json"  # in each folder that an audit writes
MARK_KEYS = {"took", "left_out", "over"}  # of that file
LARGEST_MARK = 2**28  # bytes
STUDY_COLUMNS = {"series", "arm"}  # of all tables of a study, see `writing.write_csv`
RUN_COLUMNS = {"method", "seed", "axes", "first_step", "last_step"}  # of an audit


def is_mark(path: Path) -> bool:
    """Return whether a file is the record of an audit."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_MARK:
            return False
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() >= MARK_KEYS


def is_own_table(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one that pods wrote of a study or an audit."""
    names = set(columns)
    return names >= STUDY_COLUMNS or names >= RUN_COLUMNS
