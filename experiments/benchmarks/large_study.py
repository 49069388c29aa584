"""Time the verbs that read a study, on a study of thousands of runs.

    python experiments/benchmarks/large_study.py FOLDER [--runs 2000] [--rounds 3]

It writes FOLDER/large unless that exists: finished runs as `src/run.py` leaves them, in ten sizes
(n, m), with short logs and checkpoints that hold only a clock. Then it times each verb in a process
of its own, start-up included. It prints JSON: the seconds of each, and their medians.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.runs import checkpoint
from pods.runs.attempts import environment, new_attempt
from pods.runs.files import append
from pods.runs.freeze import freeze
from pods.runs.identity import fingerprint
from pods.runs.store import RunStore
from pods.seeding import evaluation_seeds

ROOT = Path(__file__).parents[2]
SIZES = ("n16_m4", "n16_m16", "n32_m8", "n32_m16", "n64_m2", "n64_m4", "n64_m8", "n64_m16",
         "n64_m64", "n128_m16")  # fmt: skip
STEPS, EVERY, REPEATS, QUESTIONS = 20, 10, 2, 16
OVERRIDES = ("study=large", "tracking=none", "budget.train_seconds=null",
             f"budget.max_steps={STEPS}", f"checkpoint.every_steps={EVERY}",
             f"evaluation.repeats={REPEATS}",
             f"task.test_size={QUESTIONS}")  # fmt: skip
PHASES = {"generate": 0.6, "reward": 0.02, "select": 0.01, "update": 0.3, "sync": 0.07}
VERBS = {"status": ("status",), "status --json": ("status", "--json"), "clean": ("clean",),
         "aggregate": ("aggregate",), "plot": ("plot",),
         "compare": ("compare", "max_variance 64→16", "max_variance 16→16")}  # fmt: skip


def write_study(runs_dir: Path, runs: int) -> None:
    """Write `runs` finished runs, the same number of each size."""
    for size_index, size in enumerate(SIZES):
        config = validate(compose([*OVERRIDES, f"runs_dir={runs_dir}", f"nm={size}"]))
        first = freeze(config)
        frozen, identity = first.config_path.read_text(), first.identity()
        machine = environment()
        for seed in range(runs // len(SIZES)):
            about = {**identity, "seed": seed}
            store = RunStore(first.folder.with_name(f"seed{seed}-{fingerprint(about)}"))
            store.folder.mkdir(exist_ok=True)
            store.config_path.write_text(frozen.replace("seed: 0\n", f"seed: {seed}\n", 1))
            store.write_identity(about)
            _finish(store, dataclasses.replace(config, seed=seed), machine, size_index)


def _finish(store: RunStore, config: Config, machine: Mapping[str, Any], size_index: int) -> None:
    """Write the other files that a finished run leaves."""
    clock = 0.0
    (store.folder / ".lock").touch()
    lines = list(_lines(config, size_index))
    append(store.metrics_path, [])
    for step in range(STEPS + 1):
        if step:
            append(store.metrics_path, [lines[step - 1]])
            clock = lines[step - 1]["train_seconds"]
        if step % EVERY == 0:
            write = partial(store.write_clock, step=step, train_seconds=clock, evaluation=True)
            checkpoint.commit(store.checkpoint(step), write)
            append(store.evaluation_path(step), _records(config, step, size_index))
    used = {"problems": 256, "sha256": "0" * 64, "left_out": []}
    store.write_data({"train": used, "test": {**used, "problems": QUESTIONS}})
    attempt = new_attempt(store)
    (attempt / "environment.json").write_text(json.dumps(machine))
    phases = {name: {"seconds": share * clock, "peak_bytes": 10**8}
              for name, share in PHASES.items()}  # fmt: skip
    (attempt / "phases.json").write_text(json.dumps({"start": {"seconds": 5.0}, **phases}))
    store.set_status(state="done", pid=1, host="elsewhere", step=STEPS, train_seconds=clock,
                     accuracy=0.5, error=None)  # fmt: skip


def _lines(config: Config, size_index: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of metrics.jsonl; no two runs have the same clock."""
    clock = 0.0
    for step in range(1, STEPS + 1):
        seconds = 0.1 * (1 + size_index) * (1 + 0.1 * math.sin(config.seed + step))
        clock += seconds
        reward = 0.5 + 0.02 * step + 0.01 * math.cos(3 * config.seed + step)
        yield {
            "step": step, "nonfinite": None, "train_seconds": clock,
            **{f"seconds/{phase}": share * seconds for phase, share in PHASES.items()},
            "prompts": [f"p{step}"], "epoch": 0, "generated_rollouts": config.nm.n,
            "trained_rollouts": config.nm.m, "rollouts_saved": 0, "zero_variance_fraction": 0.0,
            "reward": reward, "reward_std": 0.4, "correct": 0.5, "format": 0.9, "length": 20.5,
            "kept_reward_variance": 0.2 + 0.01 * math.sin(config.seed * step),
            "generated_tokens": 20 * config.nm.n, "trained_tokens": 20 * config.nm.m,
            "logprob_gap_mean": 1e-6, "grad_norm": 0.1, "kept": [list(range(config.nm.m))],
        }  # fmt: skip


def _records(config: Config, step: int, size_index: int) -> Iterator[dict[str, Any]]:
    """Yield the records of one evaluation; later ones have more right answers."""
    for repeat in range(REPEATS):
        seeds = evaluation_seeds(config.seed, step, repeat, QUESTIONS)
        for question, seed in enumerate(seeds):
            right = seed % 97 < 30 + 2 * step + size_index
            yield {
                "repeat": repeat, "question": f"q{question}", "correct": right,
                "format": seed % 7 > 0, "lenient": None, "verdict": "right" if right else "wrong",
                "length": 10 + seed % 13, "finished": True, "seed": seed,
            }  # fmt: skip


def seconds(verb: tuple[str, ...], folder: Path) -> float:
    """Return the wall time of one verb in a fresh process, whose output is discarded."""
    name = ["--study", "large"] if verb[0] == "compare" else ["large"]
    command = [sys.executable, "-m", "pods.cli.main", *verb, *name, "--runs-dir", str(folder)]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "src")})  # fmt: skip
    return time.perf_counter() - start


def main() -> None:
    """Write the study unless it exists, and time the verbs in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=2000, help="a multiple of ten")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not (options.folder / "large").is_dir():
        os.fsync = lambda descriptor: None  # these files need not outlast a power cut
        write_study(options.folder, options.runs)
    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, verb in VERBS.items():
            times.setdefault(name, []).append(seconds(verb, options.folder))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(json.dumps({"medians": medians, "seconds": times, "environment": environment()},
                     indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
