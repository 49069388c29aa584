"""The resources that each job asks of Slurm: the user's settings and, by default, the config's."""

import shlex
from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Any

from pods.config.schema import Config
from pods.memory.shape import trained_parameters
from pods.system.machine import python_path

START_MINUTES = 30
STEPS_ONLY_MINUTES = 24 * 60
MIN_SIGNAL_DELAY_SECONDS = 120
STEP_SECONDS = 60  # to end the current step
CHECKPOINT_BYTES = 12  # per trained parameter: the parameter and two Adam moments in float32
DISK_BYTES_PER_SECOND = 2e8  # of a shared disk in use
COMMON = (
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
)
"""Parameters that submitit knows on every cluster; the others have the prefix `slurm_`."""
EXECUTOR = ("cluster", "submitit_folder", "max_num_timeout")
"""Settings of submitit's executor rather than of a job."""
ARRAY_PARALLELISM = 256  # submitit's default
Settings = dict[str, Any]


def timeout_minutes(config: Config) -> int:
    """Return the time limit of a job; a job that reaches it commits and is requeued.

    It is half an hour to start and twice the training clock, which counts neither evaluations nor
    checkpoints; it is a day for a run that only ends by steps, or by a modelled clock.
    """
    seconds = config.budget.train_seconds
    if seconds is None or config.budget.clock == "modelled":
        return STEPS_ONLY_MINUTES
    return START_MINUTES + ceil(2 * seconds / 60)


def signal_delay_seconds(config: Config) -> int:
    """Return how long before its time limit a job is signalled.

    In that time it has to end a step and write a checkpoint, whose size the model determines.
    """
    written = CHECKPOINT_BYTES * trained_parameters(config.model) / DISK_BYTES_PER_SECOND
    return max(MIN_SIGNAL_DELAY_SECONDS, STEP_SECONDS + ceil(written))


def parameters(config: Config, settings: Settings) -> Settings:
    """Return submitit's parameters for one job.

    A job is one task whatever `hardware.processes` is, because it starts the processes itself.
    """
    hardware = config.hardware
    given = {k: v for k, v in settings.items() if v is not None and k not in EXECUTOR}
    chosen: Settings = {
        "timeout_min": timeout_minutes(config),
        "signal_delay_s": signal_delay_seconds(config),
    }
    if "cpus_per_gpu" not in given:
        chosen["cpus_per_task"] = hardware.threads * hardware.processes
    if hardware.device == "cuda" and not {"gres", "gpus_per_task"} & set(given):
        chosen["gpus_per_node"] = hardware.processes
    if config.launch.jobs:
        chosen["array_parallelism"] = config.launch.jobs
    chosen |= given
    if "cpus_per_task" in chosen:  # srun does not take it from sbatch
        chosen["srun_args"] = [f"--cpus-per-task={chosen['cpus_per_task']}"]
    path = f"export PYTHONPATH={shlex.quote(python_path())}"
    chosen["setup"] = [path, *given.get("setup", [])]
    return {key if key in COMMON else f"slurm_{key}": value for key, value in chosen.items()}


def max_concurrent(configs: Sequence[Config], settings: Settings) -> int:
    """Return how many jobs run at once: of each array, which has jobs with equal parameters."""
    if settings["cluster"] != "slurm":  # submitit starts all processes immediately
        return len(configs)
    per_job = [parameters(config, settings) for config in configs]
    limits = {repr(p): p.get("slurm_array_parallelism", ARRAY_PARALLELISM) for p in per_job}
    return sum(min(limits[array], size) for array, size in Counter(map(repr, per_job)).items())
