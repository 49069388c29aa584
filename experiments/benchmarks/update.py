"""Compare our update with the bare forward + backward of as many tokens without padding.

    python experiments/benchmarks/update.py task.path=FOLDER [KEY=VALUE ...]   # as of src/run.py

Ours is `pods.policy.update.update` on m rollouts of one prompt: log-probs, loss, gradient, clipping
of its norm, AdamW. Its tokens are the prompt's, counted once, and those of all completions. The
bare side is the same adapted model with transformers' own forward (sdpa), `cross_entropy` and
`backward`, without an optimizer. It computes as many tokens, in dense rows as long as prompt and
completion together, so that a token sees no more context than in ours. It computes logits and loss
of as many positions as there are completion tokens, in micro-batches of as many tokens as ours. The
sides take turns; the script prints JSON.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pods.config.schema import Config
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.runs.attempts import environment
from pods.types import Rollout

ROUNDS = 5
PROMPT_TOKENS = range(100, 201)  # length of a usual question
CASES = {
    "16 x 64": [64] * 16,
    "16 x 256": [256] * 16,
    "16 x 16 to 256": np.linspace(16, 256, 16).astype(int).tolist(),
}


@dataclass(frozen=True)
class Bare:
    """Dense rows with as many tokens as prompt and completions, to within one row's width."""

    ids: Tensor
    """(R, L)"""
    scored: int
    """Number of last positions of each row that are predicted; R times this is about the number of
    completion tokens."""

    @classmethod
    def from_rollouts(cls, rollouts: Sequence[Rollout], device: torch.device) -> "Bare":
        """Concatenate the prompt, once, and all completions, and cut the result into rows."""
        prompt = rollouts[0].prompt_ids
        flat = [*prompt, *(i for rollout in rollouts for i in rollout.completion_ids)]
        completions = len(flat) - len(prompt)
        rows = max(1, round(len(flat) / (len(prompt) + completions / len(rollouts))))
        width = len(flat) // rows
        ids = torch.tensor(flat[: rows * width], device=device).view(rows, width)
        return cls(ids, min(round(completions / rows), width - 1))

    def run(self, policy: Policy, micro_batch_tokens: int) -> None:
        """Run forward and backward, in micro-batches of at most so many tokens."""
        rows, width = self.ids.shape
        for ids in self.ids.split(max(1, micro_batch_tokens // width)):
            logits = policy.causal_lm(
                input_ids=ids, use_cache=False, logits_to_keep=self.scored + 1
            ).logits[:, :-1]
            targets = ids[:, -self.scored :]
            loss = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
            (loss / (rows * self.scored)).backward()


def random_rollouts(
    prompt: Sequence[int], lengths: Sequence[int], vocabulary: int
) -> list[Rollout]:
    """Return one rollout per length, of random ids: the ids do not change the work."""
    rng = np.random.default_rng(0)
    return [
        Rollout(
            tuple(prompt), tuple(rng.integers(vocabulary, size=length).tolist()),
            np.zeros(length, np.float32), "", False,
        )
        for length in lengths
    ]  # fmt: skip


def suitable(prompts: Iterable[Sequence[int]]) -> Sequence[int]:
    """Return the first prompt of a usual question's length, or the first if there is none."""
    first, *others = prompts
    return next((ids for ids in (first, *others) if len(ids) in PROMPT_TOKENS), first)


def measure(
    policy: Policy, config: Config, prompt: Sequence[int], lengths: Sequence[int], rounds: int
) -> dict[str, Any]:
    """Take turns, the first of which is not counted.

    Args:
        policy: the policy; it is trained.
        config: of the run; its `update` section is what is measured.
        prompt: token ids, shared by the rollouts.
        lengths: (m,) completion tokens.
        rounds: turns that count.

    Returns:
        The median tokens/s of both sides, and the median ratio of the turns (ours / bare).
    """
    rollouts = random_rollouts(prompt, lengths, policy.vocabulary)
    advantages = np.resize([1.0, -1.0], len(lengths))
    optimizer = make_optimizer(policy, config.update)
    bare = Bare.from_rollouts(rollouts, policy.device)

    def ours() -> None:
        update(Context(policy, config), optimizer, rollouts, advantages, [len(rollouts)], 1)

    def theirs() -> None:
        bare.run(policy, config.update.micro_batch_tokens)
        optimizer.zero_grad()

    sides = {"ours": (ours, len(prompt) + sum(lengths)), "bare": (theirs, bare.ids.numel())}
    rows: list[dict[str, float]] = []
    for turn in range(rounds + 1):
        order = sides if turn % 2 else reversed(sides)
        row = {name: sides[name][1] / seconds(policy, name, sides[name][0]) for name in order}
        if turn:  # the first warms up
            rows.append(row)
    return {
        "tokens": {name: tokens for name, (_, tokens) in sides.items()},
        "bare_rows": list(bare.ids.shape),
        "ours_tokens_per_second": statistics.median(row["ours"] for row in rows),
        "bare_tokens_per_second": statistics.median(row["bare"] for row in rows),
        "ratio": statistics.median(row["ours"] / row["bare"] for row in rows),
        "rounds": rows,
    }


def seconds(policy: Policy, side: str, work: Callable[[], None]) -> float:
    """Return the seconds of a side's work; the bare side uses transformers' default attention."""
    ours = policy.causal_lm.config._attn_implementation
    synchronise = torch.cuda.synchronize if policy.device.type == "cuda" else lambda: None
    if side == "bare":
        policy.causal_lm.set_attn_implementation("sdpa")
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    elapsed = time.perf_counter() - start
    policy.causal_lm.set_attn_implementation(ours)
    return elapsed


def main(overrides: list[str]) -> None:
    """Measure every case, and print the results."""
    from pods.config.checks import validate
    from pods.config.compose import compose
    from pods.tasks.load import load as load_task
    from pods.tasks.prompts import prompt_ids

    chosen = ["task=gsm8k", "model=smollm2_135m", "task.few_shot=0", "tracking=none", *overrides]
    config = validate(compose(chosen))
    torch.set_num_threads(config.hardware.threads)
    policy = load(config)
    problems = load_task(config.task).train[:100]
    prompt = suitable([prompt_ids(problem, policy.tokenizer) for problem in problems])
    cases = {case: measure(policy, config, prompt, lengths, ROUNDS)
             for case, lengths in CASES.items()}  # fmt: skip
    print(json.dumps({"words": chosen, "threads": torch.get_num_threads(), "cases": cases,
                      "machine": environment()}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
