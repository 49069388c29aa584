"""Prices of a step on a machine, by which `budget.clock_model` times training as that one would."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

AMOUNTS = {"per_rollout": "generated_rollouts", "per_kept": "trained_rollouts"}
"""The number in a line of metrics.jsonl that each price is for."""


@dataclass(frozen=True)
class ClockModel:
    """Seconds per step = base + the sum of prices x amounts."""

    name: str
    source: str  # what the prices were fitted to
    base: float  # seconds of a step without any rollout
    per_rollout: float
    per_kept: float  # seconds per rollout that is trained on
    prompts: int | None = None
    """Prompts per step of the runs that the prices were fitted to; None: of any number."""

    def __post_init__(self) -> None:
        """Raise a `ValueError` without a source, or if a price or a step makes no sense."""
        if not self.source:
            raise ValueError("must have a source: what the prices were fitted to")

        for name in ("base", *AMOUNTS):
            price = getattr(self, name)
            if type(price) not in (int, float) or not 0 <= price < math.inf:
                raise ValueError(f"must have a number >= 0 as {name}, not {price!r}")
        if self.base + self.per_rollout <= 0:
            raise ValueError("must have a base or per_rollout above 0: no step is free")

    def seconds(self, amounts: Mapping[str, float]) -> float:
        """Return the seconds of a step."""
        seconds = self.base
        seconds += self.per_rollout * amounts["generated_rollouts"]
        seconds += self.per_kept * amounts["trained_rollouts"]
        return seconds

    def prices(self) -> dict[str, float]:
        """Return base and prices, which are all that decides a time."""
        return {name: float(getattr(self, name)) for name in ("base", *AMOUNTS)}

    def formula(self) -> str:
        """Write the seconds of a step for a reader."""
        terms = {
            "": self.base,
            " per rollout generated": self.per_rollout,
            " per rollout trained on": self.per_kept,
        }
        return " + ".join(f"{price:.3g} s{unit}" for unit, price in terms.items() if price)


FIT = "least squares over the PODS authors' GSM8K runs with Qwen2.5-3B on one L40S"
L40S = ClockModel("l40s", FIT, base=4.4, per_rollout=0.058, per_kept=0.123, prompts=1)


def read_clock_model(name: str) -> ClockModel:
    """Return the prices of `l40s`, or those in this file.

    `ValueError`: there are none; the message begins with `must`, as what follows a key.
    """
    if name == L40S.name:
        return L40S

    form = "l40s, or a JSON file with base, per_rollout, per_kept and source"
    path = Path(name)
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"must be {form}, not a folder or a pipe")
    try:
        content = json.loads(path.read_bytes())
        return ClockModel(**{"name": path.name} | content)
    except (OSError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"must be {form}: {error}") from error
