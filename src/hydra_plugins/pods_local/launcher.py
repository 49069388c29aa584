"""The local launcher: all jobs of a sweep are checked and frozen first, then run one a process.

Hydra's own launchers run jobs in one process, or all at once on GPU 0. This one is only the plug;
the work is in `pods.sweep`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from pods import dry_run, sweep
from pods.checks import build


@dataclass
class LocalLauncherConf:
    """Settings are keys of the config's own `launch` group."""

    _target_: str = "hydra_plugins.pods_local.launcher.LocalLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="pods_local", node=LocalLauncherConf)


class LocalLauncher(Launcher):
    """A fresh process a job, as many at a time as the machine has room for."""

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
            sweep.run(configs)
        return [
            JobReturn(overrides=o, _return_value=0, status=JobStatus.COMPLETED)
            for o in job_overrides
        ]


def _plain(composed: DictConfig) -> DictConfig:
    """The job's own keys, without Hydra's node."""
    return OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
