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
from pods.system.text import table


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, word="name or folder of a study (default: list the studies)")
    parser.set_defaults(study=None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: Namespace) -> int:
    """Print the table; return 1 if a run failed or was lost."""
    runs_dir, study = options.runs_dir, options.study
    rows, text = _studies(runs_dir) if study is None else _runs(find_runs(study, runs_dir))
    print(json.dumps(rows, indent=1) if options.json else text)
    unwell = [{"failed", "lost"} & {*row, row.get("state")} or row.get("error") for row in rows]
    return 1 if any(unwell) else 0


def _runs(folders: Sequence[Path]) -> tuple[list[dict[str, Any]], str]:
    """Return a row per run, with the keys that vary in the study, and the table."""
    rows, readable = [*map(status_row, folders)], []
    for row, store in zip(rows, map(RunStore, folders), strict=True):
        with suppress(*READ_ERRORS):  # the row says why
            readable.append((row, (store.config(), store.identity())))
    values = varied([run for _, run in readable])
    for (row, _), of in zip(readable, values, strict=True):
        row.update(of)
    return rows, format_statuses(rows, [*values[0]] if values else [])


def _studies(runs_dir: Path) -> tuple[list[dict[str, Any]], str]:
    """Return a row per study: megabytes, last change, and runs by state; and the table."""
    rows: list[dict[str, Any]] = []
    for folder in sorted(runs_dir.glob("*")):
        if runs := run_folders(folder):
            states = Counter(row["state"] for row in map(status_row, runs))
            changed = [path.stat().st_mtime for path in (folder, *folder.glob("*/*/seed*/*.json"))]
            when = datetime.fromtimestamp(max(changed)).isoformat(" ", "minutes")
            about = {"study": folder.name, "MB": round(size(folder) / 1e6, 1), "last change": when}
            rows.append(about | states)
    if not rows:
        find_runs("default", runs_dir)  # says what is there
    keys = tuple(dict.fromkeys(key for row in rows for key in row))
    return rows, table(keys, [tuple(str(row.get(key, 0)) for key in keys) for row in rows])
