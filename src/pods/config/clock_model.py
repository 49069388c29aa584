"""Prices of a step on a machine: seconds by the rollouts and tokens of the step.

With one, runs are timed as that machine would time them: in training (`budget.clock=modelled`), and
in the figures of finished runs (`--clock`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

AMOUNTS = {
    "per_rollout": "generated_rollouts",
    "per_kept": "trained_rollouts",
    "per_token": "generated_tokens",
    "per_trained_token": "trained_tokens",
}
"""The number in a line of metrics.jsonl that each price is for."""
UNITS = (
    *(" per rollout generated", " per rollout trained on"),
    *(" per token generated", " per token trained on"),
)
FORM = "a JSON file with base, per_rollout, per_kept and source"


@dataclass(frozen=True)
class ClockModel:
    """Seconds per step = base + the sum of prices x amounts."""

    name: str
    source: str
    """What the prices were fitted to."""
    base: float
    """Seconds of a step without any rollout."""
    per_rollout: float
    per_kept: float
    """Seconds per rollout that is trained on."""
    per_token: float = 0.0
    per_trained_token: float = 0.0

    def __post_init__(self) -> None:
        """Check the prices.

        Raises:
            ValueError: one of them is no number >= 0, or a step could be free.
        """
        prices = {name: getattr(self, name) for name in ("base", *AMOUNTS)}
        for name, price in prices.items():
            number = isinstance(price, int | float) and not isinstance(price, bool)
            if not (number and 0 <= price < math.inf):
                raise ValueError(f"must have a number >= 0 as {name}, not {price!r}")
        if self.base + self.per_rollout <= 0:
            raise ValueError("must have a base or per_rollout above 0: no step is free")
        if not all(isinstance(text, str) and text.strip() for text in (self.name, self.source)):
            raise ValueError("must say in source what its prices were fitted to")

    def seconds(self, amounts: Mapping[str, Any]) -> Any:
        """Return the seconds of a step, or of many where the amounts are columns of a table."""
        priced = {of: price for name, of in AMOUNTS.items() if (price := getattr(self, name))}
        return self.base + sum(price * amounts[of] for of, price in priced.items())

    def prices(self) -> dict[str, float]:
        """Return base and prices, which are all that decides a time."""
        return {name: float(getattr(self, name)) for name in ("base", *AMOUNTS)}

    def formula(self) -> str:
        """Write the seconds of a step for a reader."""
        prices = zip(self.prices().values(), ("", *UNITS), strict=True)
        return " + ".join(f"{price:.3g} s{unit}" for price, unit in prices if price)


MODELS = {
    model.name: model
    for model in (
        ClockModel(
            "l40s",
            "least squares over the PODS authors' GSM8K runs with Qwen2.5-3B on one L40S",
            base=4.4,
            per_rollout=0.058,
            per_kept=0.123,
        ),
        # Two settings determine two prices, so no fixed time is assumed: (78.8 s - 49.0 s) / 3,072
        # per rollout kept, and what is left of 49.0 s / 4,096 per rollout generated.
        ClockModel(
            "h100x8",
            "the PODS authors' two GSM8K settings with Qwen2.5-3B on 8 H100, 4,096 rollouts in "
            "78.8 s with all kept and in 49.0 s with 1,024 kept; a fixed time is not identified "
            "and taken to be 0",
            base=0.0,
            per_rollout=0.00954,
            per_kept=0.0097,
        ),
    )
}
"""The published ones; `analysis/cost` holds the numbers behind them."""


def read_clock_model(name: str) -> ClockModel:
    """Return the prices with this name, or those in this file.

    Raises:
        ValueError: there are none; the message begins with `must`, as what follows a key.
    """
    if name in MODELS:
        return MODELS[name]
    path = Path(name)
    if path.suffix != ".json":
        raise ValueError(f"must be {', '.join(MODELS)}, or {FORM}")
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"must be {FORM}: {error}") from error
    known = {field.name for field in fields(ClockModel)}
    if not isinstance(content, dict) or not {"base", "per_rollout", "per_kept"} <= set(content):
        raise ValueError(f"must be {FORM}")
    if odd := sorted(set(content) - known):
        raise ValueError(f"must be {FORM}, without {odd[0]}")
    return ClockModel(**{"name": path.name, "source": "", **content})
