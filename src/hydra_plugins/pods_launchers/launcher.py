"""Hydra launchers that check and freeze all jobs of a sweep, then execute each in its own process.

Hydra's own launchers execute jobs in one process or all at once on GPU 0, and those for clusters
compose a job's config only when it starts. The work is done in `pods.launch`. Hydra imports this
module at every start, so it must not import anything heavy.
"""

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from pods.config.checks import validate
from pods.config.compose import check_groups, plain
from pods.config.parse import ConfigError, all_keys
from pods.config.schema import Config
from pods.launch import dry_run, sweep
from pods.launch.backend import Backend
from pods.launch.local_backend import local_backend
from pods.runs.identity import identity, run_folder
from pods.runs.store import RunStore
from pods.runs.writable import named_if_unwritable

TARGET = "hydra_plugins.pods_launchers.launcher.SweepLauncher"
CLUSTER_KEYS = {"slurm": "cluster", "ray": "ray"}
"""A key that only the settings of this cluster's launcher have."""
OVERRIDES = "multirun.yaml"  # what Hydra writes of a sweep
RAY_INIT = ("address", "num_cpus", "num_gpus", "_temp_dir")


@dataclass
class LocalConf:
    """The launcher for this machine; its settings are keys of the config's group `launch`."""

    _target_: str = TARGET


@dataclass
class SlurmConf:
    """Parameters of submitit, without its prefix `slurm_`; null: from the config."""

    _target_: str = TARGET
    cluster: str = "slurm"
    """local: processes of this machine, for a trial without Slurm."""
    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    name: str = "${study}"
    timeout_min: int | None = None
    signal_delay_s: int | None = None
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gres: str | None = None
    mem_gb: int | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    partition: str | None = None
    qos: str | None = None
    account: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    comment: str | None = None
    array_parallelism: int | None = None
    setup: list[str] | None = None
    """Commands before the job."""
    stderr_to_stdout: bool = True
    max_num_timeout: int = 100
    """A job makes progress until it times out, so many time-outs are no sign of trouble."""
    additional_parameters: dict[str, Any] = field(default_factory=lambda: {"requeue": True})


@dataclass
class RayConf:
    """The keys of `ray.init`; null: Ray's default."""

    _target_: str = TARGET
    ray: dict[str, Any] = field(default_factory=lambda: {"init": dict.fromkeys(RAY_INIT)})


LAUNCHERS = {"pods_local": LocalConf, "pods_slurm": SlurmConf, "pods_ray": RayConf}
for name, node in LAUNCHERS.items():
    ConfigStore.instance().store(group="hydra/launcher", name=name, node=node)


@dataclass
class SweeperConf(BasicSweeperConf):
    """Hydra's own keys of a sweep: params and max_batch_size."""

    _target_: str = "hydra_plugins.pods_launchers.launcher.Sweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="pods", node=SweeperConf)


