"""What a step costs: fixed + b x rollouts generated + c x rollouts kept, fitted to runs.

A step of B prompts generates B n rollouts and keeps B m of them, so that runs of different B share
one fit; where prompts are sampled again or left out, the log says how many it were. What the
measured (n, m) cannot tell apart gets no number.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.cost.least_squares import Fit, fit

STEP = ("fixed", "generated", "kept")
PHASES: dict[str, tuple[str, ...]] = {  # what drives each; a rule looks at all n
    "generate": ("fixed", "generated"),
    "reward": ("fixed", "generated"),
    "select": ("fixed", "generated"),
    "update": ("fixed", "kept"),
    "sync": ("fixed",),
}
ROLLOUTS = {"generated": "generated_rollouts", "kept": "trained_rollouts"}
TOKENS = {"generate": "generated_tokens", "update": "trained_tokens"}


@dataclass(frozen=True)
class CostModel:
    """What the runs of one setting say about the cost of a step."""

    runs: pd.DataFrame
    """A row a run, as `per_run` makes it."""
    total: Fit
    """Seconds of a whole step by `STEP`."""
    phases: dict[str, Fit]
    """Each by what drives it, so that fewer (n, m) suffice than for the total."""
    tokens: dict[str, Fit]
    """A phase by its own tokens, over all steps of all runs."""

    @property
    def prompts(self) -> int:
        """Prompts a step of most runs."""
        return int(self.runs.prompts.mode().iloc[0])

    @property
    def measured(self) -> pd.DataFrame:
        """The runs that have a time of a step."""
        return self.runs.dropna(subset="seconds")

    @property
    def steady(self) -> pd.DataFrame:
        """Those whose steps all have as many rollouts as n and m say: what the fits are of."""
        return steady(self.measured)


@dataclass(frozen=True)
class Prediction:
    """A step of some (n, m)."""

    n: int
    m: int
    seconds: float
    """NaN where the runs cannot tell."""
    stderr: float
    """Of what one more run would measure; NaN where that is not known."""
    phases: dict[str, float]
    """Seconds, each from its own fit."""
    source: str
    """`total`; or `phases`, their sum, where the total's fit cannot tell."""
    outside: bool
    """More or fewer rollouts than in any run."""


