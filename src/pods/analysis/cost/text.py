"""The lines that `pods plan` prints: tables, one verdict per pair of arms, a list of caveats."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pods.analysis.cost.forecast import EXPENSIVE_STEPS, largest_n
from pods.analysis.cost.model import (
    STEP,
    TOKENS,
    CostModel,
    coefficient,
    predict,
    repeat_sd,
    why_not_identifiable,
)
from pods.analysis.cost.roofline import Gpu
from pods.analysis.cost.schedule import DRAWS, Failures
from pods.analysis.tables import clock_text
from pods.config.schema import BudgetConfig
from pods.memory.fit import advice
from pods.memory.plan import make_plan
from pods.memory.shape import GIB, Shape, host_memory
from pods.runs.status import duration, table

if TYPE_CHECKING:
    from pods.analysis.cost.price import PricedArm
    from pods.config.presets import PresetJobs

UNITS = {"generated": "n", "kept": "m", "token": "1,000 tokens"}
UNKNOWN = "not known"
OUTSIDE = "outside the measured range"


def fit_lines(
    name: str, model: CostModel, fits: pd.DataFrame, misfits: pd.DataFrame
) -> Iterator[str]:
    """Describe a setting: its line, how well it fits, its phases, the residuals."""
    runs, line = model.measured, model.total
    prompts = sorted(runs.prompts.unique())
    yield (
        f"{name}: {len(runs)} runs, {len(runs[['n', 'm']].drop_duplicates())} (n, m), "
        f"prompts per step: {', '.join(map(str, prompts))}"
    )
    reason = why_not_identifiable(model)
    yield reason or f"seconds per step = {_formula(model)}  (± standard error)"
    if not reason:
        worst = misfits.iloc[int(misfits.percent.abs().to_numpy().argmax())]
        yield (
            f"R² {line.r2:z.4f}, residual sd {time_text(line.residual_sd)} (among runs of one "
            f"(n, m): {time_text(repeat_sd(model))}), largest residual {worst.n}→{worst.m} "
            f"{_percent(worst.percent)}"
        )
    elif np.isfinite(coefficient(model, "generated")[0] + coefficient(model, "kept")[0]):
        yield f"summed over the phases: seconds per step = {_formula(model)}"
    if model.phases:
        yield _table(_phases(fits, model.prompts))
    yield _table(_misfit(row) for _, row in misfits.iterrows())
    if not reason and line.combinations == line.rank:
        yield f"- as many (n, m) as coefficients ({len(STEP)}), so linearity is unchecked"
    if not reason and model.phases:
        apart = (misfits.phases / misfits.fitted - 1).abs().max()
        yield f"- the phases add up to the line within {100 * apart:.1f} % at every (n, m)"
    uneven = runs[~runs.index.isin(model.steady.index)]
    if len(uneven):
        yield (
            f"- {', '.join(uneven.arm.unique())}: prompts are resampled or skipped, so steps "
            "differ in cost; not fitted, only among the residuals; `pods compare` times these arms"
        )
    if len(prompts) > 1:
        yield f"- prompts per step differ: the phases' slopes are for {model.prompts} prompts"


def _formula(model: CostModel) -> str:
    """Write fixed + b n + c m, or per rollout where runs differ in prompts per step."""
    single = model.steady.prompts.nunique() == 1
    parts = []
    for term in STEP:
        value, stderr = coefficient(model, term)
        unit = model.prompts if single and term != "fixed" else 1
        name = ("" if single else "prompts x ") + UNITS[term] if term in UNITS else ""
        parts.append(f"{_with_error(unit * value, unit * stderr)} {name}".strip())
    return " + ".join(parts)


def _with_error(value: float, stderr: float) -> str:
    """Round to two digits of the error.

    >>> _with_error(4.4142, 0.2445), _with_error(0.0584, float("nan"))
    ('(4.41 ± 0.24)', '0.0584')
    """
    if not stderr > 0:
        return f"{value:.3g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    return f"({value:.{digits}f} ± {stderr:.{digits}f})"


def _phases(fits: pd.DataFrame, prompts: int) -> Iterator[dict[str, str]]:
    """Yield a row per phase, and per phase by its tokens; a dash where a part is not identified."""
    for _, row in fits[fits.what != "step"].iterrows():
        phase = row.what.removesuffix(" by tokens")
        term = "token" if phase != row.what else row["by"].split(" + ")[-1]
        slope = row[term] * (1000 if term == "token" else prompts)
        constant = term == "fixed" or math.isnan(row.r2)
        yield {
            "phase": phase,
            "grows with": UNITS.get(term, "-"),
            "fixed": time_text(row.fixed),
            "per unit": "-" if term == "fixed" else time_text(slope),
            "R²": "-" if constant else f"{row.r2:z.3f}",
        }


def _misfit(row: pd.Series) -> dict[str, str]:
    return {
        "n→m": f"{row.n}→{row.m}",
        "rule": row["rule"],
        "arm": row["arm"],
        "runs": str(row.runs),
        "measured": time_text(row.seconds),
        "fitted": time_text(row.fitted),
        "residual": time_text(row.residual, "+", row.fitted),
        "": _percent(row.percent),
    }


def prediction_table(rows: pd.DataFrame) -> str:
    """Show the predicted steps and runs, and which of them extrapolate."""
    phases = [str(column) for column in rows if str(column).startswith("seconds/")]
    shown = [phase for phase in phases if rows[phase].abs().max() > 0.01 * rows.seconds.max()]
    tokens = [column for column in TOKENS.values() if column in rows]
    lines = []
    for _, row in rows.iterrows():
        error = f" ± {time_text(row.stderr, like=row.seconds)}" if row.stderr >= 0 else ""
        notes = [OUTSIDE] if row.outside else []
        notes += ["sum of the phases"] if row.source == "phases" else []
        notes = ["not identifiable"] if np.isnan(row.seconds) else notes
        shares = {p: f"{100 * row[p] / row[phases].sum(skipna=False):.0f} %" for p in shown}
        lines.append(
            {
                "n→m": f"{row.n}→{row.m}",
                "per step": time_text(row.seconds) + error,
                **{
                    p.removeprefix("seconds/"): share.replace("nan %", "-")
                    for p, share in shares.items()
                },
                **{column.replace("_", " "): _count(row[column], "-") for column in tokens},
                "steps": _count(row.steps, "-"),
                "train time": "-" if np.isnan(row.train_seconds) else clock_text(row.train_seconds),
                "": ", ".join(notes),
            }
        )
    return _table(lines)


def sweep_line(sweep: pd.DataFrame, sizes: int, seeds: int, budget: BudgetConfig) -> str:
    """Say how long the sweep takes, or what is missing to know it."""
    ((runs, slots, wall, hours, overhead),) = sweep.itertuples(index=False)
    what = f"{sizes} x {seeds} seeds = {runs} runs, {slots} at a time: "
    if budget.train_seconds is None and budget.max_steps is None:
        return what + "not known, because the runs have no budget; give --seconds or --steps"
    if np.isnan(hours):
        return what + "not known, because the time of some step is not identifiable"
    rest = "not measured, not included" if np.isnan(overhead) else f"{overhead:.1f} s per run"
    return (
        f"{what}{clock_text(wall)}, {hours:.2f} hours of a GPU or of a job's cores; "
        f"start, checkpoints and evaluation: {rest}"
    )


def break_even_lines(pairs: pd.DataFrame) -> Iterator[str]:
    """Show what the steps of two arms cost, and which arm that favours."""
    groups = [rows for _, rows in pairs.groupby(["expensive", "cheaper"], sort=False)]
    if groups:
        yield _table(_cost(rows.iloc[0]) for rows in groups)
    yield from (_verdict(rows) for rows in groups if rows.target.notna().all())


def _cost(pair: pd.Series) -> dict[str, str]:
    """Compare the seconds per step, and name the phases with over 5 % of the difference."""
    total = pair.seconds - pair.cheaper_seconds
    extra = pair[[key for key in pair.index if str(key).startswith("extra/")]].astype(float)
    large = extra[extra.abs() > 0.05 * total].sort_values(key=lambda s: -s.abs())
    phases = [
        f"{str(p).removeprefix('extra/')} {time_text(s, '+', total)}" for p, s in large.items()
    ]
    error = f" ± {pair.cost_stderr:.2f}" if pair.cost_stderr >= 0 else ""
    notes = [OUTSIDE] if pair.outside else []
    notes += [] if pd.notna(pair.target) else [pair.verdict]
    return {
        "expensive arm": pair.expensive,
        "cheaper arm": pair.cheaper,
        "seconds per step": f"{time_text(pair.seconds)} / {time_text(pair.cheaper_seconds)}",
        "break-even": f"{pair.cost:.2f}{error}",
        "difference": ", ".join(phases) or "-",
        "": "; ".join(notes),
    }


def _verdict(rows: pd.DataFrame) -> str:
    """Say how many fewer steps the expensive arm needs, and which arm is faster."""
    pair = rows.iloc[0]
    verdict = pair.verdict
    if verdict in ("expensive", "cheaper"):
        decided = int((rows.winner == verdict).sum())
        part = f", at {decided} of {len(rows)} accuracies" if decided < len(rows) else ""
        verdict = f"this machine favours {pair[verdict]}{part}"
    return (
        f"{pair.expensive} against {pair.cheaper}: {_range(rows.steps_ratio)} x fewer steps to "
        f"accuracy {_range(rows.target)}, so {_range(rows.speedup)} x as fast (95 % "
        f"{rows.low.min():.2f} to {rows.high.max():.2f}): {verdict}"
    )


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"


def largest_n_lines(model: CostModel, nm: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Say how far n can grow before a step costs twice one of m→m."""
    for m in dict.fromkeys(m for n, m in nm if m < n):
        n = largest_n(model, m)
        if np.isfinite(n):
            outside = predict(model, m, m).outside or predict(model, math.ceil(n), m).outside
            note = f" ({OUTSIDE})" if outside else ""
            steps = f"{EXPENSIVE_STEPS:g} steps of {m}→{m}"
            yield f"- m = {m}: a step costs {steps} at n = {n:.0f}{note}"


