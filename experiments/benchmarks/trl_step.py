"""A step on a real model on this CPU, beside TRL's and beside what it cannot be faster than.

    python experiments/benchmarks/trl_step.py MODEL OUT.csv [THREADS]

Both train the same adapter of MODEL on `experiments/llm`'s problems, one a step, in float32, and
all completions have 48 tokens. The cases take turns, and the first step of each is not counted.
TRL's seconds are its own `step_time`, which leaves out clipping and AdamW.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pandas as pd
import torch
from datasets import Dataset
from gpu_probe import bandwidth, gemm_tflops
from peft import LoraConfig, get_peft_model
from step import Endless, endless, make_engine, make_loop, steps
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import LORA_TARGETS, Config
from pods.integrations.trl import PODSTrainer
from pods.policy.policy import load
from pods.tasks.load import load as load_task
from pods.training.data import fitting
from pods.types import Prompt, Task

ROUNDS, KEPT, TOKENS = 3, 16, 48
SETTING = (
    "task=own",
    "task.make=experiments.llm.task:one_two",
    "task.answer_format=whole",
    "task.format_reward=none",
    "task.few_shot=0",
    "sampling.temperature=1.0",
    "sampling.max_prompt_tokens=128",
    f"sampling.max_completion_tokens={TOKENS}",
    "update.lr=1e-4",
)
Seconds = dict[str, float]


def ours(policy: Endless, config: Config, task: Task, prompts: Sequence[Prompt], n: int) -> Seconds:
    """Take two steps of the real loop; return the second's seconds by phase."""
    engine, left = make_engine(policy, config), count()
    config = replace(config, nm=replace(config.nm, n=n, m=KEPT))
    loop = make_loop(policy, config, engine, task, prompts)
    *_, last = steps(loop, lambda: next(left) < 2)
    return {"step": last["seconds"], "generate": last["generate"], "update": last["update"]}


def theirs(model: str, data: Dataset, lora: LoraConfig, n: int, keep: int) -> Seconds:
    """Take two steps of TRL; return the second's seconds as TRL logs them."""
    with tempfile.TemporaryDirectory() as folder:
        micro_batch = KEPT if keep == n else n
        settings = GRPOConfig(
            output_dir=folder, max_steps=2, use_cpu=True, bf16=False, gradient_checkpointing=False,
            num_generations=n, per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=n // micro_batch, max_completion_length=TOKENS,
            generation_kwargs={"min_new_tokens": TOKENS}, learning_rate=1e-4, logging_steps=1,
            save_strategy="no", report_to="none", model_init_kwargs={"dtype": "float32"},
        )  # fmt: skip
        draws = count()
        make = GRPOTrainer if keep == n else partial(PODSTrainer, keep=keep, rule="max_variance")

        def reward(completions: list[object], **_: object) -> list[float]:
            return [float(next(draws) % 2) for _ in completions]

        trainer = make(model, reward, settings, data, peft_config=lora)
        trainer.train()
        logged = [row["step_time"] for row in trainer.state.log_history if "step_time" in row]
    return {"step": logged[-1]}


def bare(model: str, lora: LoraConfig, prompt: Prompt) -> Seconds:
    """Go forward and back over 16 random completions of a prompt, with logits of these alone."""
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tuned = get_peft_model(plain, lora)
    words = plain.config.vocab_size
    ids = torch.cat(
        [torch.tensor(prompt).expand(KEPT, -1), torch.randint(words, (KEPT, TOKENS))], 1
    )
    for _ in range(2):
        start = time.perf_counter()
        logits = tuned(input_ids=ids, logits_to_keep=TOKENS + 1).logits[:, :-1]
        cross_entropy(logits.reshape(-1, words), ids[:, -TOKENS:].reshape(-1)).backward()
        seconds = time.perf_counter() - start
    return {"update": seconds}


def least_to_generate(policy: Endless, n: int) -> Seconds:
    """Return the seconds to read the weights for each token, or to multiply them, if longer."""
    settings = policy.causal_lm.config
    sizes = {"hidden_size": settings.hidden_size, "intermediate_size": settings.intermediate_size}
    named = dict(policy.causal_lm.named_modules())
    products = [named[name] for name in named if name.endswith(("base_layer", "lm_head"))]
    weights = sum(module.weight.numel() for module in products)
    rate = 1e12 * gemm_tflops(sizes, "float32", "cpu", 1024)
    return {"generate": TOKENS * max(4 * weights / bandwidth("cpu"), 2 * weights * n / rate)}


def main(model: str, out: Path, threads: int = 2) -> None:
    """Run the cases in turns; write the median seconds of each."""
    torch.set_num_threads(threads)
    asked_for = ["model=smollm2_135m", f"model.path={model}", f"hardware.threads={threads}"]
    config = validate(compose([*SETTING, *asked_for]))
    policy = endless(load(config))
    task = load_task(config.task)
    asked = [[{"role": "user", "content": problem.question}] for problem in task.train]
    data = Dataset.from_dict({"prompt": asked})
    _, prompts, _ = fitting("train", task.train, policy.tokenizer, config)
    rank, alpha = config.model.lora.r, config.model.lora.alpha
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(LORA_TARGETS))
    cases = {
        "ours 16→16": partial(ours, policy, config, task, prompts, 16),
        "ours 64→16": partial(ours, policy, config, task, prompts, 64),
        "TRL 16→16": partial(theirs, model, data, lora, 16, 16),
        "TRL 64→64": partial(theirs, model, data, lora, 64, 64),
        "PODSTrainer 64→16": partial(theirs, model, data, lora, 64, 16),
        "forward and backward": partial(bare, model, lora, prompts[0]),
        "least for 16": partial(least_to_generate, policy, 16),
        "least for 64": partial(least_to_generate, policy, 64),
    }  # fmt: skip
    rows = [{"case": name, **case()} for _ in range(ROUNDS) for name, case in cases.items()]
    by_case = pd.DataFrame(rows).groupby("case", sort=False)
    by_case[["step", "generate", "update"]].median().to_csv(out, float_format="%.4g")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
