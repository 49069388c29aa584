# /// script
# requires-python = ">=3.11"
# dependencies = ["pods-rl[train]"]
# [tool.uv.sources]
# pods-rl = {path = "../.."}
# ///
"""PODS on one page: generate n rollouts per prompt, train on the m that a rule keeps.

    python experiments/minimal/train.py                              PODS, 64 -> 16
    python experiments/minimal/train.py --n 16 --m 16 --rule all     GRPO
    python experiments/minimal/train.py --rule random                16 of 64 at random

Xu, Savani, Fang & Kolter, "Not All Rollouts are Useful", arXiv:2504.13818, Algorithm 1. Left out,
and in the harness: several updates per step (so the ratio below is 1, and only its gradient
matters), a KL penalty, packing and micro-batches, prompt selection, checkpoints, and resuming.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.engines.transformers_engine import TransformersEngine
from pods.method.prompt_order import PromptOrder
from pods.method.rules import RULES
from pods.policy.policy import Policy
from pods.runs.paths import SHIPPED_MODELS
from pods.seeding import derive
from pods.tasks.datasets import chainsum
from pods.tasks.prompts import prompt_ids
from pods.types import GenerationRequest, Rollout, Sampling, Task, group_of

PROMPTS_PER_STEP = 2
SAMPLING = Sampling(temperature=1.0, max_completion_tokens=32)
CLIP = 0.2


class Step(NamedTuple):
    """What one step of training shows."""

    seconds: float
    """Training time from the first step to the end of this one."""
    reward: float
    """Mean reward of all rollouts."""
    loss: float


class Trainer:
    """The policy, the engine that samples from it, and the problems: chains such as 7+8-4+1."""

    def __init__(self, n: int, m: int, rule: Callable, seed: int = 0) -> None:
        """Load the tiny model that ships with the package; n, m and rule are as in the paper."""
        torch.set_num_threads(1)
        self.n, self.m, self.rule, self.seed = n, m, rule, seed
        folder = SHIPPED_MODELS / "tiny"
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        policy = Policy(self.model, self.tokenizer, None)
        self.engine = TransformersEngine(policy, max_rows=256, check=lambda: None)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.task: Task = chainsum.load(train_size=256, test_size=256)

    def steps(self) -> Iterator[Step]:
        """Train until the caller stops."""
        task, seed, seconds = self.task, self.seed, 0.0
        prompts = [prompt_ids(problem, self.tokenizer) for problem in task.train]
        order = PromptOrder(seed, len(prompts))
        for step in itertools.count(1):
            start = time.perf_counter()
            kept_rollouts, kept_advantages, rewards = [], [], []

            # 1. take the next prompts, and generate n rollouts of each
            first = (step - 1) * PROMPTS_PER_STEP
            batch = [order.problem(first + i) for i in range(PROMPTS_PER_STEP)]
            seeds = [derive(seed, "rollouts", step, i) for i in range(PROMPTS_PER_STEP)]
            request = GenerationRequest([prompts[p] for p in batch], self.n, SAMPLING, seeds)
            for i, rollouts in enumerate(self.engine.generate(request)):
                # 2. grade them
                gold = task.train[batch[i]].gold
                grades = [task.train_grader.grade(rollout.text, gold) for rollout in rollouts]
                group = group_of(rollouts, grades)
                # 3. keep the m that the rule chooses: PODS those whose rewards vary most
                rng = np.random.default_rng(derive(seed, "rule", step, i))
                kept = self.rule(group, self.m, rng)
                # 4. compare each kept reward with the mean of the kept
                reward = group.rewards[kept]
                kept_advantages += [(reward - reward.mean()) / (reward.std(ddof=1) + 1e-4)]
                kept_rollouts += [rollouts[k] for k in kept]
                rewards += [group.rewards.mean()]

            # 5. take one optimizer step on them
            loss = self.update(kept_rollouts, torch.from_numpy(np.concatenate(kept_advantages)))
            seconds += time.perf_counter() - start
            yield Step(seconds, float(np.mean(rewards)), loss)

    def update(self, rollouts: list[Rollout], advantages: torch.Tensor) -> float:
        """Take one optimizer step on the loss L_PODS of the kept rollouts; return the loss."""
        logprobs, mask = self.logprobs(rollouts)  # (rollouts, tokens)
        ratio = (logprobs - logprobs.detach()).exp()  # 1: the policy that sampled is this one
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        surrogate = torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
        # the mean over tokens of each completion, then over completions
        loss = -((surrogate * mask).sum(1) / mask.sum(1)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def logprobs(self, rollouts: list[Rollout]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-prob of each sampled token, and 1 where there is one, else 0."""
        ids = [torch.tensor(r.prompt_ids + r.completion_ids) for r in rollouts]
        padded = pad_sequence(ids, batch_first=True)  # on the right, where nothing looks at it
        logits = self.model(padded).logits[:, :-1] / SAMPLING.temperature
        logprobs = logits.log_softmax(-1).gather(2, padded[:, 1:, None])[..., 0]
        position = torch.arange(1, padded.shape[1])
        first = torch.tensor([len(r.prompt_ids) for r in rollouts])[:, None]
        end = torch.tensor([len(each) for each in ids])[:, None]
        return logprobs, ((position >= first) & (position < end)).float()

    def accuracy(self) -> float:
        """Return the share of test questions whose one sampled answer is right."""
        test, grade = self.task.test, self.task.test_grader.grade
        prompts = [prompt_ids(problem, self.tokenizer) for problem in test]
        request = GenerationRequest(prompts, 1, SAMPLING, range(len(prompts)))
        pairs = zip(test, self.engine.generate(request), strict=True)
        return float(np.mean([grade(answer.text, q.gold).correct for q, [answer] in pairs]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="rollouts generated per prompt")
    parser.add_argument("--m", type=int, default=16, help="rollouts kept per prompt")
    parser.add_argument("--rule", default="max_variance", choices=RULES, help="which m to keep")
    parser.add_argument("--seconds", type=float, default=30.0, help="training time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trainer = Trainer(options.n, options.m, RULES[options.rule], options.seed)
    print(f"  0.0 s   step    0   accuracy {trainer.accuracy():.3f}")
    for number, step in enumerate(trainer.steps(), 1):
        if number % 25 == 0 or step.seconds >= options.seconds:  # evaluating is not training time
            accuracy = trainer.accuracy()
            print(f"{step.seconds:5.1f} s   step {number:4d}   accuracy {accuracy:.3f}")
        if step.seconds >= options.seconds:
            break
