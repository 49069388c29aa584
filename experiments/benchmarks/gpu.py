"""Measure everything that needs a GPU, in one command, on a bare machine with one CUDA card.

    PYTHONPATH=src python experiments/benchmarks/gpu.py --out FOLDER
    PYTHONPATH=src python experiments/benchmarks/gpu.py --device cpu --toy --out FOLDER

It needs torch, transformers and peft, but no network and no weights: they are random and have the
shape of a known model. vLLM is used where it is installed, else its part is skipped
with a sentence. results.json is written after each measurement, and README.md describes the parts.
The exit code is 1 if a part failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from gpu_config import SHAPES, Skipped

from pods.runs.attempts import environment
from pods.runs.files import write_json
from pods.system.machine import end_with_parent, set_threads

SECONDS = {"probe": 60, "checks": 90, "step": 180, "vllm": 300}
"""The time limit of each part, in order of worth."""
PROCESSES = (("probe", "checks", "step"), ("vllm",))
"""The parts that share a process, until one of them fails."""
TOTAL = 700  # seconds of all parts
MARGIN = 5  # seconds between the end of measuring and being killed
LOG_CHARACTERS = 4000  # last characters of a failed part's output
RESULTS = "results.json"
sys.path.append(str(Path(__file__).parents[2] / "tests" / "hardware"))


def arguments(command_line: list[str]) -> argparse.Namespace:
    """Parse the command line; end the process with a message if it is inconsistent."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--shape", choices=SHAPES, help="of the random weights (qwen2.5-3b)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--toy", action="store_true", help="small sizes, to test the script")
    parser.add_argument("--only", nargs="+", choices=SECONDS, default=list(SECONDS), metavar="PART",
                        help=f"some of {', '.join(SECONDS)}")  # fmt: skip
    parser.add_argument("--limit", action="append", type=_limit, default=[], metavar="PART=SECONDS")
    parser.add_argument("--total", type=float, default=TOTAL, metavar="SECONDS")
    parser.add_argument("--set", action="append", type=_change, default=[], metavar="KEY=VALUE",
                        help="change a key of every config, such as engine.kv_gb=4")  # fmt: skip
    parser.add_argument("--parts", nargs="+", choices=SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(command_line)
    options.shape = options.shape or ("toy" if options.toy else "qwen2.5-3b")
    options.limit, options.set = {**SECONDS, **dict(options.limit)}, dict(options.set)
    return options


def _limit(text: str) -> tuple[str, float]:
    part, _, seconds = text.partition("=")
    if part not in SECONDS:
        raise argparse.ArgumentTypeError(f"{part}: must be one of {', '.join(SECONDS)}")
    return part, float(seconds)


def _change(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, yaml.safe_load(value)


def record(out: Path, part: str, **facts: Any) -> None:
    """Put facts of a part into results.json."""
    results = json.loads((out / RESULTS).read_text())
    results["parts"].setdefault(part, {}).update(facts)
    write_json(out / RESULTS, results)


def parts() -> dict[str, Callable[[argparse.Namespace, float], Iterator[dict[str, Any]]]]:
    """Return the parts: each yields its results so far, and the complete ones last.

    A part gets the command line and a deadline of `time.monotonic()`, after which it starts
    nothing new. It raises `Skipped` where the machine lacks what it needs.
    """
    from gpu_probe import probe
    from gpu_step import step
    from gpu_vllm import vllm

    return {"probe": probe, "checks": checks, "step": step, "vllm": vllm}


def checks(options: argparse.Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Run the checks of tests/hardware; record the seconds of each, or its traceback."""
    import gpu_checks
    import gpu_update_checks

    chosen = gpu_checks.CHECKS + (gpu_update_checks.CHECKS if options.device == "cuda" else ())
    yield from gpu_checks.run_all({each.__name__: partial(each, options.device) for each in chosen})


def child(options: argparse.Namespace) -> int:
    """Run parts one after another in this process, until one fails.

    The kernel ends the process at a part's time limit, even if it hangs in a driver's call.
    """
    end_with_parent(signal.SIGKILL)
    if options.toy:
        set_threads(1)  # two that wait for each other on a busy machine take longer
    start = time.time()
    for part in options.parts:
        left = options.end - time.time()
        if left < 2 * MARGIN:
            record(options.out, part, status="failed", error="no time was left")
            continue
        seconds = min(options.limit[part], left)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        deadline, error = time.monotonic() + seconds - MARGIN, None
        record(options.out, part, status="running")
        try:
            for result in parts()[part](options, deadline):
                record(options.out, part, seconds=round(time.time() - start, 1), result=result)
            status = "done"
        except Skipped as reason:
            status, error = "skipped", str(reason)
        except Exception:
            status, error = "failed", traceback.format_exc()[-LOG_CHARACTERS:]
        signal.setitimer(signal.ITIMER_REAL, 0)
        now = time.time()
        record(options.out, part, status=status, seconds=round(now - start, 1), error=error)
        start = now
        if status == "failed":
            return 1  # an error of the card would fail all that follows
    return 0


def run(parts: list[str], options: argparse.Namespace, command_line: list[str], end: float) -> None:
    """Run parts in a process of their own; say of the one that it died in how it ended."""
    log = options.out / "logs" / f"{parts[0]}.log"
    own = ["--parts", *parts, "--scratch", str(options.scratch), "--end", str(end)]
    with log.open("w") as console:
        process = subprocess.Popen(
            [sys.executable, __file__, *command_line, *own], stdout=console, stderr=console,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                 "PYTHONUNBUFFERED": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        )  # fmt: skip
        try:
            code = process.wait(sum(options.limit[part] for part in parts) + MARGIN)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        finally:  # even if this process is interrupted, nothing of the parts may stay on the GPU
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(MARGIN)  # a process that hangs in a driver does not die
    entries = json.loads((options.out / RESULTS).read_text())["parts"]
    begun = [part for part in parts if part in entries]
    died = [part for part in begun if entries[part]["status"] == "running"]
    for part in died if begun else parts[:1]:
        status = "timeout" if code == -signal.SIGALRM else "failed"
        error = log.read_text(errors="replace")[-LOG_CHARACTERS:]
        record(options.out, part, status=status, error=error)


def main(command_line: list[str] | None = None) -> int:
    """Run the parts, and write what each found as it ends."""
    command_line = sys.argv[1:] if command_line is None else command_line
    options = arguments(command_line)
    if options.parts is not None:
        return child(options)
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    facts = {"command": command_line, "shape": options.shape, "device": options.device,
             "machine": environment(), "parts": {}}  # fmt: skip
    write_json(options.out / RESULTS, facts)
    end = time.time() + options.total
    with TemporaryDirectory(prefix="pods-gpu-", ignore_cleanup_errors=True) as scratch:
        options.scratch = Path(scratch)
        for process in PROCESSES:
            while parts := [p for p in process if p in options.only and p not in facts["parts"]]:
                run(parts, options, command_line, end)
                facts = json.loads((options.out / RESULTS).read_text())
                for part in (p for p in parts if p in facts["parts"]):
                    entry = facts["parts"][part]
                    print(f"{part}: {entry['status']} {entry.get('seconds', '')}", flush=True)
    return int(any(part["status"] in ("failed", "timeout") for part in facts["parts"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
