"""What a step of a run that has not run will cost, from what did run; where it is from is said."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.cost.forecast import overhead
from pods.analysis.cost.model import CostModel, cost_model, per_run, predict
from pods.analysis.cost.plan import PUBLISHED, published
from pods.analysis.load import Study
from pods.config import Config

EIGHT_GPUS = Path(__file__).with_name("published_8gpu_step_times.csv")
ALIKE = ("model", "task", "hardware", "engine")  # groups that a study must share to be asked


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step."""

    seconds: float
    """NaN: not known."""
    source: str


@dataclass(frozen=True)
class Measured:
    """What a study here says about steps, and about the rest of a run."""

    name: str
    model: CostModel
    overhead: float
    """Seconds of a run outside of its training clock; NaN: not known."""


def measured(study: Study, name: str) -> Measured:
    """Fit the steps of a study here."""
    table = per_run(study.runs, study.steps, study.evaluations)
    return Measured(name, cost_model(table, study.steps), overhead(table))


def must_be_alike(config: Config, theirs: Config, name: str) -> None:
    """See that runs of a study can say what a step of another costs.

    Raises:
        ValueError: they are of another model, task, hardware or engine.
    """
    for group in ALIKE:
        asked, there = getattr(config, group).name, getattr(theirs, group).name
        if asked != there:
            raise ValueError(f"from={name}: its runs are of {group}={there}, not {asked}")


def step_time(config: Config, found: Measured | None) -> StepTime:
    """What a step costs by a study here, or else by the PODS authors' step times."""
    if found is None:
        return _published(config)
    groups, prompts = config.nm.groups, config.prompts_per_step
    guess = predict(found.model, config.nm.n, config.nm.m, prompts * groups)
    outside = ", outside of what was measured" if guess.outside else ""
    return StepTime(guess.seconds, f"the fit of {found.name}{outside}")


def _published(config: Config) -> StepTime:
    one = config.nm.groups == config.prompts_per_step == config.hardware.processes == 1
    plain = config.prompts.selector == "uniform" and config.group_filter.name == "none"
    if one and (config.hardware.name, config.model.name) == ("l40s", "qwen2_5_3b"):
        found = _one_gpu(config)
    else:
        found = _eight_gpus(config)
    if found is not None and plain:
        return found
    model, place = config.model.name, config.hardware.name
    return StepTime(math.nan, f"not known for {model} by {config.sampler.rule} on {place}")


def _one_gpu(config: Config) -> StepTime | None:
    n, m = config.nm.n, config.nm.m
    rule = "all" if n == m else config.sampler.rule
    rows = pd.read_csv(PUBLISHED, comment="#")
    setting = {"gsm8k": "GSM8K", "math": "MATH"}.get(config.task.name)
    same = (rows.setting == setting) & (rows["rule"] == rule) & (rows.n == n) & (rows.m == m)
    seconds = rows[same].seconds_per_step.dropna()
    if len(seconds):
        return StepTime(float(seconds.iloc[0]), "the PODS authors' runs, one L40S")
    if setting != "GSM8K" or rule not in ("all", "max_variance"):
        return None
    guess = predict(cost_model(published(), pd.DataFrame()), n, m)
    outside = ", outside of what they measured" if guess.outside else ""
    return StepTime(guess.seconds, f"a line through the PODS authors' step times{outside}")


def _eight_gpus(config: Config) -> StepTime | None:
    rows = pd.read_csv(EIGHT_GPUS, comment="#")
    asked = {"hardware": config.hardware.name, "model": config.model.name, "n": config.nm.n,
             "m": config.nm.m, "groups": config.nm.groups,
             "prompts": config.prompts_per_step}  # fmt: skip
    same = np.logical_and.reduce([rows[name] == value for name, value in asked.items()])
    rule = config.nm.n == config.nm.m or config.sampler.rule.startswith("max_variance")
    if not (same.any() and rule and config.hardware.processes == 8):
        return None
    aliased = "" if config.nm.n == config.nm.m else ", their aliased selection"
    seconds = float(rows[same].seconds_per_step.iloc[0])
    return StepTime(seconds, f"the PODS authors' runs, eight GPUs{aliased}")
