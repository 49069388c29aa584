"""Build one run: the only place that names the implementations and connects them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from pods.config.checks import GENERATED
from pods.config.clock_model import read_clock_model
from pods.config.schema import Config
from pods.engines.base import Engine
from pods.engines.sync_check import check_weight_sync
from pods.engines.transformers_engine import TransformersEngine, shared_prefix
from pods.memory.fit import refuse_unless_it_fits
from pods.memory.plan import Lengths
from pods.method import prompt_selection as selection
from pods.method.adaptive import Adaptive
from pods.method.rules import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load, load_tokenizer
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.runs.attempts import record_changes
from pods.runs.freeze import Changed
from pods.runs.identity import difference
from pods.runs.lock import RunLock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.signals import Stop
from pods.tasks.load import data_record, load_further
from pods.tasks.load import load as load_task
from pods.tasks.prompts import ChatTokenizer, drop_long_prompts
from pods.training.clock import Meter, TrainClock
from pods.training.commands import CommandChannel
from pods.training.evaluate import AskedSet, evaluation_questions
from pods.training.loop import TrainingLoop
from pods.training.mismatch import make_monitor
from pods.training.progress import Progress
from pods.training.trainer import Trainer
from pods.training.worker import Worker
from pods.training.worker_group import WorkerGroup
from pods.types import Problem, Prompt, Task

NAMED = 5  # problems with too long prompts that are printed; data.json lists all


@dataclass(frozen=True)
class Data:
    """The problems that a run can use, and their prompts as token ids."""

    task: Task
    """The task with only the problems whose prompts fit."""
    tokenizer: PreTrainedTokenizerBase
    prompts: Sequence[Prompt]
    """Token ids of each problem of the train pool."""
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation."""
    facts: Mapping[str, Any]
    """Contents of data.json."""
    further: Sequence[AskedSet]
    further_facts: Sequence[Mapping[str, Any]]
    """Contents of the data.json of each further test set."""

    def all_prompts(self) -> list[Prompt]:
        """Return the prompts of the train pool and of all test sets."""
        further = [prompt for test_set in self.further for prompt in test_set.questions]
        return [*self.prompts, *self.questions, *further]


