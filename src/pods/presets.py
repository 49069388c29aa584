"""The jobs of a preset, as Hydra's sweeper would make them, on hardware of one's choice."""

import itertools
from dataclasses import dataclass, replace

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from pods.checks import build
from pods.compose import compose
from pods.config import CONF, Config
from pods.validate import ConfigError


@dataclass(frozen=True, slots=True)
class Sweep:
    """The jobs of a preset on some hardware."""

    configs: tuple[Config, ...]
    """Seed by seed, as a sweep runs them."""
    gpus: int
    """That each of them takes; where it runs on a CPU, its processes."""
    machine: int
    """That one machine of this hardware has."""


def presets() -> list[str]:
    """Names of all presets."""
    return sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


def sweep_of(preset: str, hardware: str, seeds: int | None = None) -> Sweep:
    """Compose every arm of a preset on some hardware, and give it each seed.

    A job takes as many GPUs as it does on the preset's own hardware, or all that there are.

    Args:
        preset: its name.
        hardware: name of a hardware group.
        seeds: 0 to seeds - 1; None: the preset's own.

    Raises:
        ValueError: there is no such preset or hardware, or the two cannot go together.
    """
    if preset not in presets():
        raise ConfigError("study", preset, f"must be a preset, one of {', '.join(presets())}")
    own = composed(preset)
    there = compose([f"experiment={preset}", f"hardware={hardware}"])["hardware"]
    machine = int(there["processes"])
    gpus = min(own.hardware.processes, machine)
    swept = _swept(preset)
    own_seeds = swept.pop("seed", ["0"])
    arms = [[f"{key}={value}" for key, value in zip(swept, values, strict=True)]
            for values in itertools.product(*swept.values())]  # fmt: skip
    place = (f"hardware={hardware}", f"hardware.processes={gpus}")
    series = [composed(preset, *place, *words) for words in arms]
    numbers = range(seeds) if seeds else map(int, own_seeds)
    configs = tuple(replace(config, seed=seed) for seed in numbers for config in series)
    return Sweep(configs, gpus, machine)


def composed(preset: str, *words: str) -> Config:
    """One config of a preset; a dry run, so that data and engine need not be here."""
    return build(compose([f"experiment={preset}", *words, "dry_run=true"]))


def _swept(preset: str) -> dict[str, list[str]]:
    """Values of each swept key, by Hydra's own reading of ranges and lists."""
    text = (CONF / "experiment" / f"{preset}.yaml").read_text()
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    words = [f"{key}={value}" for key, value in params.items()]
    found = OverridesParser.create().parse_overrides(words)
    return {str(word.get_key_element()): _values(word) for word in found}


def _values(word: Override) -> list[str]:
    return list(word.sweep_string_iterator()) if word.is_sweep_override() else [str(word.value())]
