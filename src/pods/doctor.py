"""`pods doctor`: is this machine fit for a run? What is cheap is said before anything loads."""

import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pods.checks import build, missing_inputs
from pods.compose import compose
from pods.config import Config
from pods.machine import set_threads
from pods.runs.environment import environment
from pods.runs.files import size
from pods.runs.home import weights

GIB = 2**30
LABEL = 10  # columns
WIDTH = 100
PROBE = 2**20  # bytes


def doctor(words: Sequence[str]) -> bool:
    """Print what is here, then load policy and engine, and ask them something.

    Args:
        words: overrides as `run.py` takes them; without an engine among them it is vLLM where that
            is installed.

    Returns:
        Whether a run can start.

    Raises:
        ValueError: the words make no config.
    """
    config = build({**compose(_with_engine(words)), "dry_run": True})  # what lacks is listed below
    here = environment()
    for label, text in facts(config, here):
        _say(label, text)
    wrong = [f"missing: {line}" for line in missing(config, here["gpus"])]
    if not wrong and (trouble := _try(config)):
        wrong = [f"wrong: {trouble}"]
    print("\n".join(wrong or ["all is well"]))
    return not wrong


def _with_engine(words: Sequence[str]) -> list[str]:
    if any(word.startswith(("engine=", "engine.name=")) for word in words):
        return list(words)
    return [f"engine={'vllm' if find_spec('vllm') else 'transformers'}", *words]


def facts(config: Config, here: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of what can be seen without loading anything.

    Args:
        config: of the run that is meant.
        here: `environment()` of this machine.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "machine", f"{here['cpu']}, {here['cores']} cores, {memory / GIB:.0f} GiB memory"
    yield "GPUs", ", ".join(here["gpus"]) or "none"
    found = ", ".join(f"{name} {version}" for name, version in here["packages"].items() if version)
    yield "software", f"python {here['python']}, {found}"
    place = _runs_place(config)
    yield "disk", f"{_free(place)} where runs go ({Path(config.runs_dir).absolute()})"
    shared = Path("/dev/shm")
    yield "/dev/shm", _free(shared) if shared.is_dir() else "none: adapters go over the disk"
    yield "model", f"{config.model.name}, {_source(config)}"
    yield "task", f"{config.task.name}, {_data(config)}"
    engine, hardware = config.engine, config.hardware
    vllm = f", {engine.sync}, {engine.dtype}" if engine.name == "vllm" else ""
    yield "engine", f"{engine.name}{vllm}"
    yield "hardware", f"{hardware.name}: {hardware.device}, {hardware.threads} CPU threads a job"


def missing(config: Config, gpus: Sequence[str]) -> Iterator[str]:
    """Yield a line on each thing that a run needs and that is not here.

    Args:
        config: of the run that is meant.
        gpus: of this machine.
    """
    for error in missing_inputs(config):
        yield str(error)
    wanted = config.hardware.processes
    if config.hardware.device == "cuda" and not gpus:
        yield f"hardware={config.hardware.name}: a GPU; hardware=cpu runs anywhere"
    elif config.hardware.device == "cuda" and len(gpus) < wanted:
        yield f"hardware.processes={wanted}: a GPU for each; {len(gpus)} here"
    try:
        with tempfile.TemporaryFile(dir=_runs_place(config)) as file:
            file.write(bytes(PROBE))
            file.flush()
    except OSError as error:
        yield f"runs_dir={config.runs_dir}: a disk that takes what a run writes ({error.strerror})"


def _runs_place(config: Config) -> Path:
    """The nearest folder to `runs_dir` that exists."""
    place = Path(config.runs_dir).absolute()
    return next(path for path in (place, *place.parents) if path.exists())


def _free(place: Path) -> str:
    return f"{shutil.disk_usage(place).free / GIB:.1f} GiB free"


def _source(config: Config) -> str:
    """Where the weights are."""
    place = weights(config.model)
    if Path(place).is_dir():
        return f"{size(Path(place)) / 1e6:,.1f} MB in {place}"
    if config.model.path is not None:
        return f"not in {place}"
    from huggingface_hub import try_to_load_from_cache

    there = isinstance(try_to_load_from_cache(place, "config.json"), str)
    return f"{place} of the hub, {'in its cache here' if there else 'not here: to be downloaded'}"


def _data(config: Config) -> str:
    """Where the questions are."""
    task = config.task
    if task.name == "chainsum":
        return "made here"
    found = "of the hub" if task.path is None else f"in {task.path}"
    if task.test_set == "own" and task.test_path is None:
        return found
    place = "of the hub" if task.test_path is None else f"in {task.test_path}"
    return f"{found}; evaluated on {task.evaluated_on()}, {place}"


def _say(label: str, text: str) -> None:
    print(textwrap.fill(f"{label:<{LABEL}} {text}", WIDTH, subsequent_indent=" " * (LABEL + 1),
                        break_long_words=False, break_on_hyphens=False), flush=True)  # fmt: skip


def _try(config: Config) -> str | None:
    """Load what a run loads and ask a little of it; return what is wrong, in one line."""
    set_threads(config.hardware.threads)
    from pods.trial import examine

    try:
        for label, text in examine(config):
            _say(label, text)
    except Exception as error:  # whatever a library raises is what the user came to hear
        ours = isinstance(error, ValueError) or type(error).__module__.startswith("pods.")
        return " ".join(f"{'' if ours else type(error).__name__ + ': '}{error}".split())
    return None