def preset_lines(
    preset: str, sweep: "PresetJobs", arms: Sequence["PricedArm"], gpu: Gpu | None
) -> Iterator[str]:
    """Show the jobs of a preset, one row per arm."""
    jobs, seeds = len(sweep.configs), len({config.seed for config in sweep.configs})
    where = f"{gpu.name}, {sweep.machine} per machine" if gpu else "one GPU stands for one job"
    yield (
        f"{preset} on {arms[0].config.hardware.name} ({where}), not yet run: {len(arms)} arms x "
        f"{seeds} seeds = {jobs} jobs, {sweep.gpus} GPU{'s' if sweep.gpus > 1 else ''} each; at "
        f"most {sweep.machine // sweep.gpus} at a time per machine"
    )
    yield _table(
        {
            "arm": arm.name,
            "jobs": str(arm.jobs),
            "GPUs": str(arm.gpus),
            "training": UNKNOWN if math.isnan(arm.train_seconds) else duration(arm.train_seconds),
            "per step": time_text(arm.step.seconds).replace("-", UNKNOWN),
            "at least": time_text(arm.step_bound).replace("-", UNKNOWN),
            "steps": _count(arm.steps),
            "evaluations": _at_most(arm) + _count(arm.evaluations),
            "disk per run": _at_most(arm) + _total(arm.disk.values()),
            "source of the time per step": arm.step.source,
        }
        for arm in arms
    )


