"""A step of ours beside one of TRL's GRPOTrainer: the same model, prompts and lengths, in turns.

    python experiments/benchmarks/against_trl.py --trl PYTHON [--vllm PYTHON] \
        model=smollm2_135m task=gsm8k task.path=FOLDER [KEY=VALUE ...]

Each PYTHON has a side's packages: `--trl` TRL's, `--vllm` ours with vLLM; ours without it runs in
the Python that runs this. A turn is a process of its own, since several do not fit into the memory
of a small machine: it loads, warms up by a step, and takes `--steps`. Prints JSON: medians of
seconds a step, phase by phase, and the median of the rounds' ratios, TRL's / ours.
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

from pods.config import Config
from pods.runs.environment import cpu_model
from pods.runs.home import weights

HERE = Path(__file__).parent
BASE = "trl"
"""The side that the others are measured against."""
GIVEN = (("lora", 64, 64), (16, 16), 1, 0.9, 0.0)
"""What `trl_step.py` has in it: adapters, n and m, prompts a step, temperature, KL weight."""
Round = dict[str, list[dict[str, Any]]]
"""The steps of each side, as it says of them."""


class Side:
    """One process that takes a step whenever it is asked to."""

    def __init__(self, command: Sequence[str], threads: int) -> None:
        """Start it, and wait until all is loaded."""
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(HERE.parents[1] / "src"),
        }
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.about = self._answer()

    def step(self) -> dict[str, Any]:
        """Take one, and return what it says of it."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> "Side":
        """Is running already."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def commands(asked: argparse.Namespace, config: Config, prompts: Path) -> dict[str, list[str]]:
    """What starts each side, TRL's first."""
    tokens = config.sampling.max_completion_tokens
    ours = [str(HERE / "step.py"), *asked.words, f"sampling.max_completion_tokens={tokens}"]
    theirs = [str(HERE / "trl_step.py"), weights(config.model), str(prompts), str(tokens)]
    found = {BASE: [asked.trl, *theirs], "transformers": [sys.executable, *ours]}
    if asked.vllm:
        found["vllm"] = [asked.vllm, *ours, "engine=vllm"]
    return found


def compare(asked: argparse.Namespace, tokens: int) -> dict[str, Any]:
    """Take turns at one length.

    Raises:
        SystemExit: a side ended, or did not train on what the others did.
    """
    config = configured([*asked.words, f"sampling.max_completion_tokens={tokens}"])
    model, size = config.model, (config.nm.n, config.nm.m)
    found = ((model.tuning, model.lora.r, model.lora.alpha), size, config.prompts_per_step,
             config.sampling.temperature, config.update.kl_beta)  # fmt: skip
    if found != GIVEN:
        raise SystemExit(f"TRL's side has {GIVEN}, these words make {found}")
    task, _ = pool(config, AutoTokenizer.from_pretrained(weights(config.model)))
    chats = [problem.messages for problem in order(config, task.train, asked.steps + 1)]
    rounds, about = list[Round](), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.json"
        prompts.write_text(json.dumps(chats), encoding="utf-8")
        sides = commands(asked, config, prompts)
        for turn in range(asked.rounds):
            row: Round = {}
            for name in list(sides)[:: -1 if turn % 2 else 1]:
                with Side(sides[name], config.hardware.threads) as side:
                    about[name] = side.about
                    row[name] = [side.step() for _ in chats][1:]  # the first warms up
            _alike(row, tokens)
            rounds.append(row)
    return {"sides": about, **_summary(rounds), "rounds": rounds}


def _alike(row: Round, tokens: int) -> None:
    """See that all sides had the same prompts, and completions of the length asked for."""
    prompts = {name: [step["prompt_tokens"] for step in steps] for name, steps in row.items()}
    made = {name: [step["completion_tokens"] for step in steps] for name, steps in row.items()}
    if any(found != prompts[BASE] for found in prompts.values()):
        raise SystemExit(f"the prompts differ in length: {prompts}")
    if any(step != [tokens] for steps in made.values() for step in steps):
        raise SystemExit(f"not all completions have {tokens} tokens: {made}")


def _median(steps: Sequence[dict[str, Any]], key: str = "seconds") -> float:
    return statistics.median(step[key] for step in steps)


def _summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians of each side over all steps, and of the ratios of each round."""
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
    """Take turns at every length, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trl", required=True, metavar="PYTHON")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="that a side takes in its turn")
    asked, words = parser.parse_known_args()
    asked.words = words
    found = {str(tokens): compare(asked, tokens) for tokens in asked.tokens}
    print(json.dumps(
        {"cpu": cpu_model(), "cores": os.cpu_count(), "words": words, "tokens": found}, indent=1
    ))  # fmt: skip


if __name__ == "__main__":
    main()
