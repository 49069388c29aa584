"""`pods generate`: ask a checkpoint a question, in the prompt that its run was trained with."""

import math
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.find import find_checkpoint, find_run
from pods.system.machine import set_threads

if TYPE_CHECKING:
    from pods.policy.policy import Policy


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("question", metavar="QUESTION", help="the question")
    parser.add_argument("-n", type=int, default=1, help="completions (default: 1)")
    greedy = "0 is greedy (default: that of evaluations)"
    parser.add_argument("--temperature", type=float, metavar="T", help=greedy)


def run(options: Namespace) -> None:
    """Print the completions."""
    _check("n", options.n, least=1)
    _check("temperature", options.temperature, least=0)
    store = find_run(options.run, options.runs_dir)
    config = store.config()
    checkpoint = find_checkpoint(store, options.step)
    set_threads(config.hardware.threads)
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.policy import load_policy
    from pods.seeding import derive
    from pods.types import GenerationRequest, Sampling

    policy = load_policy(config, checkpoint)
    prompt = _prompt(config, policy, options.question)
    temperature = options.temperature
    if temperature is None:
        temperature = config.evaluation.temperature
    print(f"{checkpoint}: temperature {temperature:g}", file=sys.stderr)

    longest = config.sampling.max_completion_tokens
    sampling = Sampling(temperature, longest, config.sampling.top_k)
    request = GenerationRequest([prompt], options.n, sampling, [derive(0, "typed", 0)])
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    for number, rollout in enumerate(engine.generate(request)[0], 1):
        end = "finished" if rollout.finished else "cut off"
        print(f"[{number}/{options.n}] {end} after {len(rollout.completion_ids)} tokens")
        print(rollout.text, flush=True)


def _check(option: str, value: float | None, least: float) -> None:
    if value is not None and not least <= value < math.inf:
        raise ConfigError(option, value, f"must be at least {least}, and finite")


def _prompt(config: Config, policy: "Policy", question: str) -> tuple[int, ...]:
    """Return the ids of a question in the prompt of the run's task."""
    from pods.tasks.datasets import chainsum
    from pods.tasks.load import load_opening
    from pods.tasks.prompts import prompt_ids
    from pods.types import Message, Problem

    content = question
    if config.task.answer_format == "chain":
        content = chainsum.typed(content)
    asked: Message = {"role": "user", "content": content}
    messages = (*load_opening(config.task), asked)
    ids = prompt_ids(Problem("typed", messages, ""), policy.tokenizer)

    positions = int(policy.causal_lm.config.max_position_embeddings)
    room = positions - config.sampling.max_completion_tokens
    if len(ids) > room:
        raise ConfigError("QUESTION", question, f"must have at most {room} tokens, as a prompt")
    return ids
