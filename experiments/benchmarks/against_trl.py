"""Compare our step with one of TRL's GRPOTrainer on the same model, prompts and lengths, in turns.

    python experiments/benchmarks/against_trl.py --trl PYTHON [--vllm PYTHON] \
        model=smollm2_135m task=gsm8k task.path=FOLDER [KEY=VALUE ...]

Each PYTHON has a side's packages: `--trl` TRL's, `--vllm` ours with vLLM; ours without vLLM runs in
the Python that runs this script. Each turn is a process of its own, since several do not fit into
the memory of a small machine: it loads, warms up with one step, and takes `--steps` steps. The
script prints JSON: median seconds per step by phase, and the median of the rounds' ratios, TRL's /
ours.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from step import configured, order, pool
from transformers import AutoTokenizer

from pods.config.schema import Config
from pods.runs.paths import weights_source
from pods.system.machine import cpu_model

HERE = Path(__file__).parent
BASE = "trl"
"""The side that the others are measured against."""
TRL_SETTINGS = (("lora", 64, 64), (16, 16), 1, 0.9, 0.0)
"""Settings of `trl_step.py`: adapters, n and m, prompts per step, temperature, KL weight."""
Round = dict[str, list[dict[str, Any]]]
"""The steps of each side, as it reports them."""


class Side:
    """A process that takes a step per line of its standard input."""

    def __init__(self, command: Sequence[str], threads: int) -> None:
        """Start the process, and wait until it has loaded everything."""
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(HERE.parents[1] / "src"),
        }
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.about = self._answer()

    def step(self) -> dict[str, Any]:
        """Take a step, and return its report."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        report: dict[str, Any] = json.loads(line)
        return report

    def __enter__(self) -> "Side":
        """Return the side, whose process is already running."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()


def commands(options: argparse.Namespace, config: Config, prompts: Path) -> dict[str, list[str]]:
    """Return the command that starts each side, TRL's first."""
    tokens = config.sampling.max_completion_tokens
    ours = [str(HERE / "step.py"), *options.overrides, f"sampling.max_completion_tokens={tokens}"]
    theirs = [str(HERE / "trl_step.py"), weights_source(config.model), str(prompts), str(tokens)]
    sides = {BASE: [options.trl, *theirs], "transformers": [sys.executable, *ours]}
    if options.vllm:
        sides["vllm"] = [options.vllm, *ours, "engine=vllm"]
    return sides


def compare(options: argparse.Namespace, tokens: int) -> dict[str, Any]:
    """Take turns at one completion length.

    Raises:
        SystemExit: a side ended, or the sides did different work.
    """
    config = configured([*options.overrides, f"sampling.max_completion_tokens={tokens}"])
    model, size = config.model, (config.nm.n, config.nm.m)
    settings = ((model.tuning, model.lora.r, model.lora.alpha), size, config.prompts_per_step,
                config.sampling.temperature, config.update.kl_beta)  # fmt: skip
    if settings != TRL_SETTINGS:
        raise SystemExit(f"the overrides give {settings}; TRL's side has {TRL_SETTINGS}")
    task, _ = pool(config, AutoTokenizer.from_pretrained(weights_source(config.model)))
    chats = [problem.messages for problem in order(config, task.train, options.steps + 1)]
    rounds, about = list[Round](), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.json"
        prompts.write_text(json.dumps(chats), encoding="utf-8")
        sides = commands(options, config, prompts)
        for turn in range(options.rounds):
            row: Round = {}
            for name in list(sides)[:: -1 if turn % 2 else 1]:
                with Side(sides[name], config.hardware.threads) as side:
                    about[name] = side.about
                    row[name] = [side.step() for _ in chats][1:]  # the first warms up
            _check_equal_work(row, tokens)
            rounds.append(row)
    return {"sides": about, **_summary(rounds), "rounds": rounds}


def _check_equal_work(row: Round, tokens: int) -> None:
    """Check that all sides had the same prompts, and completions of the given length."""
    prompts = {name: [step["prompt_tokens"] for step in steps] for name, steps in row.items()}
    lengths = {name: [step["completion_tokens"] for step in steps] for name, steps in row.items()}
    if any(of_side != prompts[BASE] for of_side in prompts.values()):
        raise SystemExit(f"the prompts differ in length: {prompts}")
    if any(step != [tokens] for steps in lengths.values() for step in steps):
        raise SystemExit(f"not all completions have {tokens} tokens: {lengths}")


def _median(steps: Sequence[dict[str, Any]], key: str = "seconds") -> float:
    return statistics.median(step[key] for step in steps)


def _summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return each side's medians over all steps, and the median ratios of the rounds."""
    first = rounds[0]
    return {
        "median_seconds": {
            name: {key: _median([step for row in rounds for step in row[name]], key)
                   for key, value in steps[0].items() if isinstance(value, float)}
            for name, steps in first.items()
        },
        "times_as_fast_as_trl": {
            name: statistics.median(_median(row[BASE]) / _median(row[name]) for row in rounds)
            for name in first if name != BASE
        },
    }  # fmt: skip


def main() -> None:
    """Take turns at every length, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trl", required=True, metavar="PYTHON")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="steps per side and turn")
    options, options.overrides = parser.parse_known_args()
    results = {str(tokens): compare(options, tokens) for tokens in options.tokens}
    print(json.dumps(
        {"cpu": cpu_model(), "cores": os.cpu_count(), "words": options.overrides,
         "tokens": results}, indent=1
    ))  # fmt: skip


if __name__ == "__main__":
    main()