def per_run(runs: pd.DataFrame, steps: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add to each run its rollouts a step, and seconds (in all, and by phase) and tokens a step.

    Where there is no log of steps, seconds are those of the last evaluation divided by its step.
    """
    table = runs.set_index("run")
    asked = {"generated": table.prompts * table.n, "kept": table.prompts * table.m}
    logged = {name: steps.groupby("run")[column].mean().reindex(table.index).fillna(asked[name])
              for name, column in ROLLOUTS.items() if column in steps}  # fmt: skip
    table = table.assign(**{**asked, **logged})
    last = evaluations.sort_values("step").groupby("run").last().reindex(table.index)
    table["seconds"] = (last.train_seconds / last.step.where(last.step > 0)).astype(float)
    phases = [str(column) for column in steps if str(column).startswith("seconds/")]
    if phases:
        wanted = [*phases, *(column for column in TOKENS.values() if column in steps)]
        means = steps.groupby("run")[wanted].mean().reindex(table.index)
        total = steps[phases].sum(axis=1).groupby(steps.run).mean().reindex(table.index)
        table = table.assign(**{str(column): means[column] for column in means})
        table["seconds"] = total.fillna(table.seconds)
    return table.reset_index()


def steady(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out runs that sample prompts again or skip groups, unless all do.

    A second sampling costs another fixed part, and rollouts that vary a little in number from run
    to run would be taken for a slope.
    """
    even = np.isclose(table.generated, table.prompts * table.n)
    even &= np.isclose(table.kept, table.prompts * table.m)
    return table[even] if even.any() else table


def cost_model(table: pd.DataFrame, steps: pd.DataFrame) -> CostModel:
    """Fit what a step costs.

    Args:
        table: of `per_run`: runs that differ in rule, n, m, prompts and seed alone.
        steps: of these runs.
    """
    even = steady(table)
    if "run" in steps:
        steps = steps[steps.run.isin(even.run)]
    phases = {
        phase: fit(even, f"seconds/{phase}", terms)
        for phase, terms in PHASES.items()
        if f"seconds/{phase}" in even
    }
    tokens = {
        phase: fit(steps, f"seconds/{phase}", ("fixed", column))
        for phase, column in TOKENS.items()
        if {f"seconds/{phase}", column} <= set(steps)
    }
    return CostModel(table, fit(even, "seconds", STEP), phases, tokens)


def coefficient(model: CostModel, term: str) -> tuple[float, float]:
    """Seconds of one unit of a term, with standard error: the total's, or else the phases' sum.

    The error of that sum is not known (NaN): the phases are fitted apart, on the same runs.
    """
    value, stderr = model.total.at({term: 1.0})
    if np.isnan(value) and model.phases:
        return sum(phase.at({term: 1.0})[0] for phase in model.phases.values()), float("nan")
    return value, stderr


def predict(model: CostModel, n: int, m: int, prompts: int | None = None) -> Prediction:
    """What a step of (n, m) costs, with as many prompts as most runs have or as given.

    Raises:
        ValueError: such a step cannot be.
    """
    if not 1 <= m <= n:
        raise ValueError(f"nm={n},{m}: must be N,M with 1 <= M <= N")
    size = prompts or model.prompts
    return _at(model, n, m, float(size * n), float(size * m))


def _at(model: CostModel, n: int, m: int, generated: float, kept: float) -> Prediction:
    """A step of n→m with so many rollouts in all."""
    point = {"fixed": 1.0, "generated": generated, "kept": kept}
    phases = {phase: line.at(point)[0] for phase, line in model.phases.items()}
    (seconds, stderr), source = model.total.at(point), "total"
    if np.isnan(seconds) and phases:
        seconds, stderr, source = sum(phases.values()), float("nan"), "phases"
    spread = float(np.hypot(stderr, model.total.residual_sd))
    seen = model.steady
    outside = any(not seen[k].min() <= point[k] <= seen[k].max() for k in STEP[1:])
    return Prediction(n, m, seconds, spread, phases, source, outside)


def residuals(model: CostModel) -> pd.DataFrame:
    """How far the fit is from what was measured: a row a cell, or a (cell, arm) where arms share.

    Returns:
        n, m, prompts, rule, arm, runs, generated and kept (rollouts a step), seconds (mean
        measured), fitted, residual (mean of measured - fitted, in s), percent (of fitted), phases
        (the sum of their fits).
    """
    rows = []
    for _, cell in model.measured.groupby(["n", "m", "prompts", "rule", "arm"]):
        n, m, prompts = (int(cell[name].iloc[0]) for name in ("n", "m", "prompts"))
        generated, kept = cell.generated.mean(), cell.kept.mean()
        fitted = _at(model, n, m, generated, kept)
        residual = cell.seconds.mean() - fitted.seconds
        rows.append({
            "n": n, "m": m, "prompts": prompts, "rule": cell["rule"].iloc[0],
            "arm": cell["arm"].iloc[0], "runs": len(cell), "generated": generated, "kept": kept,
            "seconds": cell.seconds.mean(), "fitted": fitted.seconds, "residual": residual,
            "percent": 100 * residual / fitted.seconds,
            "phases": sum(fitted.phases.values()) if fitted.phases else float("nan"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def repeat_sd(model: CostModel) -> float:
    """Standard deviation of runs of one (n, m), pooled: what no line could explain; NaN: no two."""
    runs = model.steady
    cells = runs.groupby(["generated", "kept"]).seconds
    spare = len(runs) - cells.ngroups
    squares = float(((runs.seconds - cells.transform("mean")) ** 2).sum())
    return float(np.sqrt(squares / spare)) if spare else float("nan")


def why_untold(model: CostModel) -> str:
    """Why the total's fit has no number for something; empty where it has them all."""
    runs = model.steady
    if model.total.rank == len(STEP):
        return ""
    generated, kept = (
        f"{name} = {runs[name].iloc[0]}" if runs[name].nunique() == 1 else
        f"{runs[rollouts].iloc[0]} rollouts {rollouts} a step"
        for name, rollouts in (("n", "generated"), ("m", "kept"))
    )  # fmt: skip
    one_n, one_m = runs.generated.nunique() == 1, runs.kept.nunique() == 1
    if one_n and one_m:
        why = (f"all runs have {generated} and {kept}: neither what n costs nor what m costs can "
               "be told from what is fixed")  # fmt: skip
    elif one_m:
        why = f"all runs have {kept}: what m costs cannot be told from what is fixed"
    elif one_n:
        why = f"all runs have {generated}: what n costs cannot be told from what is fixed"
    elif (runs.generated == runs.kept).all():
        why = "all runs have n = m: what n costs cannot be told from what m costs"
    else:
        why = "n and m rise together: what either costs cannot be told from what is fixed"
    return f"{why}; `experiment=cost_grid` measures it"
