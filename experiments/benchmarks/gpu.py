"""Run all benchmarks of a GPU in one command of at most 8 minutes on one CUDA card.

    PYTHONPATH=src python experiments/benchmarks/gpu.py --model FOLDER --data FOLDER --out FOLDER
    PYTHONPATH=src python experiments/benchmarks/gpu.py --device cpu --toy --out FOLDER

It needs torch, transformers and peft, and uses vLLM and matplotlib if they are installed. --model
is SmolLM2-135M-Instruct; --data has GSM8K's train.jsonl and test.jsonl. With --toy everything is
small, and without --model the embedded model and task are used. Each part is a process of its own
that is killed at its time limit, so that none can harm or delay another, and memory is measured
from zero. results.json is written after each part with its measurements and, if it failed, the
reason. The exit code is 1 if a part failed. `gpu_parts.py` describes the parts.
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

from pods.runs.attempts import environment
from pods.system.machine import end_with_parent

SECONDS = {  # time limit of each part, in this order
    "checks": 40, "step": 40, "update": 35, "memory": 25, "growth": 40, "step_vllm": 45,
    "rollouts": 50, "grpo": 90, "pods": 90, "figure": 15,
}  # fmt: skip
VLLM = ("step_vllm", "rollouts")  # parts that need vLLM; if one fails, the arms use transformers
PATIENCE = {"cuda": 1, "cpu": 5}  # factor of the time limits: a CPU is slower
MARGIN = 5  # seconds between the end of measuring and being killed
TOTAL = 470  # seconds of all parts: under 8 minutes
LOG_CHARACTERS = 4000  # last characters of a failed part's output


def arguments(command_line: list[str] | None) -> argparse.Namespace:
    """Parse the command line; end the process with a message if it is inconsistent."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder with the weights and tokenizer")
    parser.add_argument("--data", help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--toy", action="store_true", help="small sizes, to test the script")
    parser.add_argument("--only", nargs="+", choices=SECONDS, default=list(SECONDS), metavar="PART",
                        help=f"some of {', '.join(SECONDS)}")  # fmt: skip
    parser.add_argument("--part", choices=SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="transformers", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(command_line)
    if (options.model is None) != (options.data is None):
        parser.error("--model and --data must be given together")
    if options.model is None and not options.toy:
        parser.error("--model and --data are needed without --toy")
    return options


def child(options: argparse.Namespace) -> None:
    """Run one part in this process, and write its results whenever there are more."""
    end_with_parent(signal.SIGKILL)
    from gpu_parts import PARTS

    deadline = time.monotonic() + options.seconds
    for results in PARTS[options.part](options, deadline):
        write(options.out / "parts" / f"{options.part}.json", results)


def write(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    temporary.replace(path)


def run(
    part: str, engine: str, command_line: list[str], out: Path, seconds: float
) -> dict[str, Any]:
    """Run a part in a process of its own, for at most so many seconds.

    Returns:
        `status` (done, failed, timeout), `seconds`, `error`, and `result`, which may be None.
    """
    log, result = out / "parts" / f"{part}.log", out / "parts" / f"{part}.json"
    result.unlink(missing_ok=True)
    own = ["--part", part, "--engine", engine, "--seconds", str(max(0, seconds - MARGIN))]
    start = time.monotonic()
    with log.open("w") as console:
        process = subprocess.Popen(
            [sys.executable, __file__, *command_line, *own], stdout=console, stderr=console,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                 "PYTHONUNBUFFERED": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        )  # fmt: skip
        try:
            status = "failed" if process.wait(seconds) else "done"
        except subprocess.TimeoutExpired:
            status = "timeout"
        finally:  # even if this process is interrupted, nothing of the part may stay on the GPU
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(MARGIN)  # a process that hangs in a driver does not die
    return {
        "status": status,
        "seconds": round(time.monotonic() - start, 1),
        "error": None if status == "done" else log.read_text(errors="replace")[-LOG_CHARACTERS:],
        "result": json.loads(result.read_text()) if result.exists() else None,
    }


def main(command_line: list[str] | None = None) -> int:
    """Run the parts, and write results.json after each, even if it failed."""
    command_line = sys.argv[1:] if command_line is None else command_line
    options = arguments(command_line)
    if options.part is not None:
        child(options)
        return 0
    (options.out / "parts").mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {}
    facts = {"command": command_line, "machine": environment(), "parts": parts}
    vllm = options.device == "cuda" and find_spec("vllm") is not None
    patience, start = PATIENCE[options.device], time.monotonic()
    for part in options.only:
        left = TOTAL * patience - (time.monotonic() - start)
        vllm_works = all(done["status"] == "done" for name, done in parts.items() if name in VLLM)
        engine = "vllm" if vllm and vllm_works else "transformers"
        if part in VLLM and not vllm:
            parts[part] = {"status": "skipped", "error": "vLLM is not installed, or not for a GPU"}
        elif left < 2 * MARGIN:
            parts[part] = {"status": "failed", "error": "no time was left"}
        else:
            parts[part] = run(
                part, engine, command_line, options.out, min(SECONDS[part] * patience, left)
            )
        print(f"{part}: {parts[part]['status']} {parts[part].get('seconds', '')}", flush=True)
        write(options.out / "results.json", facts)
    return int(any(part["status"] in ("failed", "timeout") for part in parts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
