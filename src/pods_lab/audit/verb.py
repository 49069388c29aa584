"""`pods audit`: the verdict for runs of any trainer, from the logs that it left."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pods.analysis.loading.study import Study
    from pods_lab.audit.formats import Log
    from pods_lab.audit.mapping import Mapping

MAP, OUT = Path("pods-audit.yaml"), Path("pods-audit")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="folder or file of logs")
    add("--map", type=Path, help=f"mapping of columns (default: {MAP} if it is there)")
    add("--by", metavar="SOURCE", help="what to compare: name, config:KEY, column:NAME, path:REGEX")
    add("--target", type=float, action="append", metavar="X", help="score whose time is compared")
    add("--init", action="store_true", help=f"write the proposed mapping into {MAP}, and stop")
    add("--json", action="store_true", help="print the findings as JSON")


def audit(*paths: str | Path, **mapping: Any) -> "Study":
    """Read the logs below these paths as a study, which `pods.compare` takes.

    Keys of the mapping that are not given, such as `method="config:lr"`, are proposed, as by the
    verb with `--init`. Its x are seconds if all runs have them, else steps or tokens. A ValueError
    says why no comparison could be made of the logs.
    """
    from pods_lab.audit.foreign import axes, study_of
    from pods_lab.audit.mapping import check_keys

    check_keys(mapping)
    logs, left_out, completed, _ = _read([*map(Path, paths)], mapping, "given")
    return next(axes(study_of(logs, completed, left_out)))


def run(options: argparse.Namespace) -> None:
    """Read the logs, say what was taken, compare, and write page, tables and figures."""
    from pods_lab.audit.findings import write
    from pods_lab.audit.foreign import study_of
    from pods_lab.audit.mapping import read_map, write_map

    path = options.map or (MAP if MAP.is_file() and not options.init else None)
    given = (read_map(path) if path else {}) | ({"method": options.by} if options.by else {})
    source = str(path or "proposed (--init writes it down)")
    logs, left_out, mapping, took = _read(options.paths, given, source)
    if options.init:
        write_map(mapping, MAP)
        print(*took, f"written: {MAP}", sep="\n")
        return
    text, content = write(study_of(logs, mapping, left_out), options.target, {"took": took}, OUT)
    page = f"\npage: {OUT / 'report.html'} (tables and figures beside it)"
    print(json.dumps(content, indent=1) if options.json else "\n".join([*text, page]))


def _read(
    paths: Sequence[Path], given: "Mapping", source: str
) -> tuple[list["Log"], list[str], "Mapping", list[str]]:
    """Return logs, what was left out, the completed mapping, and how to say all that."""
    from pods_lab.audit.mapping import NAMES, differing, propose
    from pods_lab.audit.readers import read

    named = [str(given.get(key)).partition(":") for key in ("method", "seed")]
    about = [name for kind, _, name in named if kind == "column"]
    found = read(paths, [*NAMES["step"], *given.get("step", ())], about)
    logs = found.logs
    mapping, said = propose(logs, given)
    runs = ", ".join(f"{count} runs from {title}" for title, count in found.formats.items())
    differ = "no configs are beside the logs"
    if any(log.config for log in logs):
        differ = f"the configs differ in: {', '.join(differing(logs)[:9]) or 'nothing'}"
    took = [f"read: {runs}; mapping: {source}", *found.notes, *said, differ]
    return logs, found.left_out, mapping, took
