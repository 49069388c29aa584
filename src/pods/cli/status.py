"""`pods status`: one line per run of a study."""

import json
from argparse import ArgumentParser, Namespace

from pods.cli.options import add_study_options
from pods.runs.find import find_runs
from pods.runs.status import format_statuses, status_row


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: Namespace) -> int:
    """Print the table; return 1 if a run failed or was lost."""
    rows = [*map(status_row, find_runs(options.study, options.runs_dir))]
    print(json.dumps(rows, indent=1) if options.json else format_statuses(rows))
    return 1 if any(row["state"] in ("failed", "lost") or row["error"] for row in rows) else 0