def build_trainer(
    config: Config,
    store: RunStore,
    lock: RunLock,
    tracker: Tracker,
    stop: Stop,
    now: Callable[[], float],
    meter: Meter,
    report: Callable[[], None],
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> Trainer:
    """Load policy, task and engine, and connect them to a trainer.

    Args:
        config: frozen config of the run.
        store: folder of the run.
        lock: lock on the run, held by this process.
        tracker: copies the run to W&B and TensorBoard.
        stop: set when the process is asked to stop.
        now: source of the training clock's seconds.
        meter: measures seconds and memory of the process by phase.
        report: writes the measurements of the meter.
        process_group: the processes of the run; the others call `build_worker`.

    Raises:
        ValueError: weights or data are missing, malformed, unfit for each other, or not those
            that the run began with; or the run does not fit into memory.
    """
    data = load_data(config, stop.check)
    check_data(store, data.facts, config.allow_changed)
    for test_set, facts in zip(data.further, data.further_facts, strict=True):
        check_set_data(store, test_set.name, facts)
    worker = build_worker(config, data, stop.check, process_group)
    on_gpu = worker.policy.device.type == "cuda"
    if on_gpu:
        meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
    price = config.budget.clock_model
    workers = WorkerGroup(worker, stop, CommandChannel(process_group))
    loop = TrainingLoop(
        config=config,
        task=data.task,
        prompts=data.prompts,
        engine=workers,
        rule=find_rule(config.sampler.rule),
        update=workers.update,
        clock=TrainClock(
            now,
            torch.cuda.synchronize if on_gpu else lambda: None,
            meter=meter,
            model=None if price is None else read_clock_model(price),
        ),
    )
    return Trainer(
        config=config,
        store=store,
        lock=lock,
        workers=workers,
        loop=loop,
        selector=selection.start(config.prompts),
        adaptive=None if config.nm.menu is None else Adaptive(),
        questions=data.questions,
        further=data.further,
        tracker=tracker,
        progress=Progress(config.budget),
        stop=stop,
        meter=meter,
        report=report,
        monitor=make_monitor(config),
    )


def load_data(config: Config, check: Callable[[], None]) -> Data:
    """Read the problems, drop those with too long prompts, and check that the run fits into memory.

    Raises:
        ValueError: data are missing or malformed, or the run does not fit.
    """
    transformers_logging.disable_progress_bar()
    task = load_task(config.task, check)
    check()
    tokenizer = load_tokenizer(config)
    train, prompts, long_train = _fitting("train", task.train, tokenizer, config)
    test, questions, long_test = _fitting(
        "test", evaluation_questions(config, task), tokenizer, config
    )
    task = replace(task, train=train, test=test)
    further, further_facts = _load_sets(config, task, tokenizer, check)
    facts = {
        "train": data_record(train, long_train),
        "test": data_record(test, long_test),
        "left_out": list(task.dropped),
    }
    data = Data(task, tokenizer, prompts, questions, facts, further, further_facts)
    fit = refuse_unless_it_fits(config, lengths(data.all_prompts()))
    if not fit.roomy:
        print(f"memory: {fit.text}", flush=True)
    return data


def _load_sets(
    config: Config, task: Task, tokenizer: ChatTokenizer, check: Callable[[], None]
) -> tuple[list[AskedSet], list[dict[str, Any]]]:
    """Read the further test sets; return them, and the contents of their data.json.

    Raises:
        ValueError: the data of one are missing, or none of its questions can be asked.
    """
    test_sets, facts = [], []
    for name, further in load_further(config, task, check).items():
        asked = further.test[: config.evaluation.questions]
        test, questions, too_long = _fitting(name, asked, tokenizer, config)
        test_sets.append(AskedSet(name, replace(further, test=test), questions))
        facts.append({**data_record(test, too_long), "left_out": list(further.dropped)})
    return test_sets, facts


def build_worker(
    config: Config, data: Data, check: Callable[[], None], process_group: ProcessGroup
) -> Worker:
    """Load the policy, engine and optimizer of one process.

    Raises:
        ValueError: weights are missing or unfit, or the engine ignores the policy's weights.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config, data.tokenizer, process_group)
    engine = make_engine(policy, config, check, process_group)
    if config.engine.name == "vllm":
        check_weight_sync(policy, engine, data.prompts[0], process_group)
    return Worker(
        config, policy, make_optimizer(policy, config.update), engine, process_group, check
    )


def lengths(prompts: Sequence[Prompt]) -> Lengths:
    """Return the prompt lengths that decide how much memory a run needs."""
    return Lengths(max(map(len, prompts)), shared_prefix(prompts))


def make_engine(
    policy: Policy,
    config: Config,
    check: Callable[[], None],
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> Engine:
    """Make the engine that the config names; `check()` may raise between tokens."""
    if config.engine.name == "vllm":
        from pods.engines.vllm_engine import VllmEngine

        return VllmEngine(policy, config, check, process_group)
    return TransformersEngine(policy, config.engine.max_rows, check)


def check_data(store: RunStore, facts: Mapping[str, Any], allow_changed: bool) -> None:
    """Record the data of a new run; check that a resumed run still has the same data.

    Data from a hub count by name in the run's identity, so only this check notices a change there.

    Args:
        store: folder of the run.
        facts: the data that the run would use now, as in data.json.
        allow_changed: mark the run as changed instead of raising.

    Raises:
        Changed: the problems are not those that the run began with.
    """
    begun = store.data()
    trained = store.metrics_path.exists() and store.metrics_path.stat().st_size > 0
    if begun is not None:
        changes = difference(_summary(begun), _summary(facts))
    elif trained and not pinned(store):
        changes = [f"{store.data_path.name}: missing, so that the data it began with are unknown"]
    else:
        changes = []
    if changes and not allow_changed:
        raise Changed(store.folder, changes)
    record_changes(store, changes)
    if begun is None:
        store.write_data(facts)


def check_set_data(store: RunStore, test_set: str, facts: Mapping[str, Any]) -> None:
    """Record the data of a further test set; check that they are those of its evaluations so far.

    Raises:
        ValueError: they are others.
    """
    begun, path = store.set_data(test_set), store.set_data_path(test_set)
    if begun is None:
        store.write_set_data(test_set, facts)
    elif any(begun[name] != facts[name] for name in ("problems", "sha256")):
        raise ValueError(
            f"evaluation.sets: {test_set} has {facts['problems']} questions with SHA-256 "
            f"{facts['sha256'][:10]}, but {path} says {begun['problems']} with "
            f"{begun['sha256'][:10]}; remove that folder to evaluate on these"
        )


def pinned(store: RunStore) -> bool:
    """Return whether the run's identity covers its data: generated, or hashed files."""
    known = store.identity()
    files = known.get("data")
    return known.get("task.name") in GENERATED or (isinstance(files, list) and all(files))


def _summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return number and hash of each split's problems, named as in messages."""
    names = {"problems": "problems", "sha256": "SHA-256"}
    return {
        f"data: {split} {name}": facts[split].get(key, "nothing")
        for split in ("train", "test")
        for key, name in names.items()
    }


def _fitting(
    split: str, problems: Sequence[Problem], tokenizer: ChatTokenizer, config: Config
) -> tuple[tuple[Problem, ...], tuple[Prompt, ...], tuple[str, ...]]:
    """Return the problems whose prompts fit, their token ids, and the ids of the other problems."""
    limit = config.sampling.max_prompt_tokens
    kept, prompts, too_long = drop_long_prompts(problems, tokenizer, limit)
    if not kept:
        raise ValueError(
            f"sampling.max_prompt_tokens={limit}: none of the {len(problems)} {split} prompts fits"
        )
    if too_long:
        more = f", and {len(too_long) - NAMED} more" if len(too_long) > NAMED else ""
        print(
            f"dropped {len(too_long)} of {len(problems)} {split} problems: prompts over "
            f"{limit} tokens: {', '.join(too_long[:NAMED])}{more}"
        )
    return kept, prompts, too_long
