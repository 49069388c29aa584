"""Train a start policy of tiny's size for `chain_sum` of reasoning-gym.

    OMP_NUM_THREADS=1 python -m experiments.gym.start FOLDER    # 9 min

A question is one sentence with three or four one-digit numbers to add and subtract. Like `tiny` on
chainsum, the policy writes each step and then the answer, as in `7+8=15;15-9=6` and `#### 6` on a
line of its own, and is trained on solutions in which each step is wrong with probability 0.4. No
test question of the runs is in its corpus.
"""

import re
import sys
from pathlib import Path

import numpy as np
import reasoning_gym
from experiments.quickstart.recipe import SLIP, Draw, make_tokenizer, train
from tokenizers import Regex
from transformers import PreTrainedTokenizerFast

from pods.config.checks import validate
from pods.config.compose import compose
from pods.tasks.load import load

TASK = (
    "task=gym",
    "task.gym=chain_sum",
    "task.gym_parameters={min_terms: 3, max_terms: 4, min_digits: 1, max_digits: 1}",
    "task.answer_format=hash",
    "model=smollm2_135m",  # only to pass the checks
)
SEED = 2_000_000  # the library adds an entry's number to it; the runs' questions have smaller ones
ENTRIES = 40_000
LARGEST_ERROR = 5  # by which a wrong step misses the right result
MARK = "####"
WORDS = "State the final answer to the following arithmetic problem"
SIGNS = "0123456789+-=;: \n"
LAST_MESSAGE = "{{ messages[-1]['content'] }}"


def tokenizer_of_words() -> PreTrainedTokenizerFast:
    """Make one token per word and sign. The chat template is the question, without instructions."""
    tokens = [MARK, *dict.fromkeys(WORDS.split()), *SIGNS]  # "the" comes twice
    return make_tokenizer(tokens, Regex(rf"{MARK}|[A-Za-z]+|[\s\S]"), LAST_MESSAGE)


def solve(question: str, slip: float, rng: np.random.Generator) -> str:
    """Write out the solution of a question; each step errs with probability `slip`.

    >>> solve("State the final answer: 7 + 8 - 9 =", 0, np.random.default_rng(0))
    '7+8=15;15-9=6\\n#### 6'
    """
    first, *rest = re.findall(r"[+-] \d+|\d+", question)
    total = int(first)
    steps = []
    for term in rest:
        signed = term.replace(" ", "")
        result = total + int(signed)
        if rng.random() < slip:
            result += int(rng.integers(1, LARGEST_ERROR + 1) * rng.choice([-1, 1]))
        steps.append(f"{total}{signed}={result}")
        total = result
    return f"{';'.join(steps)}\n{MARK} {total}"


def sums() -> Draw:
    """Return a function that draws a question that is in no test set, and a solution with slips."""
    task = validate(compose(TASK)).task
    held_out = {problem.question for problem in load(task).test}
    dataset = reasoning_gym.create_dataset(
        str(task.gym), seed=SEED, size=ENTRIES, **task.gym_parameters or {}
    )

    def draw(rng: np.random.Generator) -> tuple[str, str]:
        question = dataset[int(rng.integers(ENTRIES))]["question"]
        while question in held_out:
            question = dataset[int(rng.integers(ENTRIES))]["question"]
        return question, solve(question, SLIP, rng)

    return draw


if __name__ == "__main__":
    train(Path(sys.argv[1]), sums(), tokenizer_of_words())
