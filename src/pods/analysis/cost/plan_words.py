"""The lines of `pods plan` about fits, predictions and sweeps: what they say and leave open."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from pods.analysis.cost.forecast import Budget, Sweep
from pods.analysis.cost.model import PHASES, STEP, CostModel, coefficient, repeat_sd, why_untold
from pods.analysis.tables import at
from pods.runs.status import table

DRIVERS = {"fixed": "", "generated": "n", "kept": "m"}


def about_fit(
    name: str, model: CostModel, fits: pd.DataFrame, misfits: pd.DataFrame
) -> Iterator[str]:
    """The setting, its line, how well it holds, the phases."""
    runs, line = model.measured, model.total
    prompts = sorted(runs.prompts.unique())
    yield (f"{name}: {len(runs)} runs, {len(runs[['n', 'm']].drop_duplicates())} (n, m), "
           f"{', '.join(map(str, prompts)) or 'no'} {'prompt' if prompts == [1] else 'prompts'} "
           "a step")  # fmt: skip
    uneven = runs[~runs.index.isin(model.steady.index)]
    if len(uneven):
        yield (f"{', '.join(uneven.arm.unique())}: prompts are sampled again or left out, so steps "
               "do not cost alike from start to end: not in the fit, the table sets them beside "
               "it, `pods compare` times them")  # fmt: skip
    if len(prompts) > 1:
        yield "prompts a step differ: what follows is for a rollout, times prompts"
    untold = why_untold(model)
    yield untold or f"seconds a step = {_formula(model)}  (± standard error)"
    if not untold:
        yield (f"R² {fixed(line.r2, 4)}, residual sd {time_text(line.residual_sd)} (among runs of "
               f"one (n, m): {time_text(repeat_sd(model))})"
               + _linearity(model, misfits))  # fmt: skip
    elif np.isfinite(coefficient(model, "generated")[0] + coefficient(model, "kept")[0]):
        yield f"from the phases, each by what drives it: seconds a step = {_formula(model)}"
    phases = fits[fits.what.isin(PHASES)]
    if len(phases):
        rows = [_phase(row, model) for _, row in phases.iterrows()]
        yield table(("phase", "by", "fixed", "each n or m", "R²"), rows)
    if not untold and len(phases):
        apart = (misfits.phases / misfits.fitted - 1).abs().max()
        yield f"the phases add up to the line within {100 * apart:.1f} % in every (n, m)"
    for phase, by_token in model.tokens.items():
        each, start = by_token.at({by_token.terms[1]: 1000.0})[0], by_token.at({"fixed": 1.0})[0]
        if np.isfinite(each):
            yield (f"{phase}: {time_text(start)} + {time_text(each)} a thousand tokens "
                   f"(R² {fixed(by_token.r2, 2)} over {by_token.rows} steps)")  # fmt: skip
    if len(misfits):
        yield _misfits(misfits)


def _formula(model: CostModel) -> str:
    """Fixed + b n + c m where all runs have as many prompts, else a rollout each."""
    single = model.steady.prompts.nunique() == 1
    parts = []
    for term in STEP:
        value, stderr = coefficient(model, term)
        unit = model.prompts if single and term != "fixed" else 1
        name = DRIVERS[term] if single or term == "fixed" else f"prompts x {DRIVERS[term]}"
        parts.append(f"{_with_error(unit * value, unit * stderr)} {name}".strip())
    return " + ".join(parts)


def _with_error(value: float, stderr: float) -> str:
    """To two digits of the error.

    >>> _with_error(4.4142, 0.2445), _with_error(0.0584, float("nan"))
    ('(4.41 ± 0.24)', '0.0584')
    """
    if not stderr > 0:
        return f"{value:.3g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    return f"({value:.{digits}f} ± {stderr:.{digits}f})"


def _linearity(model: CostModel, misfits: pd.DataFrame) -> str:
    if model.total.cells == model.total.rank:
        return f"; as many (n, m) as coefficients ({len(STEP)}): that it is a line is unchecked"
    worst = misfits.iloc[int(misfits.percent.abs().to_numpy().argmax())]
    return f"; farthest off: {worst.n}→{worst.m} by {_percent(worst.percent)}"


def _phase(row: pd.Series, model: CostModel) -> tuple[str, ...]:
    """A phase's fixed part and slope; a dash where the runs cannot tell."""
    driver = next((term for term in STEP[1:] if term in row["by"]), "fixed")
    slope = row[driver] * model.prompts if driver != "fixed" else np.nan
    return (row.what, DRIVERS[driver] or "-", time_text(row.fixed), time_text(slope),
            "-" if driver == "fixed" or np.isnan(row.r2) else fixed(row.r2, 3))  # fmt: skip


