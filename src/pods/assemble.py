"""Put the parts of one run together: the only place that names the implementations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from pods.config import Config
from pods.crew import Crew
from pods.evaluate import questions
from pods.experiment import Experiment
from pods.memory.fit import refuse_unless_it_fits
from pods.memory.plan import Lengths
from pods.method import prompts as selection
from pods.method.downsample import find_rule
from pods.policy.load import Policy, load, load_tokenizer
from pods.policy.optimizer import make_optimizer
from pods.policy.orders import Orders
from pods.policy.team import ALONE, Team
from pods.progress import Progress
from pods.proof import make_proof
from pods.records import Problem, Task
from pods.rollouts.canary import prove_it_follows
from pods.rollouts.engine import Engine, Prompt
from pods.rollouts.transformers_engine import TransformersEngine, shared_prefix
from pods.runs.attempts import mark
from pods.runs.clock import TrainClock
from pods.runs.frozen import Changed
from pods.runs.identity import difference
from pods.runs.lock import Held
from pods.runs.meter import Meter
from pods.runs.store import RunStore
from pods.runs.tracking import Tracker
from pods.stop import Stop
from pods.tasks.load import load as load_task
from pods.tasks.load import used
from pods.tasks.prompts import ChatTokenizer, fitting
from pods.train import Loop
from pods.worker import Worker

NAMED = 5  # of the problems whose prompts are too long; data.json has all


@dataclass(frozen=True)
class Data:
    """The problems of a run that it can use, and how a model reads them."""

    task: Task
    """With those problems alone."""
    tokenizer: PreTrainedTokenizerBase
    prompts: Sequence[Prompt]
    """Token ids of each problem of the train pool."""
    asked: Sequence[Prompt]
    """Token ids of each question of the evaluation."""
    facts: Mapping[str, Any]
    """As data.json has them."""


def build(
    config: Config,
    store: RunStore,
    lock: Held,
    tracker: Tracker,
    stop: Stop,
    now: Callable[[], float],
    meter: Meter,
    report: Callable[[], None],
    team: Team = ALONE,
) -> Experiment:
    """Load policy, task and engine and put the run together.

    Args:
        config: of the run.
        store: its folder.
        lock: held by this process for as long as the run is.
        tracker: its mirror.
        stop: says when to end.
        now: the training clock's source of seconds.
        meter: measures the process by phase.
        report: writes down what the meter has measured.
        team: the processes of the run, which this one leads; the others call `build_worker`.

    Raises:
        ValueError: weights or data are missing, malformed, unfit for each other, or not those
            that the run began with; or the run does not fit into memory.
    """
    data = load_data(config, stop.check)
    hold_to(store, data.facts, config.allow_changed)
    worker = build_worker(config, data, stop.check, team)
    on_gpu = worker.policy.device.type == "cuda"
    if on_gpu:
        meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
    crew = Crew(worker, stop, Orders(team))
    loop = Loop(
        config=config,
        task=data.task,
        prompts=data.prompts,
        engine=crew,
        rule=find_rule(config.sampler.rule),
        update=crew.update,
        clock=TrainClock(now, torch.cuda.synchronize if on_gpu else lambda: None, meter=meter),
    )
    progress = Progress(config.budget)
    return Experiment(
        config, store, lock, crew, loop, selection.start(config.prompts), data.asked, tracker,
        progress, stop, meter, report, make_proof(config),
    )  # fmt: skip


def load_data(config: Config, check: Callable[[], None]) -> Data:
    """Read the problems and see which prompts fit, and whether the run fits into memory.

    Raises:
        ValueError: data are missing or malformed, or the run does not fit.
    """
    transformers_logging.disable_progress_bar()
    task = load_task(config.task, check)
    check()
    tokenizer = load_tokenizer(config)
    train, prompts, long_train = _fitting("train", task.train, tokenizer, config)
    test, asked, long_test = _fitting("test", questions(config, task), tokenizer, config)
    print(f"memory: {refuse_unless_it_fits(config, lengths([*prompts, *asked]))}", flush=True)
    facts = {"train": used(train, long_train), "test": used(test, long_test),
             "left_out": list(task.dropped)}  # fmt: skip
    return Data(replace(task, train=train, test=test), tokenizer, prompts, asked, facts)


def build_worker(config: Config, data: Data, check: Callable[[], None], team: Team) -> Worker:
    """Load what each process of a run has of its own: policy, engine, optimizer.

    Raises:
        ValueError: weights are missing or unfit, or the engine does not follow the policy.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config, data.tokenizer, team)
    engine = make_engine(policy, config, check)
    if config.engine.name == "vllm":
        prove_it_follows(policy, engine, data.prompts[0], team)
    return Worker(config, policy, make_optimizer(policy, config.update), engine, team, check)


def lengths(prompts: Sequence[Prompt]) -> Lengths:
    """What of the prompts decides memory."""
    return Lengths(max(map(len, prompts)), shared_prefix(prompts))


def make_engine(policy: Policy, config: Config, check: Callable[[], None]) -> Engine:
    """The engine that the config names; `check()` may raise between tokens."""
    if config.engine.name == "vllm":
        from pods.rollouts.vllm_engine import VllmEngine

        return VllmEngine(policy, config, check)
    return TransformersEngine(policy, config.engine.max_rows, check)


def hold_to(store: RunStore, facts: Mapping[str, Any], allow_changed: bool) -> None:
    """Write down what data a new run is on; see that one that goes on is still on them.

    A hub's data count by their name in the run's identity: this is all that tells a change there.

    Args:
        store: of the run.
        facts: what it would use now, as data.json has it.
        allow_changed: mark the run with what changed instead.

    Raises:
        Changed: the problems that it uses are not those that it began with.
    """
    begun = store.data()
    trained = store.metrics_path.exists() and store.metrics_path.stat().st_size > 0
    if begun is not None:
        changes = difference(_in_short(begun), _in_short(facts))
    elif trained and not pinned(store):
        changes = [f"{store.data_path.name}: gone, with what data it began on"]
    else:
        changes = []
    if changes and not allow_changed:
        raise Changed(store.folder, changes)
    mark(store, changes)
    if begun is None:
        store.write_data(facts)


def pinned(store: RunStore) -> bool:
    """Say whether the run's identity holds its data to their bytes: made here, or in files."""
    known = store.identity()
    files = known.get("data")
    return known.get("task.name") == "chainsum" or (isinstance(files, list) and all(files))


def _in_short(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Number and hash of each split's problems, by what a message calls them."""
    names = {"problems": "problems", "sha256": "SHA-256"}
    return {
        f"data: {split} {name}": facts[split].get(key, "nothing")
        for split in ("train", "test")
        for key, name in names.items()
    }


def _fitting(
    split: str, problems: Sequence[Problem], tokenizer: ChatTokenizer, config: Config
) -> tuple[tuple[Problem, ...], tuple[Prompt, ...], tuple[str, ...]]:
    """The problems whose prompts fit, their token ids, and the ids of the others, also in print."""
    limit = config.sampling.max_prompt_tokens
    kept, prompts, too_long = fitting(problems, tokenizer, limit)
    if not kept:
        raise ValueError(
            f"sampling.max_prompt_tokens={limit}: none of the {len(problems)} {split} prompts fits"
        )
    if too_long:
        more = f", and {len(too_long) - NAMED} more" if len(too_long) > NAMED else ""
        print(f"dropped {len(too_long)} of {len(problems)} {split} problems: prompts over "
              f"{limit} tokens: {', '.join(too_long[:NAMED])}{more}")  # fmt: skip
    return kept, prompts, too_long
