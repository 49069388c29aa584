"""Train SmolLM2 in TRL with PODS on the first rows of GSM8K.

    pods fetch smollm2_135m          # prints where it lies
    python experiments/trl/gsm8k.py MODEL TRAIN_JSONL [--steps 5]

MODEL is a folder in Hugging Face's layout or a name on its hub; TRAIN_JSONL has lines with a
question and an answer that ends in `#### 18`, as GSM8K's train.jsonl has.
"""

import argparse
import json
import re
from itertools import islice
from pathlib import Path

from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig

from pods.integrations.trl import PODSTrainer

ASK = "Think step by step, and end with a line of the form: #### 18"


def right(completions: list[list[dict[str, str]]], gold: list[str], **_: object) -> list[float]:
    """Reward the completions that end in the right number."""
    answers = [re.search(r"####\s*(-?[\d,]+)\s*\Z", turns[-1]["content"]) for turns in completions]
    pairs = zip(answers, gold, strict=True)
    return [float(found is not None and found[1].replace(",", "") == g) for found, g in pairs]


def marked(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """Reward the completions that have the mark of an answer."""
    return [float("####" in turns[-1]["content"]) for turns in completions]


def main() -> None:
    """Train with adapters on the first 100 questions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    with options.train.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, 100)]
    prompts = [[{"role": "user", "content": f"{row['question']}\n{ASK}"}] for row in rows]
    gold = [row["answer"].split("####")[1].strip().replace(",", "") for row in rows]
    trainer = PODSTrainer(
        options.model, [right, marked],
        GRPOConfig(
            output_dir="runs/trl_gsm8k", max_steps=options.steps, num_generations=32,
            per_device_train_batch_size=32, max_completion_length=options.tokens,
            reward_weights=[1.0, 0.2], learning_rate=5e-6, bf16=False, logging_steps=1,
            save_strategy="no", report_to="none",
        ),
        Dataset.from_dict({"prompt": prompts, "gold": gold}),
        keep=8,
        peft_config=LoraConfig(target_modules="all-linear"),
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()
