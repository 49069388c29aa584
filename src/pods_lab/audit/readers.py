"""Read every log below some paths, and put together what several files say of one run."""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pods_lab.audit.console import console
from pods_lab.audit.formats import (
    ROTATED,
    Log,
    NoLog,
    by_run,
    check_file,
    one_line,
    run_path,
)
from pods_lab.audit.json_logs import json_file, json_lines
from pods_lab.audit.own_output import is_own_table
from pods_lab.audit.parts import whole
from pods_lab.audit.tables import table
from pods_lab.audit.trackers import tensorboard, trackio, wandb_run
from pods_lab.audit.walk import is_below, walk

FINAL = "tables of final scores"
FINAL_STEP = "step"  # a column that their rows are given
SHOWN = 5  # files without a step column, and runs that a note names
LONGEST_PATH = 4096  # letters that Linux takes
TIMESTAMP = re.compile(r"v\d+-\d{8}-\d{6}|\d{8}[-_]\d{6}")  # a folder that a trainer made


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is called, who reads it, and whether it can hold several runs."""

    pattern: str  # that a file's name has
    title: str
    read: Callable[[Path], Iterator[Log]]
    mixed: bool = False  # columns may say of which run a row is
    perhaps: bool = False  # other files have such names, too


FORMATS = (
    Format(r"trainer_state\.json", "TRL or transformers trainer_state.json", json_file),
    Format(r".*\.wandb", "W&B offline run", wandb_run),
    Format(r".*tfevents.*", "TensorBoard events", tensorboard),
    Format(r".*\.db", "Trackio database", trackio),
    Format(r".*\.jsonl" + ROTATED, "JSON lines", json_lines, mixed=True),
    Format(r".*\.(csv|tsv)" + ROTATED, "CSV", table, mixed=True),
    Format(r".*\.json(\.gz)?", "JSON", json_file, mixed=True, perhaps=True),
    Format(
        r".*\.(log|out|txt)" + ROTATED,
        "console lines of verl or prime-rl",
        console,
        perhaps=True,
    ),
)
"""The first that fits a file's name counts."""


@dataclass
class Reading:
    """What was read below some paths."""

    logs: list[Log] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)  # number of runs by format
    left_out: list[str] = field(default_factory=list)  # a line for each log that was not read
    notes: list[str] = field(default_factory=list)  # how runs were read, and what is no log


def read(
    paths: Sequence[Path], steps: Collection[str] | None, about: Collection[str] = ()
) -> Reading:
    """Read every log below the paths that has a column of `steps`; None takes those without, too.

    The columns `about` say of which run a row is, besides those with usual names. Tables with one
    row for each run count if there is nothing else. A ValueError says that there is no log.
    """
    found = walk(paths)
    reader = _Reader(paths, steps, about, Reading(left_out=found.left_out, notes=found.notes))
    reader.others += found.ours
    for path in found.files:
        reader.take(path)
    reader.finish()
    return reader.reading


