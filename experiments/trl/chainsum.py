# /// script
# requires-python = ">=3.11"
# dependencies = ["pods-rl[trl]"]
# [tool.uv.sources]
# pods-rl = {path = "../.."}
# ///
"""Train the tiny model in TRL, with PODS or plainly: no network, and a minute on one core.

    python experiments/trl/chainsum.py [--keep 16] [--rule max_variance] [--steps 40]
    python experiments/trl/chainsum.py --n 16       all rollouts, by TRL's own trainer

A checkpoint is saved every ten steps; the same command again resumes from the last one.
"""

import argparse
from functools import partial

import torch
from datasets import Dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from pods.integrations.trl import PODSTrainer
from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.datasets import chainsum


def right(completions: list[str], gold: list[str], **_: object) -> list[float]:
    """Reward the completions that end in the right digit."""
    pairs = zip(completions, gold, strict=True)
    return [chainsum.grade(completion, digit).reward for completion, digit in pairs]


def main() -> None:
    """Train, evaluate ten times, and save checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="rollouts generated per prompt")
    parser.add_argument("--keep", type=int, default=16, help="rollouts trained on per prompt")
    parser.add_argument("--rule", default="max_variance")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default="runs/trl_chainsum")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = chainsum.load(train_size=256, test_size=64)
    train_set, test_set = (
        Dataset.from_list([{"prompt": p.question, "gold": p.gold} for p in problems])
        for problems in (data.train, data.test)
    )
    config = GRPOConfig(
        output_dir=options.output, seed=options.seed, max_steps=options.steps, use_cpu=True,
        num_generations=options.n, per_device_train_batch_size=2 * options.n,  # two prompts
        max_completion_length=32, learning_rate=1e-4, lr_scheduler_type="constant", bf16=False,
        gradient_checkpointing=False, save_steps=10, report_to="none", eval_on_start=True,
        num_generations_eval=4, per_device_eval_batch_size=256, eval_strategy="steps",
        eval_steps=max(1, options.steps // 10), logging_steps=max(1, options.steps // 10),
    )  # fmt: skip
    pods = partial(PODSTrainer, keep=options.keep, rule=options.rule)
    make = pods if options.keep < options.n else GRPOTrainer
    trainer = make(str(SHIPPED_MODELS / "tiny"), right, config, train_set, eval_dataset=test_set)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.output))
    trainer.save_state()


if __name__ == "__main__":
    main()
