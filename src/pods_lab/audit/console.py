"""Read lines that trainers print: verl's `step:3 - critic/score/mean:0.4`, prime-rl's, MLPerf's."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pods_lab.audit.formats import Log, Row, content
from pods_lab.audit.mllog import MARK, read_mllog
from pods_lab.audit.values import number

VERL = re.compile(r"\bstep:(?P<step>\d{1,18}) - (?P<metrics>.*)")
PRIME_RL = re.compile(
    r"\bStep (?P<step>\d{1,18}) \| (?P<metrics>.*)"
)  # Step 3 | Time: 2.5s | Reward: 0.25
VALUE = re.compile(r"np\.|tensor\(|-?\d|nan|-?inf|True|False")  # how one begins
NUMBER = re.compile(r"(?:np\.\w+\(|tensor\()?(-?(?:\d[\d,]*(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf))")


def console(path: Path) -> Iterator[Log]:
    """Read the lines of verl and prime-rl that have a step, or the events of MLPerf."""
    text = content(path).decode(errors="replace")
    if MARK in text:
        events, config, notes = read_mllog(text)
        yield Log("", path, events, config, notes=notes)
        return

    rows = []
    for line in text.splitlines():
        verl = VERL.search(line)
        if verl:
            numbers = _numbers(_whole_names(verl["metrics"]))
            rows.append({"step": int(verl["step"])} | numbers)
            continue
        prime_rl = PRIME_RL.search(line)
        if prime_rl:
            numbers = _numbers(prime_rl["metrics"].split("|"))
            rows.append({"step": int(prime_rl["step"])} | numbers)
    yield Log("", path, rows)


def _whole_names(text: str) -> Iterator[str]:
    """Split a line of verl at its dashes, but not where a dash is in the name of a data set.

    >>> list(_whole_names("val/Some Org/a - b/acc:0.5 - time:2.5"))
    ['val/Some Org/a - b/acc:0.5', 'time:2.5']
    """
    before = ""
    for part in text.split(" - "):
        _name, _colon, value = part.rpartition(":")
        if VALUE.match(value):
            yield before + part
            before = ""
        else:
            before += f"{part} - "


def _numbers(pairs: Iterable[str]) -> Row:
    """Return the numbers of texts such as `Time: 2.5s` by their names, which may hold colons."""
    row: Row = {}
    for pair in pairs:
        name, _, text = pair.rpartition(":")
        match = NUMBER.match(text.strip())
        if name and match:
            row[name.strip()] = number(match[1])
    return row
