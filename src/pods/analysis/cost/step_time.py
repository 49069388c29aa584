"""Seconds per step of runs that have not happened, from runs that have, each with its source."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.cost.forecast import overhead
from pods.analysis.cost.model import CostModel, cost_model, per_run, predict
from pods.analysis.study import MEASURED, Study
from pods.config.schema import Config

ONE_GPU = Path(__file__).with_name("published_step_times.csv")
EIGHT_GPUS = Path(__file__).with_name("published_8gpu_step_times.csv")
PUBLISHED_SECONDS = 6 * 3600.0  # training clock of the authors' runs on one GPU
REQUIRED_EQUAL = (
    "model",
    "task",
    "hardware",
    "engine",
)  # config groups that fix the cost of a step


@dataclass(frozen=True, slots=True)
class StepTime:
    """The seconds of one step."""

    seconds: float
    """NaN: unknown."""
    source: str
    """Where the number comes from, or why there is none."""


@dataclass(frozen=True)
class MeasuredStudy:
    """The measured costs of a finished study."""

    name: str
    model: CostModel
    overhead: float
    """Seconds of a run outside its training clock; NaN: unknown."""


def measured(study: Study, name: str) -> MeasuredStudy:
    """Fit the steps of a finished study."""
    table = per_run(study.runs, study.steps, study.evaluations)
    return MeasuredStudy(name, cost_model(table, study.steps), overhead(table))


def check_comparable(config: Config, measured: Config, name: str) -> None:
    """Check that a study's steps cost the same as those of the planned config.

    Raises:
        ValueError: its model, task, hardware or engine differs, or its clock was modelled.
    """
    if measured.budget.clock != MEASURED:
        raise ValueError(f"from={name}: its runs have budget.clock=modelled, must be measured")
    for group in REQUIRED_EQUAL:
        planned, other = getattr(config, group).name, getattr(measured, group).name
        if planned != other:
            raise ValueError(f"from={name}: its runs have {group}={other}, must be {planned}")


def step_time(config: Config, source: MeasuredStudy | None) -> StepTime:
    """Return the time per step from a finished study, or else from the PODS authors' step times."""
    if source is None:
        return _published(config)
    groups = config.prompts_per_step * config.nm.groups
    step = predict(source.model, config.nm.n, config.nm.m, groups)
    return StepTime(step.seconds, f"fit of {source.name}{_outside(step.outside)}")


def published() -> pd.DataFrame:
    """Return the authors' GSM8K step times of max-variance and GRPO, in the form of `per_run`.

    Max-reward, whose completions grow long, and MATH, another task, belong to no common fit.
    """
    rows = pd.read_csv(ONE_GPU, comment="#")
    rows = rows[(rows.setting == "GSM8K") & rows["rule"].isin(["all", "max_variance"])]
    rows = rows.reset_index(drop=True)
    arm = np.where(rows["rule"] == "all", "grpo", "pods")
    label = [f"{a} {n}→{m}" for a, n, m in zip(arm, rows.n, rows.m, strict=True)]
    return rows.assign(
        run=label,
        series=label,
        arm=arm,
        prompts=1,
        seed=0,
        generated=rows.n,
        kept=rows.m,
        complete=True,
        seconds=rows.seconds_per_step,
        budget_seconds=PUBLISHED_SECONDS,
        **{
            "seconds/generate": rows.inference_seconds,
            "seconds/update": rows.seconds_per_step - rows.inference_seconds,
        },
    )


def _published(config: Config) -> StepTime:
    hardware, model, rule = config.hardware.name, config.model.name, config.sampler.rule
    step = None
    if config.prompts.selector == "uniform" and config.group_filter.name == "none":
        single = config.nm.groups == config.prompts_per_step == config.hardware.processes == 1
        on_one = single and (hardware, model) == ("l40s", "qwen2_5_3b")
        step = _one_gpu(config) if on_one else _eight_gpus(config)
    return step or StepTime(math.nan, f"not known for {model} by {rule} on {hardware}")


def _one_gpu(config: Config) -> StepTime | None:
    n, m = config.nm.n, config.nm.m
    rule = "all" if n == m else config.sampler.rule
    rows = pd.read_csv(ONE_GPU, comment="#")
    setting = {"gsm8k": "GSM8K", "math": "MATH"}.get(config.task.name)
    same = (rows.setting == setting) & (rows["rule"] == rule) & (rows.n == n) & (rows.m == m)
    seconds = rows[same].seconds_per_step.dropna()
    if len(seconds):
        return StepTime(float(seconds.iloc[0]), "the PODS authors' runs, one L40S")
    if setting != "GSM8K" or rule not in ("all", "max_variance"):
        return None
    step = predict(cost_model(published(), pd.DataFrame()), n, m)
    return StepTime(step.seconds, f"fit of the PODS authors' step times{_outside(step.outside)}")


def _eight_gpus(config: Config) -> StepTime | None:
    rows = pd.read_csv(EIGHT_GPUS, comment="#")
    key = {
        "hardware": config.hardware.name,
        "model": config.model.name,
        "n": config.nm.n,
        "m": config.nm.m,
        "groups": config.nm.groups,
        "prompts": config.prompts_per_step,
    }
    same = np.logical_and.reduce([rows[name] == value for name, value in key.items()])
    all_kept = config.nm.n == config.nm.m
    timed_rule = all_kept or config.sampler.rule.startswith("max_variance")
    if not (same.any() and timed_rule and config.hardware.processes == 8):
        return None
    aliased = "" if all_kept else ", their aliased selection"
    seconds = float(rows[same].seconds_per_step.iloc[0])
    return StepTime(seconds, f"the PODS authors' runs, eight GPUs{aliased}")


def _outside(outside: bool) -> str:
    return ", outside the measured range" if outside else ""
