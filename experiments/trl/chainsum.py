"""Train the tiny model in TRL with PODS: no network, and a minute on one core.

    python experiments/trl/chainsum.py [--keep 16] [--rule max_variance] [--steps 40]

A checkpoint is saved every ten steps; the same command again resumes from the last one.
"""

import argparse

import torch
from datasets import Dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

from pods.integrations.trl import PODSTrainer
from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.datasets import chainsum


def right(completions: list[str], gold: list[str], **_: object) -> list[float]:
    """Reward the completions that end in the right digit."""
    pairs = zip(completions, gold, strict=True)
    return [chainsum.grade(completion, digit).reward for completion, digit in pairs]


def main() -> None:
    """Train, and save checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="rollouts generated per prompt")
    parser.add_argument("--keep", type=int, default=16, help="rollouts trained on per prompt")
    parser.add_argument("--rule", default="max_variance")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--output", default="runs/trl_chainsum")
    options = parser.parse_args()
    torch.set_num_threads(1)
    problems = chainsum.load(train_size=256, test_size=16).train
    trainer = PODSTrainer(
        str(SHIPPED_MODELS / "tiny"), right,
        GRPOConfig(
            output_dir=options.output, max_steps=options.steps, use_cpu=True, bf16=False,
            num_generations=options.n, per_device_train_batch_size=2 * options.n,  # two prompts
            max_completion_length=32, learning_rate=1e-4, lr_scheduler_type="constant",
            gradient_checkpointing=False, save_steps=10, logging_steps=10, report_to="none",
        ),
        Dataset.from_list([{"prompt": p.question, "gold": p.gold} for p in problems]),
        keep=options.keep, rule=options.rule,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.output))


if __name__ == "__main__":
    main()
