"""Train a start policy: the recipe of the shipped weights with another seed, sooner.

    python -m experiments.law.starts FOLDER SEED CLEAN STEPS BATCH

Its first CLEAN of STEPS have no slips: many seeds learn to add late, and from right sums sooner.
"""

import sys
from pathlib import Path

import numpy as np
from experiments.quickstart import recipe

from pods.tasks.datasets import chainsum


def chains(clean: int) -> recipe.Draw:
    """Return a function that draws a chain that is no test question; the first ones are right."""
    held_out = frozenset(chainsum.questions(train_size=0, test_size=1024)[1])
    drawn = 0

    def draw(rng: np.random.Generator) -> tuple[str, str]:
        nonlocal drawn
        question = chainsum.chain(rng)
        while question in held_out:
            question = chainsum.chain(rng)
        drawn += 1
        return question, chainsum.solve(question, 0.0 if drawn <= clean else recipe.SLIP, rng)

    return draw


if __name__ == "__main__":
    folder, (seed, clean, steps, batch) = sys.argv[1], map(int, sys.argv[2:])
    recipe.BATCH = batch
    recipe.train(Path(folder), chains(clean * batch), recipe.ALPHABET, seed, steps)