def hours_lines(
    arms: Sequence["PricedArm"], overhead: float, gpu: Gpu | None, tokens: int
) -> Iterator[str]:
    """Show the GPU-hours: exact, measured, or lower bounds."""
    rest = UNKNOWN
    least = sum(arm.jobs * arm.gpus * arm.evaluations * arm.evaluation_bound for arm in arms)
    if not math.isnan(overhead):
        hours = sum(arm.jobs * arm.gpus for arm in arms) * overhead / 3600
        rest = f"{hours:,.1f} more, as measured ({duration(overhead)} per run)"
    elif not math.isnan(least):
        number = " for this number of them" if any(arm.at_most for arm in arms) else ""
        rest += f", evaluations at least {least / 3600:,.1f}{number}"
    yield (
        f"GPU-hours of training clock: {sum(arm.gpu_hours for arm in arms):,.1f} (jobs x budget x "
        f"GPUs); of start, checkpoints and evaluation: {rest}"
    )
    if gpu is not None:
        yield (
            f"- lower bounds, not estimates: {tokens} tokens per completion, {gpu.flops / 1e12:g} "
            f"TFLOP/s, weights read at {gpu.bandwidth / 1e12:g} TB/s once per token"
        )


def disk_lines(arms: Sequence["PricedArm"], per_answer: int, per_token: int) -> Iterator[str]:
    """Show the bytes of the whole study by part, and how they are counted."""
    parts = {part: sum(arm.jobs * arm.disk[part] for arm in arms) for part in arms[0].disk}
    shown = " + ".join(f"{part} {_size(size)}" for part, size in parts.items())
    largest = max(arms, key=lambda arm: arm.at_most)
    yield f"disk: {_at_most(largest)}{_total(parts.values())} = {shown}"
    yield (
        "- bytes: 4 per trained number in a checkpoint, 8 more for the optimizer in the last two, "
        f"{per_answer} per evaluated answer, {per_token} per rollout token at full length, "
        "uncompressed"
    )