@dataclass
class _Reader:
    """Files are taken one by one; what they say of runs is put together at the end."""

    paths: Sequence[Path]
    steps: Collection[str] | None
    about: Collection[str]
    reading: Reading
    parts: dict[tuple[str, str], list[Log]] = field(default_factory=dict)  # by title and run
    finals: list[list[Log]] = field(default_factory=list)  # a row for each run
    others: Counter[str] = field(default_factory=Counter)  # files that are no logs, by ending
    stepless: list[str] = field(default_factory=list)

    def take(self, path: Path) -> None:
        """Read a file, or say why it cannot be read."""
        kind = next(
            (kind for kind in FORMATS if re.fullmatch(kind.pattern, path.name, re.DOTALL)), None
        )
        if kind is None:
            self.others[path.suffix or path.name] += 1
            return
        try:
            runs = self._runs(path, kind)
        except Exception as error:  # a damaged file makes its library raise anything
            self._refuse(path, kind, error)
            return
        if is_own_table(_columns(runs)):
            self.others["tables of pods"] += 1
            return
        if len(runs) > 1:
            _take_common_faults(path, runs, self.reading.left_out)
        may_lack_steps = self.steps is None or not self._has_steps(_columns(runs))
        if may_lack_steps and _is_final(runs):
            self.finals.append(runs)
        else:
            self._add(kind.title, runs)

    def _has_steps(self, columns: Collection[str]) -> bool:
        return self.steps is None or any(name in columns for name in self.steps)

    def _runs(self, path: Path, kind: Format) -> list[Log]:
        """Read the runs of a file, or raise an error that says why it cannot be used."""
        check_file(path)
        runs = list(kind.read(path))
        if kind.mixed:
            runs = [run for log in runs for run in by_run(log, self.about)]
        columns = _columns(runs)
        if not columns:
            raise ValueError("no row")
        if not self._has_steps(columns) and not _is_final(runs):
            shown = ", ".join(sorted(columns)[:5])
            raise NoLog(f"no step column among {shown} (--map FILE with step: [X])")
        return runs

    def _add(self, title: str, runs: Sequence[Log]) -> None:
        for run in runs:
            self.parts.setdefault((title, run.key or run_path(run.path)), []).append(run)

    def _refuse(self, path: Path, kind: Format, error: Exception) -> None:
        """Say why a file was not read; of a file that need not be a log, only that it is there."""
        reason = self._reason(path, error)
        line = f"{one_line(path)}: not read as {kind.title}: {reason}"
        if path in self.paths or not (kind.perhaps or isinstance(error, NoLog)):
            self.reading.left_out.append(line)
        elif kind.perhaps:
            self.others[path.suffix or path.name] += 1
        else:
            self.stepless.append(line)

    def _reason(self, path: Path, error: Exception) -> str:
        """Return one line without a word of what is in a file that lies elsewhere."""
        if path.is_symlink() and not is_below(path, self.paths):
            return "it is a link to another place, and no log"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        return one_line(str(error).partition("\n")[0]) or type(error).__name__

    def finish(self) -> None:
        """Put together the runs, and say what else lies there."""
        notes = self.reading.notes
        with_steps = bool(self.parts)
        for runs in self.finals:
            text = f"{one_line(runs[0].path)}: no step column"
            if with_steps:
                self.stepless.append(f"{text}, and other files have one")
                continue
            notes.append(f"{text}: each of its {len(runs)} rows is the final score of a run")
            for run in runs:
                run.rows = [{FINAL_STEP: 1} | row for row in run.rows]
            self._add(FINAL, runs)
        notes += self.stepless[:SHOWN]
        if len(self.stepless) > SHOWN:
            notes.append(f"{len(self.stepless) - SHOWN} more files have no step column")
        if self.others:
            kinds = [f"{count} {one_line(kind)}" for kind, count in self.others.most_common(5)]
            notes.append(f"{self.others.total()} files are no logs: {', '.join(kinds)}")
        if not self.parts:
            raise ValueError("\n".join(["there is no log", *self.reading.left_out, *notes]))
        logs = [_printable(whole(runs)) for runs in self.parts.values()]
        self.reading.logs = _named(logs)
        self.reading.formats = Counter(title for title, _ in self.parts)
        notes += _said_together(logs)


def _said_together(logs: Sequence[Log]) -> list[str]:
    """Return the notes of all runs, each once with the runs that have it."""
    names: dict[str, list[str]] = {}
    for log in logs:
        for note in log.notes:
            names.setdefault(note, []).append(log.name)
    return [f"{note}: {_some(runs)}" for note, runs in names.items()]


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _columns(runs: Sequence[Log]) -> set[str]:
    return set().union(*(run.columns for run in runs))


def _is_final(runs: Sequence[Log]) -> bool:
    """Return whether each row is a run of its own, which its method, seed or name tells."""
    return all(run.key and len(run.rows) == 1 for run in runs)


def _take_common_faults(path: Path, runs: Sequence[Log], left_out: list[str]) -> None:
    """Say what is wrong with a file of several runs once, and not of each run."""
    faults = dict.fromkeys(fault for run in runs for fault in run.faults)
    left_out += [f"{one_line(path)}: {fault}" for fault in faults]
    for run in runs:
        run.faults = []


def _printable(log: Log) -> Log:
    """Show control characters of a file as text, so that no terminal obeys them."""
    if not all(column.isprintable() for column in log.columns):
        rows = [{one_line(name): cell for name, cell in row.items()} for row in log.rows]
        log = replace(log, rows=rows)
    for row in log.rows:
        for name, cell in row.items():
            if isinstance(cell, str) and not cell.isprintable():
                row[name] = one_line(cell)
    config = {one_line(key): _printable_value(value) for key, value in log.config.items()}
    path = Path(one_line(log.path, LONGEST_PATH))
    return replace(log, path=path, config=config, machine=one_line(log.machine))


def _printable_value(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def _named(logs: list[Log]) -> list[Log]:
    """Name runs without a name by what tells their paths apart, and make all names unique."""
    paths = {place: run_path(log.path) for place, log in enumerate(logs) if not log.name}
    absolute = {place: os.path.abspath(path) for place, path in paths.items()}
    above = os.path.commonpath([os.path.dirname(path) for path in absolute.values()] or ["/"])
    relative = {place: os.path.relpath(path, above) for place, path in absolute.items()}
    short = {place: _without_timestamps(path) for place, path in relative.items()}
    if len(set(short.values())) == len(set(relative.values())):
        relative = short
    seen: Counter[str] = Counter()
    for place, log in enumerate(logs):
        name = one_line(log.name or relative[place] + log.ending)
        seen[name] += 1
        log.name = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return logs


def _without_timestamps(path: str) -> str:
    parts = [part for part in path.split("/") if not TIMESTAMP.fullmatch(part)]
    return "/".join(parts) or path
