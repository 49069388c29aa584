"""Read every log below some paths, and put together what several files say of one run."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pods_lab.audit.derived import add_timing
from pods_lab.audit.formats import Log, NoLog, check_file, one_line, run_path, some
from pods_lab.audit.kinds import Format, kind_of
from pods_lab.audit.names import named, printable_log
from pods_lab.audit.own_output import is_own_table
from pods_lab.audit.parts import whole
from pods_lab.audit.several_runs import by_run
from pods_lab.audit.walk import is_below, walk

FINAL = "tables of final scores"
FINAL_STEP = "step"  # a column that their rows are given
SHOWN = 5  # files without a step column, and runs that a note names
SHOWN_KINDS = 5  # of files that are no logs


@dataclass
class Reading:
    """What was read below some paths."""

    logs: list[Log] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)  # number of runs by format
    left_out: list[str] = field(default_factory=list)  # a line for each log that was not read
    notes: list[str] = field(default_factory=list)  # how runs were read, and what is no log


def read(
    paths: Sequence[Path], steps: Collection[str] | None, run_columns: Collection[str] = ()
) -> Reading:
    """Read every log below the paths that has a column of `steps`; None takes those without, too.

    The `run_columns` say of which run a row is, besides those with usual names. Tables with one
    row for each run count if there is nothing else. A ValueError says that there is no log.
    """
    listing = walk(paths)
    reading = Reading(left_out=listing.left_out, notes=listing.notes)
    reader = _Reader(paths, steps, run_columns, reading)
    reader.not_logs.update(listing.ours)
    for path in listing.files:
        reader.take(path)
    reader.finish()
    return reading


@dataclass
class _Reader:
    """Files are taken one by one; what they say of runs is put together at the end."""

    paths: Sequence[Path]
    steps: Collection[str] | None
    run_columns: Collection[str]
    reading: Reading
    parts: dict[tuple[str, str], list[Log]] = field(default_factory=dict)  # by title and run
    finals: list[list[Log]] = field(default_factory=list)  # a row for each run
    not_logs: Counter[str] = field(default_factory=Counter)  # number of files by ending
    stepless: list[str] = field(default_factory=list)

    def take(self, path: Path) -> None:
        """Read a file, or say why it cannot be read."""
        kind = kind_of(path.name)
        if kind is None:
            self._count_as_no_log(path)
            return
        try:
            runs = self._runs(path, kind)
        except Exception as error:  # a damaged file makes its library raise anything
            self._refuse(path, kind, error)
            return

        columns = _columns(runs)
        if is_own_table(columns):
            self.not_logs["tables of pods"] += 1
            return
        if len(runs) > 1:
            _take_common_faults(path, runs, self.reading.left_out)
        has_named_step = self.steps is not None and self._has_steps(columns)
        if _is_final(runs) and not has_named_step:
            self.finals.append(runs)
        else:
            self._add(kind.title, runs)

    def _has_steps(self, columns: Collection[str]) -> bool:
        return self.steps is None or any(name in columns for name in self.steps)

    def _runs(self, path: Path, kind: Format) -> list[Log]:
        """Read the runs of a file, or raise an error that says why it cannot be used."""
        check_file(path)
        runs: list[Log] = []
        for log in kind.read(path):
            if kind.mixed:
                runs += by_run(log, self.run_columns)
            else:
                runs.append(log)

        columns = _columns(runs)
        if not columns:
            raise ValueError("no row")
        if not self._has_steps(columns) and not _is_final(runs):
            shown = ", ".join(sorted(columns)[:5])
            raise NoLog(
                f"no step column among {shown} (--map FILE with step: [X], or if each row is the "
                "final score of a run: --by column:NAME)"
            )
        return runs

    def _add(self, title: str, runs: Sequence[Log]) -> None:
        for run in runs:
            key = run.key or run_path(run.path)
            self.parts.setdefault((title, key), []).append(run)

    def _count_as_no_log(self, path: Path) -> None:
        self.not_logs[path.suffix or path.name] += 1

    def _refuse(self, path: Path, kind: Format, error: Exception) -> None:
        """Say why a file was not read; of a file that need not be a log, only that it is there."""
        reason = self._reason(path, error)
        line = f"{one_line(path)}: not read as {kind.title}: {reason}"
        must_be_log = not kind.perhaps and not isinstance(error, NoLog)
        if must_be_log or path in self.paths:
            self.reading.left_out.append(line)
        elif kind.perhaps:
            self._count_as_no_log(path)
        else:
            self.stepless.append(line)

    def _reason(self, path: Path, error: Exception) -> str:
        """Return one line without a word of what is in a file that lies elsewhere."""
        if path.is_symlink() and not is_below(path, self.paths):
            return "it is a link to another place, and no log"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        first_line = str(error).partition("\n")[0]
        return one_line(first_line) or type(error).__name__

    def finish(self) -> None:
        """Put together the runs, and say what else lies there."""
        self._finish_finals()
        notes = self.reading.notes
        notes += self.stepless[:SHOWN]
        if len(self.stepless) > SHOWN:
            notes.append(f"{len(self.stepless) - SHOWN} more files have no step column")
        if self.not_logs:
            common = self.not_logs.most_common(SHOWN_KINDS)
            kinds = [f"{count} {one_line(kind)}" for kind, count in common]
            notes.append(f"{self.not_logs.total()} files are no logs: {', '.join(kinds)}")
        if not self.parts:
            raise ValueError("\n".join(["there is no log", *self.reading.left_out, *notes]))

        logs = [printable_log(whole(runs)) for runs in self.parts.values()]
        for log in logs:
            add_timing(log)
        self.reading.logs = named(logs)
        self.reading.formats = Counter(title for title, _ in self.parts)
        notes += _common_notes(logs)

    def _finish_finals(self) -> None:
        """Take the tables of final scores, if no other file has runs."""
        others_have_steps = bool(self.parts)
        for runs in self.finals:
            text = f"{one_line(runs[0].path)}: no step column"
            if others_have_steps:
                self.stepless.append(f"{text}, and other files have one")
                continue
            note = f"{text}: each of its {len(runs)} rows is the final score of a run"
            self.reading.notes.append(note)
            for run in runs:
                run.rows = [{FINAL_STEP: 1} | row for row in run.rows]
            self._add(FINAL, runs)


def _common_notes(logs: Sequence[Log]) -> list[str]:
    """Return the notes of all runs, each once with the runs that have it."""
    names: dict[str, list[str]] = {}
    for log in logs:
        for note in log.notes:
            names.setdefault(note, []).append(log.name)
    return [f"{note}: {some(runs, SHOWN)}" for note, runs in names.items()]


def _columns(runs: Sequence[Log]) -> set[str]:
    columns: set[str] = set()
    for run in runs:
        columns |= run.columns
    return columns


def _is_final(runs: Sequence[Log]) -> bool:
    """Return whether each row is a run of its own, which its method, seed or name tells."""
    return all(run.key and len(run.rows) == 1 for run in runs)


def _take_common_faults(path: Path, runs: Sequence[Log], left_out: list[str]) -> None:
    """Say what is wrong with a file of several runs once, and not of each run."""
    faults: list[str] = []
    for run in runs:
        faults += run.faults
        run.faults = []
    for fault in dict.fromkeys(faults):
        left_out.append(f"{one_line(path)}: {fault}")
