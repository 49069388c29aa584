"""Write the tables of the READMEs from the CSV files beside them: `python experiments/tables.py`.

The rows of such a table are written from the comment above it:

    <!-- table by series
    compare.arms.csv
    compare.csv where outcome == "mean_accuracy" as gain
    |{series}|{mean mean_accuracy}|{points gain}|
    -->
    |arm|mean, %|minus grpo, points|
    |---|---|---|
    <!-- end -->

There is a row for each line of the first file. The others join it by the named columns, and `as`
puts a name before the rest of theirs. A field is `{expression:format}`, Python that computes with
the columns, or one of `FORMS` with the name before its columns. Without its numbers it is empty.
"""

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- table by ([^\n]+)\n(.*?)-->\n(.*?)<!-- end -->", re.S)
FIELD = re.compile(r"\{(.+?)(?::([^{}:]*[a-z%]))?\}")
SOURCE = re.compile(r"^(\S+\.csv)(?: where (.+?))?(?: as (\w+))?$")


def points(estimate: float, low: float, high: float) -> str:
    """Write a difference of shares in points, with its interval."""
    return f"{100 * estimate:+.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def times(ratio: float, low: float, high: float, bound: float) -> str:
    """Write how many times as fast an arm is, or the bound if half of the runs never arrive."""
    if ratio == 0 or math.isinf(ratio):
        return f"{'<' if ratio == 0 else '>'} {bound:.2f}"
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


def mean(value: float, stderr: float) -> str:
    """Write a share in percent, with its standard error."""
    return f"{100 * value:.2f} ± {100 * stderr:.2f}"


def tested(p: float) -> str:
    """Write a p value."""
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


FORMS = {
    "tested": (tested, ["_p_holm"]),
    "points": (points, ["_estimate", "_low", "_high"]),
    "times": (times, ["_ratio", "_low", "_high", "_bound"]),
    "mean": (mean, ["", "_stderr"]),
}


def read(folder: Path, line: str, keys: list[str]) -> pd.DataFrame:
    """Read one source of a table: a file, the lines wanted, and the name before its columns."""
    name, query, prefix = SOURCE.findall(line)[0]
    lines = pd.read_csv(folder / name, comment="#")
    lines = lines.query(query) if query else lines
    names = {column: re.sub(r"\W", "_", column) for column in lines if column not in keys}
    return lines.rename(columns={c: f"{prefix}_{n}" if prefix else n for c, n in names.items()})


def field(row: dict[str, Any], found: re.Match[str]) -> str | None:
    """Write one field, or return None if its number is missing."""
    expression, form = found.groups()
    name, _, prefix = expression.partition(" ")
    if name in FORMS and name not in row:
        write, ends = FORMS[name]
        numbers = [row[(prefix + end).lstrip("_")] for end in ends]
        return None if math.isnan(numbers[0]) else write(*numbers)

    value = eval(expression, {"__builtins__": {}}, row)
    if isinstance(value, float) and math.isnan(value):
        return None
    return format(value, form or "")


def cell(row: dict[str, Any], template: str) -> str:
    """Fill one cell of a row; one whose number is missing is empty."""
    fields = [field(row, found) for found in FIELD.finditer(template)]
    if None in fields:
        return ""
    return FIELD.sub(lambda _: str(fields.pop(0)), template)


def rows(folder: Path, keys: list[str], comment: str) -> list[str]:
    """Write the rows of one table."""
    *sources, template = comment.strip().splitlines()
    lines = read(folder, sources[0], keys)
    for source in sources[1:]:
        lines = lines.merge(read(folder, source, keys), on=keys, how="left", validate="m:1")
    cells = template.split("|")
    return ["|".join(cell(row, part) for part in cells) for row in lines.to_dict("records")]


def filled(path: Path) -> str:
    """Return the text of a README with the rows of its tables written anew."""

    def fill(block: re.Match[str]) -> str:
        keys, head = block[1].split(", "), block[3].splitlines()[:2]
        made = "\n".join([*head, *rows(path.parent, keys, block[2])])
        return f"<!-- table by {block[1]}\n{block[2]}-->\n{made}\n<!-- end -->"

    return BLOCK.sub(fill, path.read_text())


def readmes() -> list[Path]:
    """Return the READMEs whose tables and decimals come from CSV files."""
    return [ROOT / "README.md", *sorted((ROOT / "experiments").rglob("*.md"))]


if __name__ == "__main__":
    for readme in readmes():
        text = filled(readme)
        if text != readme.read_text():
            readme.write_text(text)
            print(readme.relative_to(ROOT))
