"""Time the commands, and a run up to its first step, each in a fresh process.

    python experiments/benchmarks/startup.py

The verbs read a study of four runs of one step of the default job, which is written first, so their
times include work and not only start-up. A run's first step comes after its start-up (imports and
weights, also shown), the preflight of its largest shapes and the evaluation of step 0. The commands
take turns. The script prints JSON: median seconds of wall time; `floor` holds the times of Python
and of the libraries that the commands need.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pods.runs.attempts import environment

ROUNDS = 5
ROOT = Path(__file__).parents[2]
FLOOR = {
    "python": ["-c", "pass"],
    "import hydra": ["-c", "import hydra"],
    "import pandas": ["-c", "import pandas"],
    "import matplotlib": ["-c", "import matplotlib.figure"],
    "import wandb": ["-c", "import wandb"],
    "import torch": ["-c", "import torch"],
    "import transformers' models": ["-c", "from transformers import AutoModelForCausalLM"],
}
HELP = {"run.py --help": [str(ROOT / "src" / "run.py"), "--help"],
        "pods --help": ["-m", "pods.cli.main", "--help"]}  # fmt: skip
VERBS = ("status", "clean", "evaluate", "aggregate", "compare pods grpo", "plan", "plot", "report",
         "sync --offline")  # fmt: skip
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def seconds(arguments: Sequence[str]) -> float:
    """Return the wall time of a process from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - start


def first_step(runs_dir: Path, arm: str, seed: int) -> dict[str, float]:
    """Run one step of an arm of the default job.

    Returns:
        Seconds until the step's line was written (`metrics.jsonl` has one line, so the file's time
        is that of the step), and the seconds of start-up among them.
    """
    overrides = [f"runs_dir={runs_dir}", f"arm={arm}", f"seed={seed}", "tracking=none",
             "budget.train_seconds=null", "budget.max_steps=1"]  # fmt: skip
    start = time.time()
    seconds([str(ROOT / "src" / "run.py"), *overrides])
    line = max(runs_dir.rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    phases = json.loads((line.parent / "attempts" / "001" / "phases.json").read_text())
    return {"first step": line.stat().st_mtime - start, "start-up": phases["start"]["seconds"]}


def main() -> None:
    """Time every command in each round, and print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            first_step(Path(folder), arm, seed) for seed in range(2) for arm in ("pods", "grpo")
        ]
        verbs = {f"pods {verb}": ["-m", "pods.cli.main", *verb.split(), "--runs-dir", folder]
                 for verb in VERBS}  # fmt: skip
        commands = {**FLOOR, **HELP, **verbs}
        rounds = [{name: seconds(a) for name, a in commands.items()} for _ in range(ROUNDS)]
    median = {name: statistics.median(row[name] for row in rounds) for name in commands}
    print(json.dumps({
        "floor": {name: median.pop(name) for name in FLOOR},
        "commands": median,
        "default job": {name: statistics.median(run[name] for run in runs) for name in runs[0]},
        "environment": environment(),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
