"""A card of prices: what a step costs elsewhere, in seconds or in money."""

from collections.abc import Hashable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from pods.config.key import Amount, Count, Text, key
from pods.config.parse import ConfigError, all_keys
from pods.config.schema import CONF

CARDS = CONF / "prices"
CLOCKS = {"s": "train_seconds", "$": "dollars"}
"""The column that a clock in this unit has in the tables of a study."""
AMOUNTS = {
    "per_generated_rollout": "generated_rollouts",
    "per_trained_rollout": "trained_rollouts",
    "per_generated_token": "generated_tokens",
    "per_trained_token": "trained_tokens",
}
"""The number in a line of metrics.jsonl that each price is for."""
SUFFIXES = (".yaml", ".yml")
"""Of files of cards, which tell a file from the name of a card."""
MILLION = 1_000_000  # tokens, by which services price them


@dataclass(frozen=True, kw_only=True)
class PriceCard:
    """Prices of what a step does; a step costs the sum of prices x amounts.

    Cards are equal if their names and prices are, whatever they say of them in words.

    `ValueError`: a step could be free, or what prices were fitted to or do not cover is blank.
    """

    name: Annotated[Text, key("name of the card's file, without its suffix")]
    unit: Annotated[
        Literal["s", "$"], key("what prices are in: seconds of a training clock, or dollars")
    ]
    per_step: Annotated[Amount, key("price of a step without any rollout")]
    per_generated_rollout: Annotated[Amount, key("price of a rollout that is generated")]
    per_trained_rollout: Annotated[Amount, key("further price of a rollout that is trained on")]
    per_generated_token: Annotated[Amount, key("price of a token of a completion")] = 0.0
    per_trained_token: Annotated[
        Amount, key("further price of a token of a completion that is trained on")
    ] = 0.0
    prompts_per_step: Annotated[
        Count | None, key("prompts per step of the runs that prices were fitted to; null: any")
    ] = None
    fitted_to: Annotated[Text, key("what prices were fitted to, with source and date")] = field(
        compare=False
    )
    does_not_cover: Annotated[Text, key("for which runs the prices are wrong or unknown")] = field(
        compare=False
    )

    def __post_init__(self) -> None:
        generating = self.per_generated_rollout + self.per_generated_token
        if self.per_step + generating <= 0:
            raise ConfigError(
                f"prices={self.name}: per_step",
                self.per_step,
                "must be a number > 0, or per_generated_rollout or per_generated_token: "
                "no step is free",
            )
        for name in ("fitted_to", "does_not_cover"):
            if not getattr(self, name).strip():
                raise ConfigError(f"prices={self.name}: {name}", "", "must say it in words")

    @property
    def clock(self) -> str:
        """The column that holds the clock at these prices: train_seconds, or dollars."""
        return CLOCKS[self.unit]

    @property
    def columns(self) -> list[str]:
        """The columns of `Study.steps` that the prices need."""
        return [column for price, column in AMOUNTS.items() if getattr(self, price) > 0]

    def formula(self) -> str:
        """Write the cost of a step for a reader.

        >>> read_card("l40s").formula()
        '4.4 s a step + 0.058 s per rollout generated + 0.123 s per rollout trained on'
        """
        terms = {
            "a step": self.per_step,
            "per rollout generated": self.per_generated_rollout,
            "per rollout trained on": self.per_trained_rollout,
            "per million tokens generated": MILLION * self.per_generated_token,
            "per million tokens trained on": MILLION * self.per_trained_token,
        }
        return " + ".join(f"{self._shown(price)} {text}" for text, price in terms.items() if price)

    def _shown(self, price: float) -> str:
        return f"{price:.3g} s" if self.unit == "s" else f"${price:.3g}"


def read_card(name: str) -> PriceCard:
    """Return the card of this name in `conf/prices`, or the one in this YAML file.

    `ValueError`: there is none, or a key is unknown, missing or has a value that is not allowed;
    one line.
    """
    path = _path_of(name)
    try:
        text = path.read_bytes()
        node = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("prices", name, f"must be a YAML file of prices: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError("prices", name, "must be a YAML file with lines such as per_step: 4.4")
    if node is not None and len(node.value) > len(content):
        raise ConfigError("prices", name, "must have each key once")
    return PriceCard(name=path.stem, **_values(content, name))


def known_cards() -> list[PriceCard]:
    """Return the cards of `conf/prices`."""
    return [read_card(name) for name in _names()]


def _names() -> list[str]:
    return sorted(path.stem for path in CARDS.glob("*.yaml"))


def _path_of(name: str) -> Path:
    """Return the file of a card."""
    if "/" in name or name.endswith(SUFFIXES):
        path = Path(name).expanduser()
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ConfigError("prices", name, "must be a YAML file, not a folder or a pipe")
        return path

    names = _names()
    if name not in names:
        allowed = f"must be one of {', '.join(names)}, or a YAML file such as ./mine.yaml"
        raise ConfigError("prices", name, allowed)
    return CARDS / f"{name}.yaml"


def _values(content: dict[Hashable, Any], typed: str) -> dict[str, Any]:
    """Return the values of a card, each as its key demands."""
    keys = {name: known for name, known in all_keys(PriceCard).items() if name != "name"}
    for name, value in content.items():
        if name not in keys:
            allowed = f"no such key; a card has {', '.join(keys)}"
            raise ConfigError(f"prices={typed}: {name}", value, allowed)

    values = {}
    for one in fields(PriceCard)[1:]:  # the first is the name, which is that of the file
        known = keys[one.name]
        if one.name in content:
            values[one.name] = known.read(f"prices={typed}: {one.name}", content[one.name])
        elif one.default is MISSING:
            raise ConfigError(f"prices={typed}: {one.name}", "", f"missing: {known.meaning}")
    return values
