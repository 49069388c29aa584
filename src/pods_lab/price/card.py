"""A price card of a study's own machine, from the fit of its steps."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import yaml

from pods.analysis.loading.study import Study
from pods.config.parse import ConfigError
from pods.config.price_card import SUFFIXES, PriceCard
from pods.runs.files import replace
from pods_lab.price.model import STEP, coefficient, cost_model, why_not_identifiable
from pods_lab.price.settings import settings

DOES_NOT_COVER = (
    "other machines, models, tasks and settings than these runs', and completions of other lengths"
)


def fitted_card(study: Study) -> PriceCard:
    """Return the prices of a step in a study's runs, in seconds.

    `ValueError`: its runs are of several settings, do not identify each price, or are so noisy that
    one came out below 0.
    """
    found = list(settings(study))
    if len(found) > 1:
        names = " | ".join(name for name, _ in found)
        raise ValueError(
            f"{study.name} has runs of several settings, each with prices of its own: {names}; "
            "choose one with --arms"
        )
    [(name, runs)] = found

    model = cost_model(runs)
    prices = [coefficient(model, term)[0] for term in STEP]
    if np.isnan(prices).any():
        raise ValueError(
            f"{study.name} does not identify its prices: {why_not_identifiable(model)}"
        )
    if min(prices) < 0:
        shown = ", ".join(f"{term} {price:.3g} s" for term, price in zip(STEP, prices, strict=True))
        raise ValueError(f"{study.name} has steps too noisy for prices: {shown}")

    per_step, per_generated_rollout, per_trained_rollout = prices
    prompts = model.steady.prompts.unique()
    today = datetime.now(UTC).date()
    return PriceCard(
        name=study.name,
        unit="s",
        per_step=per_step,
        per_generated_rollout=per_generated_rollout,
        per_trained_rollout=per_trained_rollout,
        prompts_per_step=int(prompts[0]) if len(prompts) == 1 else None,
        fitted_to=f"{len(model.steady)} runs of {study.name} on {name}, {today}",
        does_not_cover=DOES_NOT_COVER,
    )


def write_card(card: PriceCard, path: Path) -> None:
    """Write a card as YAML, which `--prices` reads.

    `ConfigError`: the file exists, or its name is not one of a YAML file.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError("--card", path, f"must be a YAML file such as {path}.yaml")
    if path.exists():
        raise ConfigError("--card", path, "must be a new file; this one exists")
    content = dataclasses.asdict(card)
    del content["name"]  # which is the file's
    content = {key: _rounded(value) for key, value in content.items()}
    replace(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _rounded(value: object) -> object:
    """Return a price with six digits, and anything else as it is."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
