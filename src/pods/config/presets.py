"""The jobs of a preset (`conf/experiment/`), as Hydra's sweeper makes them, on any hardware."""

import itertools
from dataclasses import dataclass, replace

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.parse import ConfigError
from pods.config.schema import CONF, Config


@dataclass(frozen=True, slots=True)
class PresetJobs:
    """The jobs of a preset on some hardware."""

    configs: tuple[Config, ...]
    """One config per job, seed by seed, in the order of a sweep."""
    gpus: int
    """Number of GPUs per job, or of processes on a CPU."""
    machine: int
    """Number of GPUs of one machine of this hardware."""


def presets() -> list[str]:
    """List the names of all presets."""
    return sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


def sweep_of(preset: str, hardware: str, seeds: int | None = None) -> PresetJobs:
    """Compose every arm of a preset on some hardware, with each seed.

    A job takes as many GPUs as on the preset's own hardware, or all GPUs of the machine.

    Args:
        preset: name of the preset.
        hardware: name of a hardware group.
        seeds: 0 to seeds - 1; None uses the preset's own.

    Raises:
        ValueError: there is no such preset or hardware, or the two cannot be combined.
    """
    if preset not in presets():
        raise ConfigError("study", preset, f"must be a preset, one of {', '.join(presets())}")
    values = compose([f"experiment={preset}", f"hardware={hardware}"])
    machine = int(values["hardware"]["processes"])
    gpus = min(composed(preset).hardware.processes, machine)
    swept = _swept_values(preset)
    preset_seeds = swept.pop("seed", ["0"])
    arms = [
        composed(
            preset,
            f"hardware={hardware}",
            f"hardware.processes={gpus}",
            *(f"{key}={value}" for key, value in zip(swept, values, strict=True)),
        )
        for values in itertools.product(*swept.values())
    ]
    numbers = range(seeds) if seeds else map(int, preset_seeds)
    configs = tuple(replace(config, seed=seed) for seed in numbers for config in arms)
    return PresetJobs(configs, gpus, machine)


def composed(preset: str, *overrides: str) -> Config:
    """Compose one config of a preset, as a dry run so that data and engine may be missing."""
    return validate(compose([f"experiment={preset}", *overrides, "dry_run=true"]))


def _swept_values(preset: str) -> dict[str, list[str]]:
    """Read the values of each swept key with Hydra's own parser of ranges and lists."""
    text = (CONF / "experiment" / f"{preset}.yaml").read_text()
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    overrides = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in params.items()])
    return {str(override.get_key_element()): _values(override) for override in overrides}


def _values(override: Override) -> list[str]:
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [str(override.value())]
