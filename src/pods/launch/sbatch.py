"""What Slurm is asked for, a job: the user's settings, and what they leave to the run's config."""

import shlex
from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Any

from pods.config import Config
from pods.machine import python_path
from pods.memory.shape import trained_parameters

START_MINUTES = 30
STEPS_ONLY_MINUTES = 24 * 60
LEAST_NOTICE_SECONDS = 120
STEP_SECONDS = 60  # to end the step that goes on
TRAINED_BYTES = 12  # a checkpoint's, per trained number: itself, and two of the optimizer
DISK_BYTES_PER_SECOND = 2e8  # of a shared disk that is not idle
GENERIC = ("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes",
           "name", "stderr_to_stdout")  # fmt: skip
ARRAY_PARALLELISM = 256  # of submitit, where nothing is said
OURS = ("cluster", "submitit_folder", "max_num_timeout")
Settings = dict[str, Any]


def minutes(config: Config) -> int:
    """Time limit of a job: a job that reaches it commits and is requeued, so it is a guess.

    Half an hour to start, and twice the training clock: evaluations and checkpoints are off that
    clock. A day where only steps end the run.
    """
    seconds = config.budget.train_seconds
    return STEPS_ONLY_MINUTES if seconds is None else START_MINUTES + ceil(2 * seconds / 60)


def notice_seconds(config: Config) -> int:
    """How long before its time limit a job is told: it ends a step and writes a checkpoint.

    The least where nothing is known of the model.
    """
    written = TRAINED_BYTES * trained_parameters(config.model) / DISK_BYTES_PER_SECOND
    return max(LEAST_NOTICE_SECONDS, STEP_SECONDS + ceil(written))


def parameters(config: Config, settings: Settings) -> Settings:
    """What submitit is asked for one job: the settings, and what they leave to the config.

    One task, whatever `hardware.processes`: it starts the others itself.
    """
    hardware = config.hardware
    cores = hardware.threads * hardware.processes
    given = {k: v for k, v in settings.items() if v is not None and k not in OURS}
    by_user = {"gres", "gpus_per_task"} & set(given)
    asked: Settings = {"timeout_min": minutes(config), "signal_delay_s": notice_seconds(config)}
    if "cpus_per_gpu" not in given:
        asked["cpus_per_task"] = cores
    if hardware.device == "cuda" and not by_user:
        asked["gpus_per_node"] = hardware.processes
    if config.launch.jobs:
        asked["array_parallelism"] = config.launch.jobs
    asked |= given
    if "cpus_per_task" in asked:  # which srun does not take from sbatch
        asked["srun_args"] = [f"--cpus-per-task={asked['cpus_per_task']}"]
    setup = [f"export PYTHONPATH={shlex.quote(python_path())}", *given.get("setup", [])]
    asked["setup"] = setup
    return {key if key in GENERIC else f"slurm_{key}": value for key, value in asked.items()}


def at_a_time(configs: Sequence[Config], settings: Settings) -> int:
    """The most jobs that run at once: the bound is each array's, of jobs that ask for the same."""
    if settings["cluster"] != "slurm":  # submitit starts a process each, there and then
        return len(configs)
    asked = [parameters(config, settings) for config in configs]
    bounds = {repr(a): a.get("slurm_array_parallelism", ARRAY_PARALLELISM) for a in asked}
    sizes = Counter(map(repr, asked))
    return sum(min(bounds[array], size) for array, size in sizes.items())
