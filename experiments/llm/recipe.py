"""Make start policies of SmolLM2 that solve some share of the word problems, by supervised steps.

LoRA adapters learn worked solutions of problems that are in no train pool or test set. When the
share of right answers at temperature 1, on problems apart, first reaches 0.1, 0.3, 0.6 and 0.9, the
adapter is written to FOLDER/start-10, start-30, ..., which `model.path=` takes:

    python -m experiments.llm.recipe FOLDER SEED
"""

import json
import sys
import time
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
from experiments.llm.task import CORPUS, draw, sets
from torch.nn.utils.rnn import pad_sequence

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.policy.policy import Policy, load
from pods.system.machine import set_threads
from pods.tasks.load import load_opening
from pods.tasks.prompts import prompt_ids
from pods.tasks.rewards import own_grader
from pods.types import GenerationRequest, Problem, Sampling

RATES = [0.1, 0.3, 0.6, 0.9]
BATCH, LR, EVERY, APART, MOST = 8, 5e-4, 4, 96, 4096
Example = tuple[tuple[int, ...], str]
"""Token ids of a prompt, and a worked solution."""


def corpus(config: Config, policy: Policy, seed: int) -> list[Example]:
    """Draw the examples to measure on, which are the first `APART`, and those to learn from."""
    opening, known = load_opening(config.task), {q for pool in sets((1, 2, 3)) for q, _ in pool}
    drawn = (each for each in draw(CORPUS + seed, (1, 2, 3)) if each[0] not in known)
    return [
        (prompt_ids(Problem("", (*opening, {"role": "user", "content": question}), ""),
                    policy.tokenizer), solution)
        for question, solution in islice(drawn, APART + MOST)
    ]  # fmt: skip


def loss(policy: Policy, examples: list[Example]) -> torch.Tensor:
    """Return the mean negative log-likelihood of the tokens of the solutions and their ends."""
    ids, labels = list[torch.Tensor](), list[torch.Tensor]()
    for prompt, solution in examples:
        reply = (*policy.tokenizer.encode(solution), int(policy.tokenizer.eos_token_id))
        ids.append(torch.tensor(prompt + reply))
        labels.append(torch.tensor([-100] * len(prompt) + [*reply]))
    padded = pad_sequence(labels, batch_first=True, padding_value=-100)
    result = policy.causal_lm(input_ids=pad_sequence(ids, batch_first=True), labels=padded).loss
    return result  # type: ignore[no-any-return]


def success(config: Config, policy: Policy, examples: list[Example]) -> float:
    """Return the share of examples that one sampled answer each solves."""
    sampling = Sampling(1.0, config.sampling.max_completion_tokens)
    prompts, solutions = zip(*examples, strict=True)
    request = GenerationRequest(prompts, 1, sampling, range(len(prompts)))
    answers = TransformersEngine(policy, 64, lambda: None).generate(request)
    grade, pairs = own_grader(config.task).grade, zip(answers, solutions, strict=True)
    return float(np.mean([grade(a.text, s.rpartition(" ")[2]).correct for (a,), s in pairs]))


def main(folder: Path, seed: int) -> None:
    """Train, and print and write each start policy as soon as its rate is reached."""
    config = validate(compose(["experiment=llm", f"seed={seed}", "dry_run=true"]))
    set_threads(config.hardware.threads)
    policy, rates, start = load(config), [*RATES], time.perf_counter()
    examples = corpus(config, policy, seed)
    trained = [each for each in policy.model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0)
    for step in count(1):
        first = APART + (step - 1) * BATCH % MOST
        mean = loss(policy, examples[first : first + BATCH])
        mean.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            rate, seconds = success(config, policy, examples[:APART]), time.perf_counter() - start
            facts = {"step": step, "loss": round(mean.item(), 3), "right": round(rate, 3)}
            print(json.dumps({**facts, "seconds": round(seconds)}), flush=True)
            while rates and rate >= rates[0]:
                policy.save(folder / f"start-{100 * rates.pop(0):.0f}")
            if not rates:
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
