"""Prices: what the recorded steps of a study cost elsewhere, in seconds or in money.

What a step computes does not depend on what it costs. So time is a lens through which finished runs
are looked at: their logs say what each step generated and trained on, and a card what that costs.
"""

import math
from collections.abc import Hashable
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from pods.analysis.loading.study import KEY, Study
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
MEASURED_OF_RUNS = ("train_seconds", "budget_seconds", "cpu_share")
"""Columns of `Study.runs` that hold measured times, which prices take the place of."""
SUFFIXES = (".yaml", ".yml")
"""Of files of cards, which tell a file from the name of a card."""
MILLION = 1_000_000  # tokens, by which services price them


@dataclass(frozen=True, kw_only=True)
class PriceCard:
    """Prices of what a step does; a step costs the sum of prices x amounts.

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
    fitted_to: Annotated[Text, key("what prices were fitted to, with source and date")]
    does_not_cover: Annotated[Text, key("for which runs the prices are wrong or unknown")]

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

    def step_cost(self, steps: pd.DataFrame) -> NDArray[np.float64]:
        """Return the (rows,) costs of logged steps, which have the `columns` that are needed."""
        cost = np.full(len(steps), float(self.per_step))
        for price, column in AMOUNTS.items():
            if getattr(self, price) > 0:
                cost += getattr(self, price) * steps[column].to_numpy(float)
        return cost

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
    for field in fields(PriceCard)[1:]:  # the first is the name, which is that of the file
        known = keys[field.name]
        if field.name in content:
            values[field.name] = known.read(f"prices={typed}: {field.name}", content[field.name])
        elif field.default is MISSING:
            raise ConfigError(f"prices={typed}: {field.name}", "", f"missing: {known.meaning}")
    return values


def at_prices(study: Study, card: PriceCard) -> Study:
    """Return the study with every clock replaced by what the steps up to there cost.

    The clock is the column `card.clock` of evaluations and steps, which becomes the x; a measured
    time is in none of the tables. The window ends with the first run.

    `ValueError`: a run does not log an amount that has a price, or not every step from the first;
    or one of its steps is free. One line.
    """
    steps = _priced_steps(study, card)
    clocks = steps.set_index(["run", "step"])[card.clock]
    return replace(
        study,
        runs=study.runs.drop(columns=list(MEASURED_OF_RUNS), errors="ignore"),
        evaluations=_priced_evaluations(study, card, clocks),
        steps=steps,
        x=card.clock,
        until=math.inf,
        clock=f"at prices {card.name}",
        prices=asdict(card),
        note=" ".join([study.note, *_notes(study, card)]).strip(),
    )


def _priced_steps(study: Study, card: PriceCard) -> pd.DataFrame:
    """Return the steps of all runs, as they stand, with the clock at their ends."""
    steps = _without_times(study.steps)
    if "trained_tokens" in steps and "trained_rollouts" in steps:
        untrained = steps.trained_rollouts == 0  # whose lines lack the tokens
        steps = steps.assign(trained_tokens=steps.trained_tokens.mask(untrained, 0))
    _check_amounts(study, steps, card)
    in_order = steps.sort_values(["run", "step"], kind="stable")
    numbers = in_order.groupby("run").cumcount() + 1
    gaps = in_order[in_order.step != numbers]
    if len(gaps):
        lacking = f"must log every step from the first, and lacks step {numbers[gaps.index[0]]}"
        raise _refused(card, gaps.iloc[0], lacking)

    costs = pd.Series(card.step_cost(in_order), in_order.index)
    free = in_order[~(costs > 0)]
    if len(free):
        at = free.step.iloc[0]
        raise _refused(card, free.iloc[0], f"must pay for each step, and step {at} is free")
    return steps.assign(**{card.clock: costs.groupby(in_order.run).cumsum()})


def _without_times(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the columns with clocks, and with seconds of phases."""
    measured = table.filter(regex="^(cpu_)?seconds/").columns
    return table.drop(columns=[*CLOCKS.values(), *measured], errors="ignore")


def _check_amounts(study: Study, steps: pd.DataFrame, card: PriceCard) -> None:
    """Raise a `ValueError` if a run does not log an amount that the card has a price for."""
    runs = pd.concat([study.evaluations[KEY], steps[KEY]]).drop_duplicates("run")
    for column in card.columns:
        complete: set[str] = set()
        if column in steps:
            logged = steps[column].notna().groupby(steps.run).all()
            complete = set(logged.index[logged])
        lacking = runs[~runs.run.isin(complete)]
        if len(lacking):
            raise _refused(card, lacking.iloc[0], f"must log {column} of each step")


def _priced_evaluations(study: Study, card: PriceCard, clocks: "pd.Series[float]") -> pd.DataFrame:
    """Return the evaluations with the clock at the end of the step that they belong to."""
    rows = _without_times(study.evaluations)
    ends = clocks.reindex(pd.MultiIndex.from_frame(rows[["run", "step"]])).to_numpy()
    ends = np.where(rows.step == 0, 0.0, ends)
    unknown = rows[np.isnan(ends)]
    if len(unknown):
        at = unknown.step.iloc[0]
        raise _refused(card, unknown.iloc[0], f"must log every step up to its evaluation at {at}")
    rows.insert(list(rows).index("step") + 1, card.clock, ends)
    return rows


def _refused(card: PriceCard, row: "pd.Series[Any]", must: str) -> ValueError:
    """Say what a run, named by a row of a table of its study, lacks for these prices."""
    return ValueError(f"prices={card.name}: {row.series} seed {row.seed} {must}")


def _notes(study: Study, card: PriceCard) -> list[str]:
    """Say by which prices the clock is made, and what they do not cover."""
    what = "Training time" if card.unit == "s" else "Cost"
    notes = [
        f"{what} is what the logged steps cost at prices {card.name}, not what was measured: "
        f"{card.formula()} (fitted to: {card.fitted_to.rstrip('.')}). "
        f"Not covered: {card.does_not_cover.rstrip('.')}."
    ]
    prompts = sorted(set(study.runs.prompts))
    if card.prompts_per_step is not None and prompts != [card.prompts_per_step]:
        notes.append(
            f"The prices are those of prompts_per_step={card.prompts_per_step}, and these runs "
            f"have {' or '.join(map(str, prompts))}."
        )
    return notes