def _misfits(misfits: pd.DataFrame) -> str:
    rows = [
        (f"{row.n}→{row.m}", row["rule"], row["arm"], str(row.runs), time_text(row.seconds),
         time_text(row.fitted), time_text(row.residual, "+", row.fitted), _percent(row.percent))
        for _, row in misfits.iterrows()
    ]  # fmt: skip
    return table(("n→m", "rule", "arm", "runs", "measured", "fitted", "off by", ""), rows)


def about_cells(foretold: pd.DataFrame) -> Iterator[str]:
    """A table of what was asked for; marks where the fit is stretched."""
    if not len(foretold):
        return
    phases = [str(c) for c in foretold if str(c).startswith("seconds/")]
    shown = [p for p in phases if foretold[p].abs().max() > 0.01 * foretold.seconds.max()]
    tokens = [c for c in ("generated_tokens", "trained_tokens") if c in foretold]
    yield table(
        ("n→m", "a step", *(p.removeprefix("seconds/") for p in shown),
         *(t.replace("_", " ") for t in tokens), "steps", "train time", ""),
        [(f"{row.n}→{row.m}",
          time_text(row.seconds)
          + (f" ± {time_text(row.stderr, like=row.seconds)}" if np.isfinite(row.stderr) else ""),
          *(_share(row[p], row[phases].sum()) for p in shown),
          *(_count(row[t]) for t in tokens), _count(row.steps),
          "-" if np.isnan(row.train_seconds) else at(row.train_seconds), _source(row))
         for _, row in foretold.iterrows()],
    )  # fmt: skip


def _source(row: pd.Series) -> str:
    if np.isnan(row.seconds):
        return "cannot be told"
    notes = ["from the phases"] if row.source == "phases" else []
    return ", ".join([*notes, *(["outside of what was measured"] if row.outside else [])])


def about_sweep(found: Sweep, cells: int, seeds: int, budget: Budget) -> Iterator[str]:
    """What all of it takes, or what is missing to say so."""
    what = f"{cells} x {seeds} seeds = {found.runs} runs, {found.slots} at a time"
    if budget.seconds is None and budget.steps is None:
        yield (f"{what}: unknown, since the runs do not say what ends them: give `--seconds` or "
               "`--steps` of a run")  # fmt: skip
        return
    if np.isnan(found.slot_hours):
        yield f"{what}: unknown, since the time of some step cannot be told"
        return
    rest = (f"{found.overhead_seconds:.1f} s a run" if np.isfinite(found.overhead_seconds)
            else "not measured, and not in it")  # fmt: skip
    yield (f"{what}: {at(found.wall_seconds)}, {found.slot_hours:.2f} hours of a GPU or of a "
           f"job's cores; start, checkpoints and evaluation: {rest}")  # fmt: skip


def time_text(seconds: float, sign: str = "", like: float | None = None) -> str:
    """Seconds, milliseconds below one, microseconds below one of those; a dash for NaN.

    >>> time_text(0.0571), time_text(10.12), time_text(7e-5), time_text(-0.5, "+", like=10.12)
    ('57.1 ms', '10.12 s', '70 µs', '-0.50 s')
    """
    size = abs(seconds if like is None or np.isnan(like) else like)
    if np.isnan(seconds):
        return "-"
    if size >= 1:
        return f"{fixed(seconds, 2, sign)} s"
    if size >= 1e-3:
        return f"{fixed(1000 * seconds, 1, sign)} ms"
    return f"{fixed(1e6 * seconds, 0, sign)} µs"


def fixed(value: float, digits: int, sign: str = "") -> str:
    """A number with so many digits after the point; what rounds to 0 has no minus.

    >>> fixed(-0.0004, 3), fixed(-0.0006, 3), fixed(-0.2, 0, "+")
    ('0.000', '-0.001', '+0')
    """
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def _percent(value: float) -> str:
    return "" if np.isnan(value) else f"{fixed(value, 1, '+')} %"


def _share(seconds: float, total: float) -> str:
    return "-" if np.isnan(seconds + total) else f"{100 * seconds / total:.0f} %"


def _count(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:,.0f}"
