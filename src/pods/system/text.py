"""Text for a terminal: aligned tables, durations, and commands as the user types them."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

INSTALLED = Path(__file__).parents[1] / "run.py"  # a clone has it one folder above
RUN = "pods run" if INSTALLED.is_file() else "python src/run.py"  # as this user types it
SHOWN = 40  # lines of one kind that a screen shows: as many as it has


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first, the last and names to the left, numbers to the right.

    >>> print(table(("arm", "seed", ""), [("pods", "3", "fine")]))
    arm   seed
    pods     3  fine
    """
    to_the_left = {header[0], header[-1], "id", "state"}
    columns = []
    for name, *cells in zip(header, *rows, strict=True):
        width = max(map(len, [name, *cells]))
        align = str.ljust if name in to_the_left else str.rjust
        columns.append([align(cell, width) for cell in [name, *cells]])

    lines = zip(*columns, strict=True)
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


def short(lines: Sequence[str], most: int = SHOWN, rest: str = "more") -> list[str]:
    """Return the first lines or names, and as the last one how many more there are, if any.

    >>> ", ".join(short(["a", "b", "c"], most=1))
    'a, and 2 more'
    """
    left_out = len(lines) - most
    if left_out <= 0:
        return list(lines)
    return [*lines[:most], f"and {left_out:,} {rest}"]


def duration(seconds: float) -> str:
    """Format seconds for a reader.

    >>> duration(75), duration(7500), duration(8)
    ('1 min 15 s', '2 h 05 min', '8 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{rest} s"


def gigabytes(size: float) -> str:
    """Format bytes for a reader, in GB (10^9) if it is one or more.

    >>> gigabytes(130_270_900_000), gigabytes(7_960_000)
    ('130.3 GB', '8.0 MB')
    """
    if size >= 1e9:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:.1f} MB"


def command() -> str:
    """Return the command line of this process, so that it can be typed again."""
    name = Path(sys.argv[0]).name
    program = {"run.py": RUN, "main.py": "pods"}.get(name, name)
    return f"{program} {shlex.join(sys.argv[1:])}".strip()
