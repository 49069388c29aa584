"""`pods generate`: ask a checkpoint questions, in the prompt that its run was trained with."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pods.cli.checkpoints import add_options as add_checkpoint_options
from pods.cli.checkpoints import find_checkpoint, find_run, load_policy, usable_device
from pods.config.checks import GENERATED
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.system.errors import print_error
from pods.system.machine import set_threads

if TYPE_CHECKING:
    from pods.engines.transformers_engine import TransformersEngine
    from pods.types import Message

Verdict = Callable[[str, str], str]
"""`verdict(completion, gold)` is one of `pods.types.VERDICTS`."""


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="the question to ask")
    parser.add_argument(
        "-i",
        dest="interactive",
        action="store_true",
        help="read questions from the lines of stdin, each with its gold after a tab if it has one",
    )
    parser.add_argument("-n", type=int, default=1, help="completions per question (default: 1)")
    parser.add_argument("--gold", metavar="ANSWER", help="the right answer, to print grades too")
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="0 is greedy (default: that of evaluations)"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="limit of a completion (default: as trained)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")


@dataclass(frozen=True)
class Session:
    """A checkpoint that is ready to be asked."""

    config: Config
    options: Namespace
    verdict: Verdict
    opening: "Sequence[Message]"
    """Messages before each question."""
    engine: "TransformersEngine"


def generate(options: Namespace) -> int:
    """Print completions of one question, or of each line of stdin.

    Raises:
        ConfigError: an option is not allowed, or there is no such run or checkpoint.
        ValueError: weights, data or a package are missing, or the question cannot be asked.
    """
    _check_options(options)
    store = find_run(options.run, options.runs_dir)
    config, checkpoint = store.config(), find_checkpoint(store, options.step)
    verdict = _verdict_function(config)
    if options.gold is not None:
        _check_gold(config, verdict, options.gold)
    session = _load(config, checkpoint, options, verdict)
    if options.interactive:
        _answer_lines(session)
    else:
        _answer(session, options.question, options.gold, 0)
    return 0


def _check_options(options: Namespace) -> None:
    if (options.question is None) != options.interactive:
        raise ConfigError("QUESTION", options.question, "must be given, or -i to read stdin")
    if options.interactive and options.gold is not None:
        raise ConfigError("--gold", options.gold, "must follow its question after a tab with -i")
    lowest = {"n": 1, "max_tokens": 1, "seed": 0, "temperature": 0}
    for name, low in lowest.items():
        value = getattr(options, name)
        if value is not None and not low <= value < float("inf"):
            option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            raise ConfigError(option, value, f"must be at least {low}, and finite")


def _verdict_function(config: Config) -> Verdict:
    """Return the verdicts of the task's grader, which is made when the first one is asked for."""
    from pods.tasks.load import training_grader

    grader = cache(lambda: training_grader(config.task))
    return lambda completion, gold: grader().grade(completion, gold).verdict


def _check_gold(config: Config, verdict: Verdict, gold: str) -> None:
    """Check that a reply can be right.

    Raises:
        ConfigError: the grader cannot read the gold.
    """
    from pods.tasks.prompts import REPLIES

    own = {"chainsum": "#{answer}", "countdown": "{answer}"}
    form = own.get(config.task.name) or REPLIES[config.task.answer_format]
    if verdict(form.format(reasoning="", answer=gold), gold) != "right":
        raise ConfigError("--gold", gold, f"must be an answer that task={config.task.name} has")


def _load(config: Config, checkpoint: Path, options: Namespace, verdict: Verdict) -> Session:
    """Load prompt, policy and engine; a run from another machine may find no GPU on this one."""
    set_threads(config.hardware.threads)
    from pods.engines.transformers_engine import TransformersEngine
    from pods.tasks.load import load_opening

    opening = load_opening(config.task)
    policy = load_policy(config, checkpoint, usable_device(config))
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    temperature, _ = _sampling(config, options)
    print(f"{checkpoint}: temperature {temperature:g}, seed {options.seed}", file=sys.stderr)
    return Session(config, options, verdict, opening, engine)


def _sampling(config: Config, options: Namespace) -> tuple[float, int]:
    """Return temperature and limit of tokens."""
    temperature, limit = options.temperature, options.max_tokens
    return (
        config.evaluation.temperature if temperature is None else temperature,
        config.sampling.max_completion_tokens if limit is None else limit,
    )


def _answer_lines(session: Session) -> None:
    """Answer the lines of stdin until it ends; a question that cannot be asked ends nothing."""
    for number, line in enumerate(_lines()):
        question, _, gold = (part.strip() for part in line.partition("\t"))
        try:
            if gold:
                _check_gold(session.config, session.verdict, gold)
            _answer(session, question, gold or None, number)
        except ValueError as error:
            print_error(str(error))


def _lines() -> Iterator[str]:
    """Yield the lines of stdin that are not blank; show a person where to type."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line


def _answer(session: Session, question: str, gold: str | None, number: int) -> None:
    """Print n completions of one question, each below its length, end and grade.

    Raises:
        ConfigError: the question does not fit into the model.
        ValueError: the tokenizer has no ids for the question.
    """
    from pods.seeding import derive
    from pods.tasks.datasets import chainsum
    from pods.tasks.prompts import prompt_ids
    from pods.types import GenerationRequest, Problem, Sampling

    config, options, policy = session.config, session.options, session.engine.policy
    content = chainsum.typed(question) if config.task.name in GENERATED else question
    asked: Message = {"role": "user", "content": content}
    ids = prompt_ids(Problem("typed", (*session.opening, asked), gold or ""), policy.tokenizer)
    temperature, limit = _sampling(config, options)
    room = int(policy.causal_lm.config.max_position_embeddings) - len(ids)
    if limit > room:
        allowed = f"must be at most {room}, the model's positions after {len(ids)} of the prompt"
        raise ConfigError("--max-tokens", limit, allowed)
    request = GenerationRequest(
        [ids], options.n, Sampling(temperature, limit), [derive(options.seed, "typed", number)]
    )
    [rollouts] = session.engine.generate(request)
    for index, rollout in enumerate(rollouts, 1):
        end = "finished" if rollout.finished else "cut off"
        grade = "" if gold is None else f", {session.verdict(rollout.text, gold)}"
        print(f"[{index}/{options.n}] {end} after {len(rollout.completion_ids)} tokens{grade}")
        print(rollout.text, flush=True)
