"""Run `src/run.py` in a fork of a server that has imported its libraries; import none here."""

import gc
import os
import runpy
import sys
from pathlib import Path

from compose import ROOT

ON_VLLM = (  # the imports of a run on vLLM, and those of vLLM when it starts
    "pods.training.build", "pods.training.preflight", "pods.engines.vllm_engine",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama")  # fmt: skip


def run(folder: Path, words: tuple[str, ...], environment: dict[str, str]) -> None:
    """Become `python run.py WORDS` in a folder, with its output in the files out and err."""
    assert sys.modules.keys() >= {*ON_VLLM}, "the server could not import all modules"
    gc.freeze()  # vLLM often collects garbage; imported modules contain none
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = [str(ROOT / "src" / "run.py"), *words]
    runpy.run_path(sys.argv[0], run_name="__main__")
