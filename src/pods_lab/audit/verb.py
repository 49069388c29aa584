"""`pods audit`: the verdict for runs of any trainer, from the logs that it left."""

import argparse
import json
from pathlib import Path

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


def run(options: argparse.Namespace) -> int:
    """Read the logs, say what was taken, compare, and write page, tables and figures."""
    from pods_lab.audit.findings import write
    from pods_lab.audit.foreign import study_of
    from pods_lab.audit.mapping import NAMES, differing, propose, read_map, write_map
    from pods_lab.audit.readers import read

    path = options.map or (MAP if MAP.is_file() and not options.init else None)
    given = (read_map(path) if path else {}) | ({"method": options.by} if options.by else {})
    logs, left_out, formats = read(options.paths, [*NAMES["step"], *given.get("step", ())])
    mapping, said = propose(logs, given)
    runs = ", ".join(f"{count} runs from {title}" for title, count in formats.items())
    took = [f"read: {runs}; mapping: {path or 'proposed (--init writes it down)'}", *said]
    took.append(f"the configs differ in: {', '.join(differing(logs)[:9]) or 'nothing'}")
    if options.init:
        write_map(mapping, MAP)
        print(*took, f"written: {MAP}", sep="\n")
        return 0
    text, content = write(study_of(logs, mapping, left_out), options.target, {"took": took}, OUT)
    page = f"\npage: {OUT / 'report.html'} (tables and figures beside it)"
    print(json.dumps(content, indent=1) if options.json else "\n".join([*text, page]))
    return 0
