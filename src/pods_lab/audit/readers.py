"""Find the logs below some paths, and put together what several files say of one run."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pods_lab.audit.formats import FORMATS, Log

PERHAPS = "JSON", "console lines of verl or prime-rl"  # other files end so: counted, not named

OURS, OF_PODS = "identity.json", "runs of pods (see pods compare)"


def read(paths: Sequence[Path], steps: Sequence[str]) -> tuple[list[Log], list[str], Counter[str]]:
    """Read every log below the paths that has a column of `steps`, or raise a ValueError.

    Returns runs, what was left out, and the number of runs by format.
    """
    found: dict[tuple[str, str], list[Log]] = {}
    left_out: list[str] = []
    others: Counter[str] = Counter()
    for path in sorted(_files(paths), key=_order):
        title, reader = next((f[1:] for f in FORMATS if re.fullmatch(f[0], path.name)), ("", None))
        try:
            for log in reader(path) if reader else ():
                if log.columns.isdisjoint(steps):
                    columns = ", ".join(sorted(log.columns)[:5])
                    hint = f"no step column among {columns} (--map FILE with step: [X])"
                    raise ValueError(hint if columns else "no row")
                found.setdefault((title, str(log.config.get("id", log.name))), []).append(log)
        except Exception as error:  # a damaged file makes its library raise anything
            if title not in PERHAPS or path in paths:
                reason = str(error).partition("\n")[0] or type(error).__name__
                left_out.append(f"{path}: not read as {title}: {reason}")
                continue
            reader = None
        if reader is None:
            others[OF_PODS if path.name == OURS else path.suffix or path.name] += 1
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in others.most_common(5))
        left_out.append(f"{others.total()} files are no logs: {kinds}")
    if not found:
        raise ValueError("\n".join(["there is no log", *left_out]))
    return _named(map(_whole, found.values())), left_out, Counter(title for title, _ in found)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files below the paths; without what W&B copies beside a run."""
    for path in dict.fromkeys(paths):
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        yield from [path] if path.is_file() else []
        for folder, below, names in os.walk(path):
            if {OURS, "metrics.jsonl"} <= {*names}:
                names[:], below[:] = [OURS], []
            if "run-" in Path(folder).name and any(name.endswith(".wandb") for name in names):
                below[:] = [name for name in below if name not in ("files", "logs")]  # copies
            yield from (Path(folder, name) for name in names)


def _order(path: Path) -> tuple[str, int]:
    """Sort by name, and of a rotated log the oldest part, with the highest number, first."""
    name, _, number = str(path).rpartition(".")
    return (name, -int(number)) if number.isdigit() and len(number) < 4 else (str(path), 0)


def _whole(parts: Sequence[Log]) -> Log:
    """Put together the files of one run; of a trainer's states the last has all."""
    if parts[0].path.name == "trainer_state.json":
        return max(parts, key=lambda log: len(log.rows))
    for part in parts[1:]:
        parts[0].rows += part.rows
        parts[0].faults += part.faults
        parts[0].columns |= part.columns
    return parts[0]


def _named(found: Iterable[Log]) -> list[Log]:
    """Shorten names that are paths to what tells them apart, and make all names unique."""
    logs = list(found)
    paths = {id(log): os.path.abspath(log.name) for log in logs if log.name in str(log.path)}
    above = os.path.commonpath([os.path.dirname(path) for path in paths.values()] or [""])
    seen: Counter[str] = Counter()
    for log in logs:
        log.name = os.path.relpath(paths.get(id(log), log.name), above if id(log) in paths else ".")
        seen[log.name] += 1
        log.name += f" #{seen[log.name]}" if seen[log.name] > 1 else ""
    return logs
