"""PODS on one page: generate n rollouts per prompt, train on the m that the rule keeps.

python experiments/minimal/train.py                                      PODS, 64 -> 16
python experiments/minimal/train.py --n 16 --m 16 --rule all        GRPO
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.engines.transformers_engine import TransformersEngine
from pods.method.grpo import advantages, policy_loss, token_weights
from pods.method.prompt_order import PromptOrder
from pods.method.rules import RULES
from pods.policy import attention
from pods.policy.logprobs import token_logprobs
from pods.policy.packing import pack
from pods.policy.policy import Policy
from pods.runs.paths import SHIPPED_MODELS
from pods.seeding import derive
from pods.tasks.datasets import chainsum
from pods.tasks.prompts import prompt_ids
from pods.types import GenerationRequest, Group, Rollout, Sampling, Task

PROMPTS_PER_STEP = 2
SAMPLING = Sampling(temperature=1.0, max_completion_tokens=32)
ADVANTAGE = {"baseline": "selected", "scale": "std", "ddof": 1, "eps": 1e-4}  # PODS, Algorithm 1


def train(n: int, m: int, rule: Callable, seed: int = 0) -> Iterator[tuple[float, float, float]]:
    """Train until the caller stops; yield the training seconds, reward and loss of each step."""
    policy, optimizer, task = setup()
    engine = TransformersEngine(policy, max_rows=256, check=lambda: None)
    prompts = [prompt_ids(problem, policy.tokenizer) for problem in task.train]
    order, seconds, step = PromptOrder(seed, len(prompts)), 0.0, 0
    while True:
        if step % 25 == 0:  # evaluation is not training time
            print(
                f"{seconds:5.1f} s   step {step:4d}   accuracy {evaluate(policy, engine, task):.3f}"
            )
        started, step = time.perf_counter(), step + 1

        # 1. take the next prompts, and generate n rollouts of each
        batch = [order.problem((step - 1) * PROMPTS_PER_STEP + i) for i in range(PROMPTS_PER_STEP)]
        seeds = [derive(seed, "rollouts", step, i) for i in range(len(batch))]
        request = GenerationRequest([prompts[i] for i in batch], n, SAMPLING, seeds)
        generated = engine.generate(request)

        kept_rollouts, kept_advantages, rewards = [], [], []
        for i, (problem, rollouts) in enumerate(zip(batch, generated, strict=True)):
            # 2. grade them, 3. keep the m that the rule chooses, 4. normalise their rewards
            group = grade(task, problem, rollouts)
            kept = rule(group, m, np.random.default_rng(derive(seed, "rule", step, i)))
            scaled = advantages(group.rewards, kept, **ADVANTAGE)
            kept_rollouts += [rollouts[k] for k in kept]
            kept_advantages += [scaled]
            rewards += [group.rewards.mean()]

        # 5. take one step on them; this engine shares the policy's weights
        loss = update(policy, optimizer, kept_rollouts, np.concatenate(kept_advantages))
        seconds += time.perf_counter() - started
        yield seconds, float(np.mean(rewards)), loss


def grade(task: Task, problem: int, rollouts: Sequence[Rollout]) -> Group:
    """Grade the rollouts of one problem."""
    gold = task.train[problem].gold
    grades = [task.train_grader.grade(rollout.text, gold) for rollout in rollouts]
    return Group(
        rewards=np.array([grade.reward for grade in grades]),
        correct=np.array([grade.correct for grade in grades]),
        lengths=np.array([len(rollout.completion_ids) for rollout in rollouts]),
    )


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rollouts: Sequence[Rollout],
    scaled: np.ndarray,
) -> float:
    """Take one optimizer step on GRPO's loss over the kept rollouts; return the loss."""
    indices_of_prompt: dict[tuple[int, ...], list[int]] = {}
    for i, rollout in enumerate(rollouts):
        indices_of_prompt.setdefault(rollout.prompt_ids, []).append(i)
    # each prompt once, its completions after it
    batch = pack(rollouts, list(indices_of_prompt.values()))
    lengths = torch.tensor(batch.lengths)
    groups = torch.zeros_like(lengths)  # they make no difference to a mean over sequences
    weights = token_weights(lengths, groups, "sequence_mean", SAMPLING.max_completion_tokens)
    logprobs, _ = token_logprobs(
        policy.causal_lm, batch, temperature=SAMPLING.temperature, vocabulary=policy.vocabulary
    )
    loss = policy_loss(
        logprobs,
        logprobs.detach(),  # one update per step: on-policy
        torch.from_numpy(scaled)[batch.indices].float().repeat_interleave(lengths),
        weights.repeat_interleave(lengths),
        clip_low=0.2,
        clip_high=0.2,
    )
    loss.total.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.total.item()


def setup() -> tuple[Policy, torch.optim.Optimizer, Task]:
    """Load the tiny model, an optimizer for it, and its task: chains of digits such as 7+8-4+1."""
    torch.set_num_threads(1)
    attention.register()  # lets completions that share a prompt be packed into one row
    model = AutoModelForCausalLM.from_pretrained(
        SHIPPED_MODELS / "tiny", dtype=torch.float32, attn_implementation=attention.NAME
    ).eval()
    policy = Policy(
        model, AutoTokenizer.from_pretrained(SHIPPED_MODELS / "tiny"), reference_model=None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0)
    return policy, optimizer, chainsum.load(train_size=256, test_size=256)


def evaluate(policy: Policy, engine: TransformersEngine, task: Task) -> float:
    """Return the accuracy of one sampled answer per test question."""
    prompts = [prompt_ids(problem, policy.tokenizer) for problem in task.test]
    answers = engine.generate(GenerationRequest(prompts, 1, SAMPLING, range(len(prompts))))
    right = [
        task.test_grader.grade(answer.text, problem.gold).correct
        for problem, [answer] in zip(task.test, answers, strict=True)
    ]
    return float(np.mean(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="rollouts generated per prompt")
    parser.add_argument("--m", type=int, default=16, help="rollouts kept per prompt")
    parser.add_argument(
        "--rule", default="max_variance", choices=RULES, help="which m of n to keep"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="training time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for seconds, _, _ in train(options.n, options.m, RULES[options.rule], options.seed):
        if seconds >= options.seconds:
            break
