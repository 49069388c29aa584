"""Convert a GGUF, once, into a folder of weights.

`python -m pods.policy.gguf FOLDER` makes FOLDER/new of FOLDER/model.gguf: a process of its own,
since what it takes of memory would stay with the parent of a sweep.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pods.config.inputs import gguf_parts
from pods.config.schema import ModelConfig
from pods.runs.lock import hold_lock
from pods.runs.paths import weights_source
from pods.system.machine import cause_of_death, end_with_parent, python_path


def ready_weights(model: ModelConfig) -> str:
    """Return `weights_source`, once a GGUF is converted into it; errors are those of `convert`."""
    source = weights_source(model)
    if (parts := gguf_parts(model.path)) and not Path(source).is_dir():
        convert(f"model.path={model.path}", parts, Path(source))
    return source


def convert(label: str, parts: Sequence[Path], folder: Path) -> None:
    """Write weights (float32) and tokenizer of a GGUF into a folder, which appears complete.

    Others that want the same wait for the first. `ValueError`: the label, and why transformers
    cannot read the file that the parts are when joined.
    """
    size = sum(part.stat().st_size for part in parts) / 1e6
    about = f"{size:,.0f} MB, about {10 + size / 5:.0f} s"  # measured on one core
    print(f"{label}: converting it once ({about})", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name("converting.tmp")
    with hold_lock(folder.with_name("converting.lock"), wait_seconds=math.inf):
        if folder.is_dir():  # another process has been faster
            return
        shutil.rmtree(scratch, ignore_errors=True)  # whatever a killed one has left
        scratch.mkdir()
        try:
            with (scratch / "model.gguf").open("wb") as joined:
                for part in parts:
                    with part.open("rb") as chunk:
                        shutil.copyfileobj(chunk, joined)
            words = [sys.executable, "-P", "-m", "pods.policy.gguf", str(scratch)]
            path = {**os.environ, "PYTHONPATH": python_path()}
            ended = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, env=path)
            if ended.returncode != 0:
                why = [cause_of_death(ended.returncode), *ended.stderr.splitlines()][-1]
                raise ValueError(f"{label}: must be a whole GGUF that transformers can read: {why}")
            (scratch / "new").rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _write(file: Path, folder: Path) -> None:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        end = max(tensor.data_offset + tensor.n_bytes for tensor in reader.tensors)
        if file.stat().st_size >= end + reader.alignment:
            raise ValueError("bytes follow the last tensor")
    except (ValueError, IndexError) as error:
        raise ValueError(f"it is cut off, or chunks are missing or too many ({error})") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    options = {"gguf_file": file.name, "trust_remote_code": False}
    decoded = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True)}
    AutoTokenizer.from_pretrained(file.parent, **options).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(file.parent, **options, **decoded)
    model.save_pretrained(folder)


if __name__ == "__main__":
    end_with_parent(signal.SIGKILL)
    try:
        _write(Path(sys.argv[1]) / "model.gguf", Path(sys.argv[1]) / "new")
    except Exception as problem:  # whatever a library raises
        sys.exit(" ".join(str(problem).split())[:300] or repr(problem))