class Sweeper(BasicSweeper):
    """Hydra's sweeper, without composing each job twice: the launcher checks them all."""

    def sweep(self, arguments: list[str]) -> Any:
        """Execute the jobs; a sweep that is refused before it has any leaves no folder."""
        try:
            return super().sweep(arguments)
        except HydraException:
            self.launcher.remove_overrides()
            raise

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Leave it to the launcher, which composes every job before the first one starts."""


class SweepLauncher(Launcher):
    """Execute each job of a sweep in a process of its own, on this machine or a cluster."""

    def __init__(self, **settings: Any) -> None:
        """Keep a cluster's settings; the launcher for this machine has none."""
        plain_settings = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)
        self.settings = dict(plain_settings)  # type: ignore[arg-type]

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what composes a job's config; the task function is not called in this process."""
        self.context = hydra_context
        self.config = config
        self.composed: dict[tuple[str, ...], DictConfig] = {}

        folder = Path(config.hydra.sweep.dir)
        # as Hydra does next, also for a dry run and for a sweep that is then refused; it would
        # name no key if the disk refused
        with named_if_unwritable(config.runs_dir, config.study):
            self.new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(config, folder / OVERRIDES)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Compose and check all configs, execute the jobs, and return each one's last accuracy.

        Raises:
            ConfigError: a job's config is not allowed; no job has been started.
            sweep.SweepFailed: some jobs failed; the others are done.
        """
        try:
            accuracies = self._execute(job_overrides)
        except (ValueError, HydraException):  # nothing has begun
            self.remove_overrides()
            raise
        return [
            JobReturn(overrides=overrides, _return_value=accuracy, status=JobStatus.COMPLETED)
            for overrides, accuracy in zip(job_overrides, accuracies, strict=True)
        ]

    def _execute(self, job_overrides: Sequence[Sequence[str]]) -> list[float]:
        """Execute all jobs, or show them, and return what a sweeper such as Optuna's maximises."""
        if not job_overrides:
            raise self._empty_sweep()
        configs = [self._config(overrides) for overrides in job_overrides]

        if any(config.dry_run for config in configs):
            print("\n".join(dry_run.show(configs)))
            self.remove_overrides()
            return [0.0] * len(configs)

        sweep.run(configs, _backend(configs, self.settings))
        return [_accuracy(config) for config in configs]

    def _config(self, overrides: Sequence[str]) -> Config:
        """Compose and check a job; jobs that differ in values of keys alone, such as seeds, share.

        A dict is merged into what stands before it, so that Hydra must see all words in order.
        """
        check_groups(overrides)
        loader = self.context.config_loader
        parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
        values = []
        if not any(isinstance(word.value(), dict) for word in parsed):
            for word in parsed:
                is_group = bool(loader.get_group_options(word.key_or_group))
                if word.key_or_group in all_keys() and not is_group:
                    values.append(word)
        chosen = [word for word in parsed if word not in values]

        words = tuple(str(word.input_line) for word in chosen)
        if words not in self.composed:
            self.composed[words] = loader.load_sweep_config(self.config, list(words))
        composed = copy.deepcopy(self.composed[words])
        ConfigLoaderImpl._apply_overrides_to_config(values, composed)  # as Hydra does it next
        return validate(plain(composed, overrides, composed.hydra.runtime))

    def _empty_sweep(self) -> ConfigError:
        """Name the key that is swept over no value, such as `seed=range(0)`."""
        parameters = self.config.hydra.sweeper.params or {}
        words = [f"{key}={value}" for key, value in parameters.items()]
        words += self.config.hydra.overrides.task
        parser = OverridesParser.create(self.context.config_loader)
        empty = [
            override.input_line
            for override in parser.parse_overrides(words)
            if override.is_sweep_override() and not list(override.sweep_string_iterator())
        ]
        key, _, value = str(empty[-1]).partition("=")
        return ConfigError(key, value, "has no value")

    def remove_overrides(self) -> None:
        """Remove what Hydra wrote before: multirun.yaml, and the folders that it created."""
        (Path(self.config.hydra.sweep.dir) / OVERRIDES).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            for folder in self.new_folders:
                folder.rmdir()


def _accuracy(config: Config) -> float:
    """Return a job's last accuracy; 0 if a plan has stopped its arm before."""
    store = RunStore(run_folder(config, identity(config)))
    return store.status().get("accuracy") or 0.0


def _backend(configs: Sequence[Config], settings: dict[str, Any]) -> Backend:
    """Return the backend that `launch` names, with the settings of `hydra.launcher`."""
    on = configs[0].launch.on
    if on == "local":
        return local_backend(configs)
    if CLUSTER_KEYS[on] not in settings:  # the key was set without its group
        raise ConfigError("launch.on", on, f"use launch={on} instead")
    if on == "slurm":
        from pods.launch.slurm_backend import slurm_backend as backend
    else:
        from pods.launch.ray_backend import ray_backend as backend
    return backend(configs, settings)
