"""The study that all verbs share: the tables of its runs, and what is known of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from pods.analysis.loading.series_names import SEPARATOR
from pods.runs.plan import Registered

MEASURED = "measured"
KEY = ["series", "seed", "run"]  # the first columns of each table


@dataclass(frozen=True)
class Study:
    """The runs of one figure. Accuracies are fractions, averaged over repeats within a run."""

    name: str
    runs: pd.DataFrame
    """One row per run: series, seed, run, arm, rule, n, m, the keys that vary, settings (equal in
    runs that differ in nothing but rule, n, m and seed), prompts, complete, machine, versions; not
    in imported logs cpu_share (CPU seconds per second of training, on a CPU) and started (when
    the first attempt began, in UTC)."""
    evaluations: pd.DataFrame
    """One row per (run, checkpoint): series, seed, run, step, train_seconds, repeats, questions,
    and shares or means of the answers: accuracy; lenient (correct by the PODS authors' grader; only
    if a run has it); format; both (correct and in the requested format); length; and, not in
    imported logs, no_answer, timeouts (grading took too long) and the columns `passes`."""
    steps: pd.DataFrame
    """One row per (run, step): series, seed, run and the numbers of metrics.jsonl."""
    machines: list[str]  # processors or GPUs that the runs ran on
    budget: str  # the training budget per run, for a reader
    missing: list[str]  # what is missing, duplicated or damaged, where that was allowed
    inconsistencies: list[str]
    """In what the runs differ although they should not, where that was allowed."""
    order: Sequence[str]
    """All curves of the study's folder in the order of their colours, "" for what is not loaded."""
    seeded: bool = True
    """Equal seeds mean equal prompts and draws, so that runs may be paired."""
    note: str = ""  # what a reader of imported logs, or of a time by prices, has to know
    metric: str = "accuracy"
    """The measure that the column accuracy holds; see `pods.analysis.loading.filter`."""
    share: bool = True
    """Scores are shares, shown in percent and points; False: numbers of a unit of their own."""
    x: str = "train_seconds"
    """The column of `evaluations` and `steps` that curves are drawn over; see the same module."""
    until: float = math.inf
    """End of the window that is shown and compared, in the unit of x."""
    baseline: str | None = None
    """Name of the curve that the others are compared with; none: the GRPO arm."""
    clock: str = MEASURED
    """Where the training seconds come from: `measured`, or at which prices."""
    prices: Mapping[str, Any] | None = None
    """The card that the clock is made by, as `pods.config.price_card` has it."""
    varied: Sequence[str] = ()
    """The keys that tell curves of one arm, n and m apart; each is a column of `runs`."""
    plans: Sequence[Registered] = ()
    """The plans that the study has had, the newest last."""
    own_starts: bool = False
    """Each seed has a start policy of its own, which is a part of what its seed stands for."""
    seeds: Sequence[int] = ()
    """The seeds of all runs in rising order, also of those that failed or never began."""

    @property
    def per_step(self) -> str:
        """The column with what a step costs: seconds_per_step, or dollars_per_step."""
        return f"{self.clock_column.removeprefix('train_')}_per_step"

    @property
    def clock_column(self) -> str:
        """The column with the clock: train_seconds, or at prices in money dollars."""
        return "train_seconds" if self.prices is None else self.x

    @property
    def scale(self) -> float:
        """What a score is multiplied by before a text or an axis shows it."""
        return 100.0 if self.share else 1.0

    @property
    def difference_unit(self) -> str:
        """What a difference of scores is in."""
        return "points" if self.share else "units of the score"

    @cached_property
    def complete(self) -> set[str]:
        """The names of the runs with nothing missing."""
        return set(self.runs.run[self.runs.complete])


def passes(table: pd.DataFrame) -> list[str]:
    """List the columns with shares of questions that one of k answers solves, pass@1 first."""
    names = [str(name) for name in table.filter(regex=r"^pass@\d+$")]
    return sorted(names, key=lambda name: int(name.removeprefix("pass@")))


def with_columns(table: pd.DataFrame, study: Study, names: Sequence[str]) -> pd.DataFrame:
    """Put columns of `Study.runs` behind the series of a table; those that it has stay."""
    by_series = study.runs.drop_duplicates("series").set_index("series")
    wider = table.copy()
    behind = list(table).index("series") + 1
    for name in names:
        if name not in table:
            wider.insert(behind, name, table.series.map(by_series[name]))
            behind += 1
    return wider


def by_key(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Show each key that varies as a column, and no more in the names of the series."""
    if not study.varied:
        return table
    shown = with_columns(table, study, study.varied)
    for name in study.varied:
        shown[name] = shown[name].astype(str)
    shown["series"] = shown.series.str.partition(SEPARATOR)[0]
    return shown
