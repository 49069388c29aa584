"""What has to be measured on a GPU, in one command of at most 8 minutes on one CUDA card.

    PYTHONPATH=src python experiments/benchmarks/gpu.py --model FOLDER --data FOLDER --out FOLDER
    PYTHONPATH=src python experiments/benchmarks/gpu.py --device cpu --toy --out FOLDER

It needs torch, transformers and peft, and takes vLLM and matplotlib where they are; --model is
SmolLM2-135M-Instruct, --data has GSM8K's train.jsonl and test.jsonl. With --toy all is small, and
without --model the embedded model and task are used. Each part is a process of its own that is
killed when its time is up, so that none can harm or hold up another, and memory is measured from
zero. results.json is written after each part: what it measured, also where it failed, and why.
Exit code 1 if a part failed. `gpu_parts.py` says what the parts are.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pods.machine import end_with_parent
from pods.runs.environment import environment

SECONDS = {  # at most, of each part; in this order
    "checks": 40, "step": 40, "update": 35, "memory": 25, "growth": 40, "step_vllm": 45,
    "rollouts": 50, "grpo": 90, "pods": 90, "figure": 15,
}  # fmt: skip
VLLM = ("step_vllm", "rollouts")  # parts that need it; if they fail, the arms do without
PATIENCE = {"cuda": 1, "cpu": 5}  # times that: a CPU is slower, and nobody waits for it
MARGIN = 5  # of them, between the end of measuring and being killed
TOTAL = 470  # seconds of all parts: under 8 minutes
SHOWN = 4000  # characters of what a failed part printed last


def arguments(words: list[str] | None) -> argparse.Namespace:
    """What was typed; ends the process with a line where it makes no sense."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder with the weights and tokenizer")
    parser.add_argument("--data", help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--toy", action="store_true", help="small: shows that the script works")
    parser.add_argument("--only", nargs="+", choices=SECONDS, default=list(SECONDS), metavar="PART",
                        help=f"some of {', '.join(SECONDS)}")  # fmt: skip
    parser.add_argument("--part", choices=SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="transformers", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if (asked.model is None) != (asked.data is None):
        parser.error("--model and --data go together")
    if asked.model is None and not asked.toy:
        parser.error("--model and --data are needed without --toy")
    return asked


def child(asked: argparse.Namespace) -> None:
    """Be one part: measure, and write down what there is whenever there is more."""
    end_with_parent(signal.SIGKILL)
    from gpu_parts import PARTS

    deadline = time.monotonic() + asked.seconds
    for found in PARTS[asked.part](asked, deadline):
        write(asked.out / "parts" / f"{asked.part}.json", found)


def write(path: Path, found: Any) -> None:
    """Write JSON whole, or not at all."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(found, indent=1) + "\n")
    beside.replace(path)


def run(part: str, engine: str, words: list[str], out: Path, seconds: float) -> dict[str, Any]:
    """Run a part in a process of its own, for at most so many seconds.

    Returns:
        status (done, failed, timeout), seconds, error, and what it measured, if anything.
    """
    log, result = out / "parts" / f"{part}.log", out / "parts" / f"{part}.json"
    result.unlink(missing_ok=True)
    own = ["--part", part, "--engine", engine, "--seconds", str(max(0, seconds - MARGIN))]
    start = time.monotonic()
    with log.open("w") as console:
        process = subprocess.Popen(
            [sys.executable, __file__, *words, *own], stdout=console, stderr=console,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                 "PYTHONUNBUFFERED": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        )  # fmt: skip
        try:
            status = "failed" if process.wait(seconds) else "done"
        except subprocess.TimeoutExpired:
            status = "timeout"
        finally:  # also where this process is interrupted: nothing of the part may stay on the card
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(MARGIN)  # one that hangs in a driver does not even die
    return {
        "status": status,
        "seconds": round(time.monotonic() - start, 1),
        "error": None if status == "done" else log.read_text(errors="replace")[-SHOWN:],
        "result": json.loads(result.read_text()) if result.exists() else None,
    }


def main(words: list[str] | None = None) -> int:
    """Run the parts, write results.json after each, whatever came of it."""
    words = sys.argv[1:] if words is None else words
    asked = arguments(words)
    if asked.part is not None:
        child(asked)
        return 0
    (asked.out / "parts").mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {}
    facts = {"command": words, "machine": environment(), "parts": parts}
    vllm = asked.device == "cuda" and find_spec("vllm") is not None
    patience, start = PATIENCE[asked.device], time.monotonic()
    for part in asked.only:
        left = TOTAL * patience - (time.monotonic() - start)
        whole = all(found["status"] == "done" for name, found in parts.items() if name in VLLM)
        engine = "vllm" if vllm and whole else "transformers"
        if part in VLLM and not vllm:
            parts[part] = {"status": "skipped", "error": "vLLM is not installed, or not for a GPU"}
        elif left < 2 * MARGIN:
            parts[part] = {"status": "failed", "error": "there was no time left"}
        else:
            parts[part] = run(part, engine, words, asked.out, min(SECONDS[part] * patience, left))
        print(f"{part}: {parts[part]['status']} {parts[part].get('seconds', '')}", flush=True)
        write(asked.out / "results.json", facts)
    return int(any(found["status"] in ("failed", "timeout") for found in parts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