def memory_lines(arms: Sequence["PricedArm"], shape: Shape, gpu: Gpu | None) -> Iterator[str]:
    """Show the memory of the largest job and of its host, and whether the GPU has enough."""
    room = gpu.memory if gpu else 0
    plans = [(make_plan(arm.config, shape, device_memory=room), arm.config) for arm in arms]
    plan, config = max(plans, key=lambda item: item[0].peak)
    fits = ""
    if gpu is not None:
        fits = f"; fits {gpu.name} ({room / GIB:.0f} GiB)"
        if plan.peak > room:
            changes = advice(config, shape, None, room, room)
            fits = f"; does not fit {gpu.name} ({room / GIB:.0f} GiB); to fit: {changes}"
    yield f"memory per process: {plan}{fits}"
    sharded = [(*host_memory(arm.config, shape), arm.gpus) for arm in arms if arm.config.sharded()]
    if sharded:
        start, saving, processes = max(sharded)
        yield (
            f"host memory per machine: at least {start / GIB:.1f} GiB at the start ({processes} "
            f"processes x {start / processes / GIB:.1f}), {saving / GIB:.1f} GiB when a checkpoint "
            "is saved"
        )


def schedule_lines(
    schedules: Sequence[Mapping[str, float]], failures: Failures, overhead: float
) -> Iterator[str]:
    """Show wall time, idle share and the cost of failures for each number of GPUs.

    Args:
        schedules: results of `schedule.forecast`.
        failures: the failures that they include.
        overhead: seconds per run outside the training clock; NaN: not included.
    """
    rows = []
    for schedule in schedules:
        wall, bound, tail, longest = (
            duration(3600 * schedule[name]) for name in ("wall", "bound", "tail", "worst")
        )
        row = {
            "GPUs": f"{schedule['gpus']:.0f}",
            "wall time": wall,
            "lower bound": bound,
            "idle": f"{100 * schedule['idle']:.1f} %",
            "tail": tail,
        }
        if failures.rate > 0:
            row |= {"longest": longest, "restarts": f"{schedule['restarts']:.1f}"}
            row |= {"lost GPU-hours": f"{schedule['lost']:.1f}"}
        rows.append(row | {"": ""})
    if rows:
        yield _table(rows)
    extra = "not included" if math.isnan(overhead) else "included"
    yield (
        f"- wall time: start, checkpoints and evaluation {extra}; seed by seed, each job as soon "
        "as its GPUs are free"
    )
    if failures.rate > 0:
        yield (
            f"- failures: {failures.rate:g} per GPU-hour, GPUs back after "
            f"{duration(3600 * failures.restart)}; means of {DRAWS} simulations"
        )


def time_text(seconds: float, sign: str = "", like: float | None = None) -> str:
    """Write seconds, milliseconds or microseconds, in the unit of `like`; a dash for NaN.

    >>> time_text(0.0571), time_text(10.12), time_text(7e-5), time_text(-0.5, "+", like=10.12)
    ('57.1 ms', '10.12 s', '70 µs', '-0.50 s')
    """
    size = abs(seconds if like is None or np.isnan(like) else like)
    if np.isnan(seconds):
        return "-"
    if size >= 1:
        return f"{seconds:{sign}z.2f} s"
    if size >= 1e-3:
        return f"{1e3 * seconds:{sign}z.1f} ms"
    return f"{1e6 * seconds:{sign}z.0f} µs"


def _table(rows: Iterable[Mapping[str, str]]) -> str:
    lines = list(rows)
    return table(list(lines[0]), [list(line.values()) for line in lines])


def _percent(value: float) -> str:
    return "" if np.isnan(value) else f"{value:+z.1f} %"


def _count(value: float, unknown: str = UNKNOWN) -> str:
    return unknown if math.isnan(value) else f"{value:,.0f}"


def _size(size: float) -> str:
    if math.isnan(size):
        return UNKNOWN
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _total(sizes: Iterable[float]) -> str:
    """Sum the known sizes; a question mark stands for unknown ones."""
    parts = list(sizes)
    return _size(float(np.nansum(parts))) + (" + ?" if np.isnan(parts).any() else "")


def _at_most(arm: "PricedArm") -> str:
    return "≤ " if arm.at_most else ""
