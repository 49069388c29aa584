"""The GPUs or cores of this machine, and how jobs share them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.system.machine import cores, gpus, visible_gpus


@dataclass
class DevicePool:
    """Devices that jobs take and return; each device belongs to one job at a time.

    Jobs must ask in order: a job that has to wait also holds back all jobs behind it, so that small
    jobs cannot starve a large one.
    """

    devices: Sequence[str]
    jobs: int | None = None  # largest number of jobs at once; None: as many as the devices allow
    taken: list[tuple[str, ...]] = field(default_factory=list)  # the devices of each running job

    def take(self, count: int) -> tuple[str, ...] | None:
        """Take the first `count` free devices, or return None if the job has to wait.

        >>> pool = DevicePool("0123")
        >>> pool.take(1), pool.take(2), pool.take(2)
        (('0',), ('1', '2'), None)
        """
        if len(self.taken) == self.jobs:
            return None
        busy = set(chain.from_iterable(self.taken))
        free = [device for device in self.devices if device not in busy]
        if len(free) < count:
            return None
        self.taken.append(tuple(free[:count]))
        return self.taken[-1]


def check_gpus(configs: Sequence[Config], names: Sequence[str] | None = None) -> None:
    """Raise a `ConfigError` if this machine lacks the GPUs that the largest of these runs needs.

    Without their `names` it looks for them, but not for runs on one GPU: nvidia-smi may be missing
    where torch still finds a GPU.
    """
    on_gpus = [config.hardware.processes for config in configs if config.hardware.device == "cuda"]
    if not on_gpus:
        return
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        raise ConfigError("hardware.device", "cuda", "CUDA_VISIBLE_DEVICES is empty")

    needed = max(on_gpus)
    if names is None:
        if needed == 1:
            return
        names = gpus()

    if not names:
        raise ConfigError("hardware.device", "cuda", "needs a GPU; hardware=cpu runs anywhere")
    if needed > len(names):
        why = f"needs one GPU per process; this machine has {_count(names)}"
        raise ConfigError("hardware.processes", needed, why)


def _count(names: Sequence[str]) -> str:
    return "1 GPU" if len(names) == 1 else f"{len(names)} GPUs"


def device_pool(configs: Sequence[Config]) -> DevicePool:
    """Return the GPUs that this process may use, or its cores, for jobs of these configs."""
    kinds = sorted({config.hardware.device for config in configs})
    if len(kinds) > 1:
        raise ConfigError("hardware.device", ",".join(kinds), "must be the same in all jobs")

    jobs = configs[0].launch.jobs
    if kinds == ["cuda"]:
        indices = [index for index, _ in visible_gpus("name")]
        return DevicePool(indices or ["0"], jobs)  # torch may find one that nvidia-smi does not
    return DevicePool([str(core) for core in range(jobs or cores())], jobs)


def devices_needed(config: Config, pool: DevicePool) -> int:
    """Return how many devices of the pool a job takes, at most all of them.

    On a CPU, `launch.jobs` gives each of that many jobs an equal share, whatever its threads.
    """
    hardware = config.hardware
    if hardware.device == "cuda":
        needed = hardware.processes
    elif config.launch.jobs:
        needed = 1
    else:
        needed = hardware.threads * hardware.processes
    return min(needed, len(pool.devices))


def max_concurrent(pool: DevicePool, configs: Sequence[Config]) -> int:
    """Return the largest number of these jobs that can run at the same time."""
    empty = DevicePool(pool.devices, pool.jobs)
    counts = sorted(devices_needed(config, pool) for config in configs)
    started = [count for count in counts if empty.take(count) is not None]
    return len(started)
