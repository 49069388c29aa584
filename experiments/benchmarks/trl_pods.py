"""Time PODS in TRL: n=64, keep=16 beside n=m=64 and n=m=16, in turns in one sitting.

    TRL/bin/python experiments/benchmarks/trl_pods.py MODEL [--rounds 3] [--steps 2] [--tokens 64]

MODEL is a folder in Hugging Face's layout. Each turn is a fresh process, whose first step warms up.
Every completion has the same length, micro-batches have 16 rollouts, and LoRA has rank 64. The
script prints JSON: each side's median seconds per step and most memory, and the median of the
rounds' ratios to n=m=16.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from typing import Any

SIDES = {"grpo 16": (16, 16), "grpo 64": (64, 64), "pods 64 to 16": (64, 16)}
BASE = "grpo 16"
MICRO_BATCH = 16


def halves(completions: list[Any], **_: Any) -> list[float]:
    """Reward every other completion, so that each group has variance."""
    return [float(i % 2) for i in range(len(completions))]


def turn(model: str, n: int, m: int, tokens: int, steps: int) -> dict[str, Any]:
    """Take the steps of one side in this process."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig

    from pods.integrations.trl import PODSTrainer

    torch.set_num_threads(2)
    rows: list[dict[str, float]] = []

    class Times(TrainerCallback):
        """Keeps each step's seconds."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **rest: Any) -> None:
            rows.append({k: v for k, v in logs.items() if k.startswith(("seconds/", "step_time"))})

    accumulation = m // MICRO_BATCH
    question = (
        "A farmer has 12 rows of 15 apple trees. A storm fells 17 of them. How many are left?"
    )
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, max_steps=steps + 1, logging_steps=1,
            per_device_train_batch_size=n // accumulation, num_generations=n,
            gradient_accumulation_steps=accumulation, max_completion_length=tokens,
            generation_kwargs={"min_new_tokens": tokens}, gradient_checkpointing=False,
            learning_rate=5e-6, report_to="none", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        PODSTrainer(
            model, halves, args,
            Dataset.from_list([{"prompt": [{"role": "user", "content": question}]}] * 64),
            keep=m, callbacks=[Times()],
            peft_config=LoraConfig(r=64, lora_alpha=64, target_modules="all-linear"),
        ).train()  # fmt: skip
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"steps": rows[1 : steps + 1], "gib": memory}


def main() -> None:
    """Take turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        report = turn(options.model, *SIDES[options.side], options.tokens, options.steps)
        print("\n" + json.dumps(report))
        return
    rounds = []
    for i in range(options.rounds):
        rounds.append({
            side: json.loads(subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--side", side],
                stdout=subprocess.PIPE, text=True, check=True,
            ).stdout.splitlines()[-1])
            for side in list(SIDES)[:: -1 if i % 2 else 1]
        })  # fmt: skip

    def seconds(row: dict[str, Any], key: str = "step_time") -> float:
        return statistics.median(step[key] for step in row["steps"])

    print(json.dumps({
        side: {
            "seconds": {key: statistics.median(seconds(row[side], key) for row in rounds)
                        for key in rounds[0][side]["steps"][0]},
            "gib": statistics.median(row[side]["gib"] for row in rounds),
            "times_grpo_16": statistics.median(seconds(row[side]) / seconds(row[BASE])
                                               for row in rounds),
        }
        for side in SIDES
    } | {"load": os.getloadavg()}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
