"""Measure everything that needs a GPU, in one command, on a bare machine with one CUDA card.

    PYTHONPATH=src python experiments/benchmarks/gpu.py --out FOLDER
    PYTHONPATH=src python experiments/benchmarks/gpu.py --device cpu --toy --out FOLDER

It needs torch, transformers, peft, Hydra, msgspec and rich, but no network and no weights: they are
random and have the shape of a known model. vLLM is used where it is installed, else its part is
skipped with a sentence. results.json is written after each measurement, and README.md describes the
parts. The exit code is 1 if a part failed. Each part has a process and a time limit of its own, so
that one that hangs in a driver costs no other. `--card FILE` writes a price card, as `pods plot
STUDY --prices FILE` takes it, of all results in the folder and below, and measures nothing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from gpu_config import Skipped

from pods.runs.attempts import environment
from pods.runs.files import replace, write_json
from pods.system.machine import end_with_parent, set_threads

SECONDS = {"probe": 60, "checks": 100, "step": 200, "vllm": 300}  # limits, in order of worth
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
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--toy", action="store_true", help="small sizes, to test the script")
    parser.add_argument("--only", nargs="+", choices=SECONDS, default=list(SECONDS), metavar="PART",
                        help=f"some of {', '.join(SECONDS)}")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a key of every config, such as engine.kv_gb=4")  # fmt: skip
    parser.add_argument("--card", type=Path, metavar="FILE", help="write prices, measure nothing")
    parser.add_argument("--part", choices=SECONDS, help=argparse.SUPPRESS)
    options = parser.parse_args(command_line)
    options.shape = "toy" if options.toy else "qwen2.5-3b"
    return options


def record(out: Path, part: str, **facts: Any) -> None:
    """Put facts of a part into results.json."""
    results = json.loads((out / RESULTS).read_text())
    results["parts"].setdefault(part, {}).update(facts)
    write_json(out / RESULTS, results)


def checks(options: argparse.Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Run the checks of tests/hardware; record the seconds of each, or its traceback."""
    import gpu_checks
    import gpu_update_checks

    chosen = gpu_checks.CHECKS + (gpu_update_checks.CHECKS if options.device == "cuda" else ())
    yield from gpu_checks.run_all({each.__name__: partial(each, options.device) for each in chosen})


def child(options: argparse.Namespace) -> int:
    """Run one part in this process: a function that yields its results so far, and all last.

    It gets a deadline of `time.monotonic()`, after which it starts nothing new, and raises
    `Skipped` where the machine lacks what it needs.
    """
    end_with_parent(signal.SIGKILL)
    if options.toy:
        set_threads(1)  # two that wait for each other on a busy machine take longer
    part, start, error = options.part, time.monotonic(), None
    record(options.out, part, status="running")
    try:
        work = checks if part == "checks" else getattr(import_module(f"gpu_{part}"), part)
        for result in work(options, start + SECONDS[part] - MARGIN):
            seconds = round(time.monotonic() - start, 1)
            record(options.out, part, seconds=seconds, result=result)
        status = "done"
    except Skipped as reason:
        status, error = "skipped", str(reason)
    except Exception:
        status, error = "failed", traceback.format_exc()[-LOG_CHARACTERS:]
    seconds = round(time.monotonic() - start, 1)
    record(options.out, part, status=status, seconds=seconds, error=error)
    return int(status == "failed")


def run(part: str, options: argparse.Namespace, command_line: list[str], scratch: str) -> None:
    """Run a part in a process of its own; say of one that died in how it ended."""
    log = options.out / "logs" / f"{part}.log"
    with log.open("w") as console:
        process = subprocess.Popen(
            [sys.executable, __file__, *command_line, "--part", part],
            stdout=console, stderr=console, start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                 "PYTHONUNBUFFERED": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                 "VLLM_USE_FLASHINFER_SAMPLER": "0", "TMPDIR": scratch},
        )  # fmt: skip
        status = "failed"
        try:
            process.wait(SECONDS[part])
        except subprocess.TimeoutExpired:
            status = "timeout"
        finally:  # even if this process is interrupted, nothing of the part may stay on the GPU
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(MARGIN)  # a process that hangs in a driver does not die
    found = json.loads((options.out / RESULTS).read_text())["parts"].get(part, {})
    if found.get("status", "running") == "running":
        error = log.read_text(errors="replace")[-LOG_CHARACTERS:]
        record(options.out, part, status=status, error=error)


def write_card(folder: Path, card: Path) -> None:
    """Write the prices of a step with vLLM, if it was measured, or with transformers.

    Two numbers of rollouts, n at m = 16 and the update by itself, give the price of one more; what
    is left of the smaller step is its base, the weights' sync in it. `SystemExit`: one line on what
    the results do not identify.
    """
    results = [json.loads(path.read_text()) for path in sorted(folder.rglob(RESULTS))]
    found = {}
    for each in results:
        for name, part in each["parts"].items():
            if part["status"] == "done":
                found[name] = part["result"]
    engine = "vllm" if "vllm" in found else "step"
    if "step" not in found or len(found[engine]["steps"]) < 2:
        raise SystemExit(f"{folder}: has not both sizes of a step")

    few, many = found[engine]["steps"].values()
    (n, m), (more, _) = (map(int, size.split(" to ")) for size in found[engine]["steps"])
    alone, together = [each["seconds"] for each in found["step"]["update"].values()]  # m, n rows
    generated = (many["generate"] - few["generate"]) / (more - n)
    trained = (together - alone) / (more - m)
    prices = {
        "per_step": few["seconds"] - n * generated - m * trained,
        "per_generated_rollout": generated,
        "per_trained_rollout": trained,
    }
    for name, price in prices.items():
        if price <= 0:
            sizes = f"steps of {n} and {more} rollouts and updates of {m} and {more}"
            raise SystemExit(f"{folder}: {sizes} do not identify {name}, which would be {price:g}")

    first = results[0]
    device = (first["machine"]["gpus"] or [first["machine"]["cpu"]])[0]
    tokens = few["completion_tokens"][0]
    about = {
        "prompts_per_step": 1,
        "fitted_to": f"gpu.py on one {device}, {first['date']}, {first['shape']}, part {engine}, "
        f"all completions of {tokens} tokens",
        "does_not_cover": f"other models and lengths, several prompts a step, more than {more} "
        f"rollouts, another engine than that of part {engine}",
    }
    replace(card, yaml.safe_dump({"unit": "s"} | prices | about, sort_keys=False))


def main(command_line: list[str] | None = None) -> int:
    """Run the parts, and write what each found as it ends."""
    command_line = sys.argv[1:] if command_line is None else command_line
    options = arguments(command_line)
    if options.card is not None:
        write_card(options.out, options.card)
        return 0
    if options.part is not None:
        return child(options)
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    facts = {"command": command_line, "shape": options.shape, "device": options.device,
             "date": time.strftime("%Y-%m-%d"), "machine": environment(), "parts": {}}  # fmt: skip
    write_json(options.out / RESULTS, facts)
    with TemporaryDirectory(prefix="pods-gpu-", ignore_cleanup_errors=True) as scratch:
        for part in options.only:
            run(part, options, command_line, scratch)
            found = json.loads((options.out / RESULTS).read_text())["parts"]
            print(f"{part}: {found[part]['status']} {found[part].get('seconds', '')}", flush=True)
    return int(any(part["status"] in ("failed", "timeout") for part in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
