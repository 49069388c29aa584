"""`pods audit`: the verdict for runs of any trainer, from the logs that it left."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pods.analysis.loading.study import Study
    from pods_lab.audit.mapping import Given
    from pods_lab.audit.readers import Reading

MAP = Path("pods-audit.yaml")
OUT = Path("pods-audit")
SHOWN_KEYS = 9  # config keys in which runs differ


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="folder or file of logs")
    add("--map", type=Path, help=f"mapping of columns (default: {MAP} if it is there)")
    add("--by", metavar="SOURCE", help="what to compare: name, config:KEY, column:NAME, path:REGEX")
    plan = "plan of contrasts, by the keys of plan in conf/README.md; without one all explores"
    add("--plan", type=Path, metavar="FILE", help=plan)
    add("--target", type=float, action="append", metavar="X", help="score whose time is compared")
    add("--init", action="store_true", help=f"write the proposed mapping into {MAP}, and stop")
    add("--out", type=Path, default=OUT, metavar="FOLDER", help=f"for the page (default: {OUT})")
    add("--json", action="store_true", help="print the findings as JSON")


def audit(*paths: str | Path, **mapping: Any) -> "Study":
    """Read the logs below these paths as a study, which `pods.compare` takes.

    Keys of the mapping that are not given, such as `method="config:lr"`, are proposed, as by the
    verb with `--init`. Its x are seconds if all runs have them, else steps or tokens. A ValueError
    says why no comparison could be made of the logs.
    """
    from pods_lab.audit.axes import axes
    from pods_lab.audit.derived import add_mean
    from pods_lab.audit.foreign import study_of
    from pods_lab.audit.mapping import check, typed
    from pods_lab.audit.propose import propose

    given = typed(mapping)
    reading = _read([Path(path) for path in paths], given)
    given = add_mean(reading.logs, given)
    complete = check(reading.logs, propose(reading.logs, given))
    audited = study_of(reading.logs, complete, reading.left_out, given)
    return next(axes(audited.study))


def run(options: argparse.Namespace) -> None:
    """Read the logs, say what was taken, compare, and write page, tables and figures."""
    from pods.runs.plan import plan_of_file
    from pods_lab.audit.derived import add_mean
    from pods_lab.audit.findings import check_folder, planned_of, write
    from pods_lab.audit.foreign import study_of
    from pods_lab.audit.mapping import check, count_columns, read_map, typed, write_map
    from pods_lab.audit.propose import mapping_lines, propose

    path = options.map
    if path is None and not options.init:
        path = MAP if MAP.is_file() else None
    given = read_map(path) if path else {}
    if options.by:
        given |= typed({"method": options.by})
    check_folder(options.out)
    plan = None if options.plan is None else plan_of_file(options.plan)
    reading = _read(options.paths, given, any_steps=options.init)
    given = add_mean(reading.logs, given)
    mapping = propose(reading.logs, given)
    if options.init:
        write_map(mapping, count_columns(reading.logs), MAP)
        lines = mapping_lines(reading.logs, mapping, given)
        print("\n".join([*lines, f"written: {MAP}"]))
        return

    mapping = check(reading.logs, mapping)
    source = str(path or "proposed (--init writes it down)")
    took = [_files_line(reading, source), *reading.notes]
    took += mapping_lines(reading.logs, mapping, given)
    took.append(_config_line(reading))
    audited = study_of(reading.logs, mapping, reading.left_out, given)
    planned = planned_of(audited.study, plan)
    about = {"planned": planned, "took": took}
    lines, content = write(audited, mapping, options.target, about, options.out)
    if options.json:
        print(json.dumps(content, indent=1))
    else:
        page = f"\npage: {options.out / 'report.html'} (tables and figures beside it)"
        print("\n".join([*lines, page]))


def _files_line(reading: "Reading", source: str) -> str:
    """Say how many runs were read from which formats."""
    runs = [f"{count} runs from {title}" for title, count in reading.formats.items()]
    return f"read: {', '.join(runs)}; mapping: {source}"


def _config_line(reading: "Reading") -> str:
    """Say in which config keys the runs differ."""
    from pods_lab.audit.propose import differing

    if not any(log.config for log in reading.logs):
        return "no configs are in the logs"
    keys = differing(reading.logs)[:SHOWN_KEYS]
    return f"the configs differ in: {', '.join(keys) or 'nothing'}"


def _read(paths: Sequence[Path], given: "Given", any_steps: bool = False) -> "Reading":
    """Read all runs below the paths; with `any_steps` also those without a known step column.

    A ValueError says that there is none.
    """
    from pods_lab.audit.mapping import NAMES, columns_of_runs
    from pods_lab.audit.readers import read

    steps = None if any_steps else NAMES["step"] + given.get("step", [])
    return read(paths, steps, columns_of_runs(given))
