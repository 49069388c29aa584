"""The launchers: all jobs of a sweep are checked and frozen first, then run one a process.

Hydra's own launchers run jobs in one process, or all at once on GPU 0, and those for clusters
compose a job's config when it starts. This one is only the plug; the work is in `pods.sweep` and
`pods.launch`. Of the extras it takes their settings; Hydra imports it at every start, so nothing
heavy may be imported here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from pods import dry_run, sweep
from pods.checks import build
from pods.config import Config
from pods.launch import local
from pods.launch.place import Place
from pods.validate import ConfigError

TARGET = "hydra_plugins.pods_launchers.launcher.SweepLauncher"
OF_CLUSTER = {"slurm": "cluster", "ray": "ray"}  # a key that the settings of each have


@dataclass
class LocalConf:
    """Settings are keys of the config's own `launch` group."""

    _target_: str = TARGET


ConfigStore.instance().store(group="hydra/launcher", name="pods_local", node=LocalConf)

with suppress(ImportError):
    from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf

    @dataclass
    class SlurmConf(SlurmQueueConf):
        """The keys of hydra-submitit-launcher; null: from the config (`pods.launch.sbatch`)."""

        _target_: str = TARGET
        cluster: str = "slurm"
        """local: processes of this machine, to try it."""
        name: str = "${study}"
        timeout_min: int | None = None
        signal_delay_s: int | None = None
        array_parallelism: int | None = None
        stderr_to_stdout: bool = True
        max_num_timeout: int = 100
        """Each time-out has got on with the run, so many of them are no sign of trouble."""
        additional_parameters: dict[str, Any] = field(default_factory=lambda: {"requeue": True})

    ConfigStore.instance().store(group="hydra/launcher", name="pods_slurm", node=SlurmConf)

with suppress(ImportError):
    from hydra_plugins.hydra_ray_launcher._config import RayConf, RayLauncherConf

    INIT = {"address": None, "num_cpus": None, "num_gpus": None, "_temp_dir": None}

    @dataclass
    class RayTasksConf(RayLauncherConf):
        """The keys of hydra-ray-launcher: `ray.init` (null: Ray's default) and `ray.remote`."""

        _target_: str = TARGET
        ray: RayConf = field(default_factory=lambda: RayConf(init=dict(INIT)))

    ConfigStore.instance().store(group="hydra/launcher", name="pods_ray", node=RayTasksConf)


class SweepLauncher(Launcher):
    """A process for each job, as many at a time as the place has room for."""

    def __init__(self, **settings: Any) -> None:
        """Take a cluster's settings; this machine has none."""
        plain = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)
        self.settings = dict(plain)  # type: ignore[arg-type]

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what composes a job's config; the task function runs in the jobs' processes."""
        self.context = hydra_context
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Compose all jobs, run them, return one result a job.

        Raises:
            ConfigError: some job's config is not allowed; no job has been started.
            sweep.SweepFailed: some jobs failed; the others are done.
        """
        loader = self.context.config_loader
        configs = [
            build(OmegaConf.to_container(_plain(loader.load_sweep_config(self.config, list(o))),
                                         resolve=True))  # type: ignore[arg-type]
            for o in job_overrides
        ]  # fmt: skip
        if any(config.dry_run for config in configs):
            print("\n".join(dry_run.show(configs)))
        else:
            sweep.run(configs, _place(configs, self.settings))
        return [
            JobReturn(overrides=o, _return_value=0, status=JobStatus.COMPLETED)
            for o in job_overrides
        ]


def _place(configs: Sequence[Config], settings: dict[str, Any]) -> Place:
    on = configs[0].launch.on
    if on != "local" and OF_CLUSTER[on] not in settings:  # the key was set, and not the group
        raise ConfigError("launch.on", on, f"say launch={on}")
    if on == "slurm":
        from pods.launch import slurm

        return slurm.place(configs, settings)
    if on == "ray":
        from pods.launch import ray_tasks

        return ray_tasks.place(configs, settings)
    return local.place(configs)


def _plain(composed: DictConfig) -> DictConfig:
    """The job's own keys, without Hydra's node."""
    return OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
