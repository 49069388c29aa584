"""The lines of `pods plan STUDY --hardware NAME`: what a study will cost, and by what right."""

import math
from collections.abc import Iterable, Iterator, Sequence

from pods.analysis.cost.cluster import DRAWS, Failures, Job, forecast
from pods.analysis.cost.floor import Card
from pods.analysis.cost.plan_words import time_text
from pods.analysis.cost.price import EVALUATION_LINE, TOKEN_TEXT, Priced
from pods.runs.status import duration, table

UNKNOWN = "not known"


def about_arms(priced: Sequence[Priced]) -> Iterator[str]:
    """A row an arm, and where its steps are from."""
    yield table(
        ("arm", "jobs", "GPUs", "training", "a step", "steps a run", "evaluations", "disk a run",
         ""),
        [(arm.name, str(arm.jobs), str(arm.gpus), _time(arm.train_seconds),
          _known(arm.step.seconds, time_text(arm.step.seconds)), _count(arm.steps),
          _most(arm.at_most) + _count(arm.evaluations), _sum(arm.disk.values(), arm.at_most), "")
         for arm in priced],
    )  # fmt: skip
    for source in dict.fromkeys(arm.step.source for arm in priced):
        names = ", ".join(arm.name for arm in priced if arm.step.source == source)
        yield f"a step of {names}: {source}"


def about_hours(priced: Sequence[Priced], overhead: float, card: Card | None, tokens: int) -> (
    Iterator[str]
):  # fmt: skip
    """GPU-hours: exact, measured, or at least."""
    hours = sum(arm.gpu_hours for arm in priced)
    yield f"GPU-hours of training clock: {_hours(hours)} (jobs x budget x GPUs)"
    if not math.isnan(overhead):
        more = sum(arm.jobs * arm.gpus for arm in priced) * overhead / 3600
        yield (f"start, checkpoints, evaluation: {_hours(more)} more, {duration(overhead)} a run "
               "as measured here")  # fmt: skip
        return
    if card is None:
        yield f"start, checkpoints, evaluation: {UNKNOWN}"
        return
    least = sum(arm.jobs * arm.gpus * arm.evaluations * arm.evaluation_floor for arm in priced)
    yield (f"evaluations, a floor{_so_many(priced)}: {_hours(least / 3600)}; "
           f"start and checkpoints: {UNKNOWN}"
           + (" (steps place these)" if math.isnan(least) else ""))  # fmt: skip
    floors = ", ".join(f"{arm.name} {time_text(arm.step_floor)}" for arm in priced)
    yield f"a step, a floor: {floors}"
    yield (f"  (floors, no estimates: {tokens} tokens a completion, {card.flops / 1e12:g} "
           f"TFLOP/s, weights read at {card.bandwidth / 1e12:g} TB/s once a token)")  # fmt: skip


def about_disk(priced: Sequence[Priced]) -> Iterator[str]:
    """Bytes of the whole study by part, and how they come about."""
    parts = {part: sum(arm.jobs * arm.disk[part] for arm in priced) for part in priced[0].disk}
    at_most = any(arm.at_most for arm in priced)
    yield (f"disk: {_sum(parts.values(), at_most)} = "
           + " + ".join(f"{part} {_size(size)}" for part, size in parts.items()))  # fmt: skip
    yield ("  (a checkpoint: 4 bytes a trained number; optimizer: 8, in the last two; evaluations: "
           f"{EVALUATION_LINE} an answer; rollouts: {TOKEN_TEXT} a token at full length, not "
           "compressed)")  # fmt: skip


def about_wall(
    jobs: Sequence[Job], gpus: Sequence[int], failures: Failures, machine: int
) -> Iterator[str]:
    """Wall time, idle share and what failures cost, for each number of GPUs."""
    largest = max(job.gpus for job in jobs)
    small = [str(count) for count in gpus if count < largest]
    rows = [forecast(jobs, count, failures, machine) for count in gpus if count >= largest]
    if small:
        yield f"too few for a job, which takes {largest}: {', '.join(small)}"
    broken = failures.rate > 0
    header = ["GPUs", "wall time", "no less than", "idle", "tail"]
    more = ["longest", "restarts", "lost GPU-hours"] if broken else []
    yield table(
        (*header, *more, ""),
        [(f"{row['gpus']:.0f}", _wall(row["wall"]), _wall(row["bound"]),
          f"{100 * row['idle']:.1f} %", _wall(row["tail"]),
          *((_wall(row["worst"]), f"{row['restarts']:.1f}", f"{row['lost']:.1f}")
            if broken else ()), "")
         for row in rows],
    )  # fmt: skip
    if broken:
        yield (f"failures: {failures.rate:g} a GPU-hour, GPUs back after "
               f"{duration(3600 * failures.restart)}; means of {DRAWS} draws")  # fmt: skip


def _wall(hours: float) -> str:
    return duration(3600 * hours)


def _time(seconds: float) -> str:
    return _known(seconds, duration(seconds) if not math.isnan(seconds) else "")


def _hours(hours: float) -> str:
    return _known(hours, f"{hours:,.1f}")


def _count(value: float) -> str:
    return _known(value, f"{value:,.0f}")


def _size(size: float) -> str:
    return _known(size, f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB")


def _sum(sizes: Iterable[float], at_most: bool) -> str:
    """The sum of what is known, and whether that is all, or the most."""
    parts = list(sizes)
    known = [size for size in parts if not math.isnan(size)]
    if len(known) == len(parts):
        return _most(at_most) + _size(sum(known))
    return f"≤ {_size(sum(known))} + ?" if at_most else f"≥ {_size(sum(known))}"


def _most(at_most: bool) -> str:
    return "≤ " if at_most else ""


def _so_many(priced: Sequence[Priced]) -> str:
    """What a floor of evaluations holds for."""
    return " if there are so many" if any(arm.at_most for arm in priced) else ""


def _known(value: float, text: str) -> str:
    return UNKNOWN if math.isnan(value) else text
