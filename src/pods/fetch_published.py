"""`pods fetch published`: the PODS authors' released logs, at one commit."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

URL = "https://github.com/YixuanEvenXu/pods"
COMMIT = "187f43b648f69385103029c2dd0934521e17bb71"
"""Of 2025-09-25: the first with the runs on A100s, and all that was released before."""
SECONDS = 900
WANTED = ("results", "LICENSE")


def published(folder: Path, url: str = URL, commit: str = COMMIT) -> None:
    """Fetch one commit, and put its `results/` and `LICENSE` into a folder.

    Args:
        folder: that is replaced, once all is there.
        url: of the git repository.
        commit: 40 hexadecimal digits; git checks what it gets against it.

    Raises:
        ValueError: no network, no git, or no such commit; nothing is left behind.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        clone, taken = Path(scratch) / "clone", Path(scratch) / "taken"
        taken.mkdir()
        try:
            _fetch(clone, url, commit)
        except (OSError, subprocess.SubprocessError) as error:
            raise ValueError(
                f"cannot fetch {url} at {commit} ({_why(error)}): clone it where there is a "
                "network, then `pods import-published FOLDER`"
            ) from error
        for name in WANTED:
            if (clone / name).exists():
                (clone / name).rename(taken / name)
        shutil.rmtree(folder, ignore_errors=True)
        taken.rename(folder)


def _fetch(clone: Path, url: str, commit: str) -> None:
    _git(None, "init", "--quiet", "--template=", str(clone))
    _git(clone, "fetch", "--quiet", "--depth=1", "--no-tags", url, commit)
    found = _git(clone, "rev-parse", "FETCH_HEAD")
    if found != commit:
        raise OSError(f"got commit {found}")
    names = _git(clone, "ls-tree", "--name-only", commit, *WANTED).splitlines()
    if "results" not in names:
        raise OSError("that commit has no results/")
    _git(clone, "checkout", "--quiet", commit, "--", *names)


def _git(clone: Path | None, *words: str) -> str:
    """Run git, which may ask nothing, give up on a dead line, and change no byte."""
    settings = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "core.autocrlf=false")
    options = [word for setting in settings for word in ("-c", setting)]
    place = [] if clone is None else ["-C", str(clone)]
    foreign = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
    environment = {k: v for k, v in os.environ.items() if k not in foreign}
    result = subprocess.run(
        ["git", *options, *place, *words],
        env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return result.stdout.strip()


def _why(error: OSError | subprocess.SubprocessError) -> str:
    """One line."""
    if isinstance(error, FileNotFoundError):
        return "git is not installed"
    if isinstance(error, subprocess.CalledProcessError):
        lines = [line for line in str(error.stderr).splitlines() if line.strip()]
        return next((line for line in lines if line.startswith("fatal:")), "git failed")
    return str(error)
