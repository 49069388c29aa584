"""`pods generate`: ask a checkpoint a question, in the prompt that its run was trained with."""

import sys
from argparse import ArgumentParser, Namespace

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.runs.find import find_checkpoint, find_run
from pods.system.machine import set_threads


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("question", metavar="QUESTION", help="the question")
    parser.add_argument("-n", type=int, default=1, help="completions (default: 1)")
    greedy = "0 is greedy (default: that of evaluations)"
    parser.add_argument("--temperature", type=float, metavar="T", help=greedy)


def run(options: Namespace) -> None:
    """Print the completions."""
    for option, least in {"n": 1, "temperature": 0}.items():
        value = getattr(options, option)
        if value is not None and not least <= value < float("inf"):
            raise ConfigError(option, value, f"must be at least {least}, and finite")

    store = find_run(options.run, options.runs_dir)
    config = store.config()
    checkpoint = find_checkpoint(store, options.step)
    set_threads(config.hardware.threads)
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.policy import load_policy
    from pods.seeding import derive
    from pods.tasks.datasets import chainsum
    from pods.tasks.load import load_opening
    from pods.tasks.prompts import prompt_ids
    from pods.types import GenerationRequest, Message, Problem, Sampling

    policy = load_policy(config, checkpoint)
    content = options.question
    if config.task.answer_format == "chain":
        content = chainsum.typed(content)
    messages: list[Message] = [*load_opening(config.task), {"role": "user", "content": content}]
    ids = prompt_ids(Problem("typed", tuple(messages), ""), policy.tokenizer)
    longest = config.sampling.max_completion_tokens
    room = int(policy.causal_lm.config.max_position_embeddings) - longest
    if len(ids) > room:
        limit = f"must have at most {room} tokens, as a prompt"
        raise ConfigError("QUESTION", options.question, limit)

    temperature = options.temperature
    if temperature is None:
        temperature = config.evaluation.temperature
    print(f"{checkpoint}: temperature {temperature:g}", file=sys.stderr)
    sampling = Sampling(temperature, longest, config.sampling.top_k)
    request = GenerationRequest([ids], options.n, sampling, [derive(0, "typed", 0)])
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    for number, rollout in enumerate(engine.generate(request)[0], 1):
        end = "finished" if rollout.finished else "cut off"
        print(f"[{number}/{options.n}] {end} after {len(rollout.completion_ids)} tokens")
        print(rollout.text, flush=True)
