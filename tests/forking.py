"""`src/run.py` in a fork of a server that has imported what it needs. Itself it imports nothing."""

import gc
import os
import runpy
import sys
from pathlib import Path

from compose import ROOT

ON_VLLM = (  # what a run on it imports, and what vLLM itself does when it starts
    "pods.assemble", "pods.rehearsal", "pods.rollouts.vllm_engine", "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama",
)  # fmt: skip


def run(place: Path, words: tuple[str, ...], environment: dict[str, str]) -> None:
    """Be `python run.py WORDS` in a folder; what it says is there too, in out and err."""
    assert sys.modules.keys() >= {*ON_VLLM}, "the server could not import them"
    gc.freeze()  # vLLM collects garbage again and again, and none is among what was imported
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = [str(ROOT / "src" / "run.py"), *words]
    runpy.run_path(sys.argv[0], run_name="__main__")
