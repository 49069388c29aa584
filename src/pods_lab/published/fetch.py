"""Download the PODS authors' release: one commit of their repository."""

import ast
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

URL = "https://github.com/YixuanEvenXu/pods"
COMMIT = "187f43b648f69385103029c2dd0934521e17bb71"
"""The commit of 2025-09-25, which adds the runs on A100s to all that was released before."""
FILES = ("results", "LICENSE")
CODE = "utils/data.py"
RECIPE = "open-r1/recipes/Qwen2.5-3B-Instruct/config_pods.yaml"
"""Files with the system messages of the runs on one GPU and on eight."""
GIT_SECONDS = 900
GIT_SETTINGS = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "core.autocrlf=false")
GIT_VARIABLES = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}


def fetch(folder: Path, url: str = URL, commit: str = COMMIT) -> None:
    """Put `results/` and `LICENSE` of the authors' repository into a folder.

    Beside them go the system messages of their runs, for `task.system`: `prompts/instruct.txt` (one
    GPU) and `prompts/open_r1.txt` (eight GPUs). The folder is replaced once everything is there.
    A commit has 40 hexadecimal digits, and git checks the files against it.
    `ValueError`: there is no network, git, such commit, or system message; nothing is left behind.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        repository = Path(scratch) / "repository"
        new.mkdir()
        try:
            _git("init", "--quiet", "--template=", "--bare", str(repository))
            places = [f"--git-dir={repository}", f"--work-tree={new}"]
            _git(*places, "fetch", "--quiet", "--depth=1", "--no-tags", url, commit)
            _git(*places, "checkout", "--quiet", commit, "--", *FILES)
            code = _git(*places, "show", f"{commit}:{CODE}")
            recipe = _git(*places, "show", f"{commit}:{RECIPE}")
        except (OSError, subprocess.SubprocessError) as error:
            lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise ValueError(
                f"cannot fetch {url} at {commit} ({lines[0]}): clone it where there is a "
                "network, then name its folder: `pods reproduce all FOLDER`"
            ) from error
        _write_prompts(new / "prompts", code, recipe)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)


def _write_prompts(folder: Path, code: str, recipe: str) -> None:
    """Write the system messages that the authors' code and recipe hold, to the last line break."""
    folder.mkdir()
    instruct = _constant(code, "SYSTEM_PROMPT_INSTRUCT")
    _write_prompt(folder / "instruct.txt", instruct, CODE)
    open_r1 = yaml.safe_load(recipe).get("system_prompt")
    _write_prompt(folder / "open_r1.txt", open_r1, RECIPE)


def _constant(code: str, name: str) -> object:
    """Return the value that a module gives to a name, without running it; None: it gives none."""
    value = None
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value = getattr(node.value, "value", None)
    return value


def _write_prompt(path: Path, text: object, source: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{URL}: {source} has no system message")
    path.write_bytes(text.encode())


def _git(*arguments: str) -> str:
    """Return the output of git, which asks nothing, leaves a dead connection, changes no byte."""
    command = ["git"]
    for setting in GIT_SETTINGS:
        command += ["-c", setting]
    environment = {name: text for name, text in os.environ.items() if name not in GIT_VARIABLES}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    result = subprocess.run(
        command + list(arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GIT_SECONDS,
        check=True,
    )
    return result.stdout
