"""`pods doctor`: check whether this machine is fit for a run, by quick checks and a smoke step."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pods.config.checks import GENERATED, missing_inputs, validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.memory.shape import GIB
from pods.runs.attempts import environment
from pods.runs.files import size
from pods.runs.paths import weights_source
from pods.system.machine import set_threads

TEST_BYTES = 2**20


def doctor(overrides: Sequence[str]) -> bool:
    """Print the facts of this machine, then load policy and engine and take a smoke step.

    Args:
        overrides: as `run.py` takes them. If they name no engine, it is vLLM where that is
            installed.

    Returns:
        Whether a run can start.

    Raises:
        ValueError: the overrides make no valid config.
    """
    if not any(override.startswith(("engine=", "engine.name=")) for override in overrides):
        overrides = [f"engine={'vllm' if find_spec('vllm') else 'transformers'}", *overrides]
    config = validate({**compose(overrides), "dry_run": True})  # lists missing inputs below
    machine = environment()
    for label, text in facts(config, machine):
        print(f"{label:<10} {text}", flush=True)
    errors = [f"missing: {line}" for line in missing(config, machine["gpus"])]
    if not errors and (error := _probe(config)):
        errors = [f"failed: {error}"]
    print("\n".join(errors or ["all is well"]))
    return not errors


def facts(config: Config, machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of what can be seen without loading anything.

    Args:
        config: config of the run.
        machine: `environment()` of this machine.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "machine", f"{machine['cpu']}, {machine['cores']} cores, {memory / GIB:.0f} GiB memory"
    yield "GPUs", ", ".join(machine["gpus"]) or "none"
    packages = (f"{name} {version}" for name, version in machine["packages"].items() if version)
    yield "software", ", ".join([f"python {machine['python']}", *packages])
    free = _free(_existing_parent(config.runs_dir))
    yield "disk", f"{free} for run folders ({Path(config.runs_dir).absolute()})"
    shared = Path("/dev/shm")
    yield (
        "/dev/shm",
        _free(shared) if shared.is_dir() else "none: engine.sync=adapter_file uses the disk",
    )
    yield "model", f"{config.model.name}, {_weights_location(config)}"
    yield "task", f"{config.task.name}, {_data_location(config)}"
    engine, hardware = config.engine, config.hardware
    vllm = f", {engine.sync}, {engine.dtype}" if engine.name == "vllm" else ""
    yield "engine", f"{engine.name}{vllm}"
    yield "hardware", f"{hardware.name}: {hardware.device}, {hardware.threads} CPU threads per job"


def missing(config: Config, gpus: Sequence[str]) -> Iterator[str]:
    """Yield one line for each thing that a run needs and this machine lacks.

    Args:
        config: config of the run.
        gpus: GPUs of this machine.
    """
    yield from map(str, missing_inputs(config))
    hardware = config.hardware
    if hardware.device == "cuda" and not gpus:
        yield f"hardware={hardware.name}: needs a GPU; hardware=cpu runs anywhere"
    elif hardware.device == "cuda" and len(gpus) < hardware.processes:
        yield f"hardware.processes={hardware.processes}: needs one GPU each; found {len(gpus)}"
    try:
        with tempfile.TemporaryFile(dir=_existing_parent(config.runs_dir)) as file:
            file.write(bytes(TEST_BYTES))
            file.flush()
    except OSError as error:
        yield f"runs_dir={config.runs_dir}: must be on a writable disk ({error.strerror})"


def _existing_parent(runs_dir: str) -> Path:
    """Return the nearest folder to `runs_dir` that exists."""
    folder = Path(runs_dir).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _free(folder: Path) -> str:
    return f"{shutil.disk_usage(folder).free / GIB:.1f} GiB free"


def _weights_location(config: Config) -> str:
    location = weights_source(config.model)
    if Path(location).is_dir():
        return f"{size(Path(location)) / 1e6:,.1f} MB in {location}"
    if config.model.path is not None:
        return f"not in {location}"
    from huggingface_hub import try_to_load_from_cache

    cached = isinstance(try_to_load_from_cache(location, "config.json"), str)
    return f"{location} on the hub, {'cached here' if cached else 'to be downloaded'}"


def _data_location(config: Config) -> str:
    task = config.task
    if task.name in GENERATED:
        return "generated"
    train = "on the hub" if task.path is None else f"in {task.path}"
    if task.test_set == "own" and task.test_path is None:
        return train
    test = "on the hub" if task.test_path is None else f"in {task.test_path}"
    return f"{train}; evaluated on {task.evaluated_on()}, {test}"


def _probe(config: Config) -> str | None:
    """Take the smoke step and print its results; return the error in one line, if any."""
    set_threads(config.hardware.threads)
    from pods.cli.probe import probe

    try:
        for label, text in probe(config):
            print(f"{label:<10} {text}", flush=True)
    except Exception as error:  # the user wants to know whatever a library raises
        ours = isinstance(error, ValueError) or type(error).__module__.startswith("pods.")
        return " ".join(f"{'' if ours else type(error).__name__ + ': '}{error}".split())
    return None
