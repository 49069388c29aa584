"""Time updates whose minibatches are whole groups against the same rollouts shuffled.

    python experiments/benchmarks/minibatches.py [KEY=VALUE ...]   # as of src/run.py

Rollouts of one group share their prompt in the packed update, so a minibatch that holds rollouts of
as many prompts as possible encodes each prompt many times. Both sides make the same number of
optimizer updates on the same rollouts; they take turns, and the script prints JSON.
"""

import json
import statistics
import sys
import time

import numpy as np
from update import random_rollouts

from pods.config.compose import compose
from pods.config.parse import parse
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.runs.attempts import environment

ROUNDS = 5
PROMPTS, PER_PROMPT, PROMPT_TOKENS, TOKENS = 32, 8, 120, 64


def main(overrides: list[str]) -> None:
    """Print the median seconds of both sides and the median ratio of the turns."""
    settings = ["update.minibatches=4", f"prompts_per_step={PROMPTS}", f"nm.m={PER_PROMPT}"]
    config = parse(compose([*settings, *overrides]))
    policy = load(config)
    optimizer = make_optimizer(policy, config.update)
    rng = np.random.default_rng(0)
    rollouts = [
        rollout
        for _ in range(PROMPTS)
        for rollout in random_rollouts(
            rng.integers(policy.vocabulary, size=PROMPT_TOKENS).tolist(),
            [TOKENS] * PER_PROMPT,
            policy.vocabulary,
        )
    ]
    advantages = np.resize([1.0, -1.0], len(rollouts))
    mixed = [rollouts[i] for i in rng.permutation(len(rollouts))]
    sides = {"groups": (rollouts, [PER_PROMPT] * PROMPTS), "shuffled": (mixed, [1] * len(mixed))}
    rows: list[dict[str, float]] = []
    for turn in range(ROUNDS + 1):
        row = {}
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            batch, sizes = sides[name]
            start = time.perf_counter()
            update(Context(policy, config), optimizer, batch, advantages, sizes, 1)
            row[name] = time.perf_counter() - start
        if turn:  # the first warms up
            rows.append(row)
    print(
        json.dumps(
            {
                "machine": environment()["cpu"],
                **{name: statistics.median(row[name] for row in rows) for name in sides},
                "shuffled / groups": [row["shuffled"] / row["groups"] for row in rows],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
