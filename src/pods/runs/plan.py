"""A study's plan as it was registered: with hash and time, before the runs that it is about."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from pods.config.parse import ConfigError, read_value, unknown_key
from pods.config.plan import PlanConfig, Question, question, refusals
from pods.config.price_card import PriceCard, read_card
from pods.config.schema import CONF, Config
from pods.runs.files import json_lines, read_lines, read_or_empty, replace
from pods.runs.store import RunStore, run_folders
from pods.runs.writable import named_if_unwritable

PLAN = "plan.jsonl"
"""A line for each plan that the study has had, the newest last."""
Prices = dict[str, PriceCard]
"""Cards of prices, by how a contrast names them."""


@dataclass(frozen=True)
class Registered:
    """A plan, and what there was of the study when it was registered."""

    time: str
    """In UTC, to the second."""
    sha256: str
    runs: int
    """Runs that had begun."""
    plan: PlanConfig
    prices: Prices
    """The cards that its contrasts name, as they were then."""

    @property
    def questions(self) -> list[Question]:
        """The contrasts of the plan."""
        return [question(text) for text in self.plan.contrasts]


def register(configs: Sequence[Config]) -> None:
    """Write the plan of these configs into the folders of their studies, if it is new or changed.

    Configs without a plan change nothing.

    `ConfigError`: they have several plans, an arm would get more seeds than the plan allows, or it
    would stop the seeds of several studies.
    """
    plan = configs[0].plan
    studies = list(dict.fromkeys(config.study for config in configs))
    if any(config.plan != plan for config in configs):
        raise ConfigError("plan", "", "must be the same in all runs of a sweep")
    if plan.stop == "decided" and len(studies) > 1:
        raise ConfigError("plan.stop", plan.stop, "must be seeds if a sweep has several studies")
    if not plan.contrasts:
        return

    for study in studies:
        _register([config for config in configs if config.study == study])


def _register(configs: Sequence[Config]) -> None:
    """Write the plan of the configs of one study."""
    first = configs[0]
    folder = Path(first.runs_dir, first.study)
    begun = [path for path in run_folders(folder) if RunStore(path).status()["state"] != "pending"]
    _check_seeds(configs, begun)
    plans = read_plans(folder)
    prices = prices_of(first.plan)
    if plans and (plans[-1].plan, plans[-1].prices) == (first.plan, prices):
        return

    record = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": _hash(first.plan, prices),
        "runs": len(begun),
        "plan": asdict(first.plan),
        "prices": _records(prices),
    }
    with named_if_unwritable(first.runs_dir, first.study):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PLAN
        replace(path, read_or_empty(path) + json_lines([record]), durable=True)


def _check_seeds(configs: Sequence[Config], begun: Sequence[Path]) -> None:
    """Check that the runs of a study have no more seeds than the plan allows."""
    plan = configs[0].plan
    seeds = {config.seed for config in configs}
    for path in begun:
        seeds.add(int(path.name.partition("-")[0].removeprefix("seed")))
    count = len(seeds - set(plan.without))
    if plan.seeds is not None and count > plan.seeds:
        allowed = f"the study has {count} seeds; a larger number is a change, which is shown"
        raise ConfigError("plan.seeds", plan.seeds, allowed)


def prices_of(plan: PlanConfig) -> Prices:
    """Read the cards of prices that the contrasts of a plan name."""
    names = [question(text).prices for text in plan.contrasts]
    return {name: read_card(name) for name in names if name is not None}


def _records(prices: Prices) -> dict[str, dict[str, Any]]:
    return {name: asdict(card) for name, card in prices.items()}


def _hash(plan: PlanConfig, prices: Prices) -> str:
    content = asdict(plan) | {"prices": _records(prices)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_plans(folder: Path) -> list[Registered]:
    """Return the plans that a study has had, the newest last.

    `ValueError`: the file is damaged, or a plan was edited after it was registered.
    """
    path = folder / PLAN
    plans = []
    for line in read_lines(path) if path.is_file() else []:
        try:
            plan = PlanConfig(**line["plan"])
            prices = {name: PriceCard(**card) for name, card in line["prices"].items()}
            if line["sha256"] != _hash(plan, prices):
                raise ValueError("a plan was edited after it was registered")
            runs = int(line["runs"])
            plans.append(Registered(line["time"], line["sha256"], runs, plan, prices))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: is damaged: {error!r}") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return plans


def plan_of_file(path: Path) -> Registered:
    """Read a plan from a YAML file with the keys of `plan`, for runs of other trainers.

    `ConfigError`: it cannot be read, or a key is unknown or has a value that is not allowed.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
        defaults = yaml.safe_load((CONF / "config.yaml").read_bytes())["plan"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("--plan", path, f"must be a YAML file of a plan: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError("--plan", path, "must be a YAML file with lines such as margin: 0.5")

    for name in content:
        if name not in defaults:
            raise ConfigError(f"plan.{name}", content[name], unknown_key(f"plan.{name}"))
    values = {name: read_value(f"plan.{name}", defaults[name]) for name in defaults}
    values |= {str(name): read_value(f"plan.{name}", content[name]) for name in content}
    plan = PlanConfig(**values)
    for key, allowed in refusals(plan, read_card):
        raise ConfigError(key, values[key.removeprefix("plan.")], allowed)
    prices = prices_of(plan)
    return Registered(time="", sha256=_hash(plan, prices), runs=0, plan=plan, prices=prices)


def changes(plans: Sequence[Registered]) -> Iterator[str]:
    """Yield a line for each key of a study's plan that has changed since it was registered."""
    for before, after in itertools.pairwise(plans):
        old = asdict(before.plan)
        new = asdict(after.plan)
        when = f"changed {after.time}, after {after.runs} runs had begun"
        for name in old:
            if name != "contrasts" and old[name] != new[name]:
                yield f"{when}: plan.{name} {old[name]} -> {new[name]}"
        for text in old["contrasts"]:
            if text not in new["contrasts"]:
                yield f"{when}: removed {text}"
        for text in new["contrasts"]:
            if text not in old["contrasts"]:
                yield f"{when}: added {text}"
        for name, card in before.prices.items():
            newer = after.prices.get(name, card)
            if newer != card:
                yield f"{when}: prices {name} {card.formula()} -> {newer.formula()}"
