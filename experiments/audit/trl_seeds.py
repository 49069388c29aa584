"""Train the tiny model by plain TRL and with PODS, four seeds each; the logs are TRL's.

python -m experiments.audit.trl_seeds trl_runs     # some minutes on one core, no network
pods audit trl_runs
"""

import sys
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from experiments.trl.chainsum import right
from trl import GRPOConfig, GRPOTrainer

from pods.integrations.trl import PODSTrainer
from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.datasets import chainsum

STEPS = {"grpo": 80, "pods": 30}  # about as long as each other


def train(method: str, seed: int, folder: Path) -> None:
    """Train one run: 16 of 16 rollouts for each of two prompts, or with PODS 16 of 64."""
    data = chainsum.load(train_size=256, test_size=64)
    train_set, test_set = (
        Dataset.from_list([{"prompt": one.question, "gold": one.gold} for one in problems])
        for problems in (data.train, data.test)
    )
    n = 64 if method == "pods" else 16
    config = GRPOConfig(
        output_dir=str(folder / f"{method}-seed{seed}"), seed=seed, max_steps=STEPS[method],
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none",
        num_generations=n, per_device_train_batch_size=2 * n, max_completion_length=32,
        num_generations_eval=4, per_device_eval_batch_size=256, eval_strategy="steps",
        eval_on_start=True, eval_steps=STEPS[method] // 10, logging_steps=STEPS[method] // 10,
        learning_rate=1e-4, lr_scheduler_type="constant", save_strategy="no",
    )  # fmt: skip
    model, sets = str(SHIPPED_MODELS / "tiny"), {"eval_dataset": test_set}
    make = partial(PODSTrainer, keep=16) if method == "pods" else GRPOTrainer
    trainer = make(model, right, config, train_set, **sets)
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed in range(4):
        for method in STEPS:
            train(method, seed, Path(sys.argv[1]))
