"""Read what the files of the chosen arm and of `reproduction` set: a label implies it."""

from collections.abc import Iterator
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.default_element import GroupDefault
from omegaconf import DictConfig, OmegaConf

GROUPS = ("arm", "reproduction/settings")  # whose options stand in a label; the later one decides
SELF = "_self_"  # in a defaults list: the file itself


def label_settings(composed: DictConfig, runtime: DictConfig) -> list[str]:
    """Return KEY=VALUE for each key that the arm or `reproduction` sets, by file or chosen option.

    The command line may have set another value.

    Args:
        composed: the config, by which values such as `${nm.m}` are resolved.
        runtime: `hydra.runtime`, which has the chosen options and the folders that they are in.
    """
    files = _files(runtime)
    settings: dict[str, Any] = {}
    for group in GROUPS:
        settings |= _settings(files, f"{group}/{runtime.choices.get(group)}")

    lines = []
    for key, value in sorted(settings.items()):
        is_reference = isinstance(value, str) and "${" in value
        shown = _resolved(composed, key, value) if is_reference else value
        lines.append(f"{key}={shown}")
    return lines


def _resolved(composed: DictConfig, key: str, reference: str) -> Any:
    """Return what a file's `${...}` gives in the config, whatever the command line has set."""
    if "${." in reference:  # relative to its own group
        return OmegaConf.select(composed, key)
    return OmegaConf.create({"value": reference}, parent=composed).value


def _files(runtime: DictConfig) -> ConfigRepository:
    """Return the files that the config was composed from, also those of `--config-dir`."""
    search_path = ConfigSearchPathImpl()
    for source in runtime.config_sources:
        if source.path:
            search_path.append(source.provider, source.path)
    return ConfigRepository(search_path)


def _settings(files: ConfigRepository, name: str) -> dict[str, Any]:
    """Return what a file of conf/ sets, by dotted key; nothing if there is no such file."""
    file = files.load_config(name)
    if file is None:
        return {}

    group = name.rpartition("/")[0]
    settings: dict[str, Any] = {}
    for default in file.defaults_list or []:
        if isinstance(default, GroupDefault):
            settings |= _settings(files, f"{str(default.group).lstrip('/')}/{default.value}")
        elif default.path != SELF:
            settings |= _settings(files, f"{group}/{default.path}")

    in_root = file.header["package"] == "_global_"
    settings |= _leaves(file.config, "" if in_root else f"{group}.")
    return settings


def _leaves(node: DictConfig, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of everything in a file, references unresolved."""
    pending: list[tuple[str, Any]] = [(prefix, OmegaConf.to_container(node))]
    while pending:
        before, section = pending.pop()
        for name, value in section.items():
            if isinstance(value, dict):
                pending.append((f"{before}{name}.", value))
            else:
                yield f"{before}{name}", value
