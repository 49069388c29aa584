"""`pods status`: one line per run of a study, or per study."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pods.analysis.loading.series_names import varied
from pods.cli.options import add_study_options
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.files import size
from pods.runs.find import find_runs
from pods.runs.status import format_statuses, status_row
from pods.runs.store import RunStore, run_folders
from pods.system.errors import DONE, FAILED
from pods.system.text import table


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, word="name or folder of a study (default: list the studies)")
    parser.set_defaults(study=None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: Namespace) -> int:
    """Print the table; return 1 if a run failed or was lost."""
    runs_dir = options.runs_dir
    if options.study is None:
        rows, text = _studies(runs_dir)
        unwell = any("failed" in row or "lost" in row for row in rows)
    else:
        rows, text = _runs(find_runs(options.study, runs_dir))
        unwell = any(row["state"] in ("failed", "lost") or row["error"] for row in rows)
    print(json.dumps(rows, indent=1) if options.json else text)
    return FAILED if unwell else DONE


def _runs(folders: Sequence[Path]) -> tuple[list[dict[str, Any]], str]:
    """Return a row per run, with the keys that vary in the study, and the table."""
    rows = [status_row(folder) for folder in folders]
    readable = []
    runs = []
    for row, folder in zip(rows, folders, strict=True):
        store = RunStore(folder)
        with suppress(*READ_ERRORS):  # the row says why
            runs.append((store.config(), store.identity()))
            readable.append(row)

    values = varied(runs)
    for row, keys in zip(readable, values, strict=True):
        row.update(keys)
    columns = list(values[0]) if values else []
    return rows, format_statuses(rows, columns)


def _studies(runs_dir: Path) -> tuple[list[dict[str, Any]], str]:
    """Return a row per study: megabytes, last change, and runs by state; and the table."""
    rows: list[dict[str, Any]] = []
    for folder in sorted(runs_dir.glob("*")):
        runs = run_folders(folder)
        if runs:
            about = {
                "study": folder.name,
                "MB": round(size(folder) / 1e6, 1),
                "last change": _last_change(folder),
            }
            rows.append(about | Counter(status_row(run)["state"] for run in runs))
    if not rows:
        find_runs("default", runs_dir)  # says what is there

    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[str(row.get(key, 0)) for key in keys] for row in rows]
    return rows, table(keys, cells)


def _last_change(folder: Path) -> str:
    """Return when a study or a file of its runs was last changed, to the minute."""
    changed = [folder.stat().st_mtime]
    changed += [path.stat().st_mtime for path in folder.glob("*/*/seed*/*.json")]
    return datetime.fromtimestamp(max(changed)).isoformat(" ", "minutes")
