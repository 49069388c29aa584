"""`pods status`: one line per run of a study, or per study."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pods.analysis.loading.series_names import sortable, varied
from pods.cli.options import add_study_options
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.files import size
from pods.runs.find import find_runs
from pods.runs.status import format_statuses, status_row
from pods.runs.store import RunStore, run_folders
from pods.system.errors import DONE, FAILED
from pods.system.text import table

PLACE = "model-task"  # a column, if a study has several; of other runs a key says nothing
UNWELL = ("failed", "lost")  # states of runs of which somebody should know


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, word="name or folder of a study (default: list the studies)")
    parser.set_defaults(study=None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: Namespace) -> int:
    """Print the table; return 1 if a run failed or was lost."""
    if options.study is None:
        listing = _studies(options.runs_dir)
    else:
        listing = _runs(find_runs(options.study, options.runs_dir))
    print(json.dumps(listing.rows, indent=1) if options.json else listing.text)
    return FAILED if listing.unwell else DONE


@dataclass(frozen=True)
class _Listing:
    """What is shown, as JSON and as a table, and whether a run failed or was lost."""

    rows: list[dict[str, Any]]
    text: str
    unwell: bool


def _runs(folders: Sequence[Path]) -> _Listing:
    """List runs, with the keys that vary among those of the same model and task.

    They are sorted by what their rows show, from the left: arm, n, m, these keys, and seed.
    """
    rows = [status_row(folder) for folder in folders]
    places = defaultdict(list)
    for row, folder in zip(rows, folders, strict=True):
        places[folder.parents[1].name].append(row)

    columns: dict[str, None] = {}
    for place, alike in places.items():
        if len(places) > 1:
            columns[PLACE] = None
            for row in alike:
                row[PLACE] = place
        columns |= dict.fromkeys(_add_varied(alike))

    sorted_by = ["arm", "n", "m", *columns, "seed"]
    rows.sort(key=lambda row: [sortable(row.get(key)) for key in sorted_by])
    unwell = any(row["state"] in UNWELL or row["error"] for row in rows)
    return _Listing(rows, format_statuses(rows, list(columns)), unwell)


def _add_varied(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Add to the rows of readable runs the values of the keys that vary; return the keys."""
    readable = []
    runs = []
    for row in rows:
        store = RunStore(Path(row["folder"]))
        with suppress(*READ_ERRORS):  # the row says why
            runs.append((store.config(), store.identity()))
            readable.append(row)

    keys: list[str] = []
    for row, values in zip(readable, varied(runs), strict=True):
        row.update(values)
        keys = list(values)
    return keys


def _studies(runs_dir: Path) -> _Listing:
    """List studies: megabytes, last change, and the number of runs in each state."""
    rows: list[dict[str, Any]] = []
    for folder in sorted(runs_dir.glob("*")):
        runs = run_folders(folder)
        if runs:
            rows.append(_study_row(folder, runs))
    if not rows:
        find_runs("default", runs_dir)  # says what is there

    keys: dict[str, None] = {}
    for row in rows:
        keys |= dict.fromkeys(row)
    cells = [[str(row.get(key, 0)) for key in keys] for row in rows]
    return _Listing(rows, table(list(keys), cells), unwell=not keys.keys().isdisjoint(UNWELL))


def _study_row(folder: Path, runs: Sequence[Path]) -> dict[str, Any]:
    states = Counter(status_row(run)["state"] for run in runs)
    return {
        "study": folder.name,
        "MB": round(size(folder) / 1e6, 1),
        "last change": _last_change(folder),
    } | states


def _last_change(folder: Path) -> str:
    """Return when a study or a file of its runs was last changed, to the minute."""
    changed = [folder.stat().st_mtime]
    changed += [path.stat().st_mtime for path in folder.glob("*/*/seed*/*.json")]
    return datetime.fromtimestamp(max(changed)).isoformat(" ", "minutes")
