"""Build one run: the place that names engine and optimizer and connects all parts."""

from collections.abc import Callable
from dataclasses import replace

import torch

from pods.config.clock_model import read_clock_model
from pods.config.schema import Config
from pods.engines.base import Engine
from pods.engines.sync_check import check_weight_sync
from pods.engines.transformers_engine import TransformersEngine
from pods.method import prompt_selection
from pods.method.keep import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.policy.scoring import UpdateContext, warm_up
from pods.runs.lock import RunLock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.signals import Stop
from pods.training.clock import TrainClock
from pods.training.data import Data, check_data, load_data
from pods.training.loop import TrainingLoop
from pods.training.mismatch import engine_gap, has_own_weights, make_monitor
from pods.training.progress import Progress
from pods.training.trainer import Trainer
from pods.training.workers import Worker, WorkerGroup


def build_trainer(
    config: Config,
    store: RunStore,
    lock: RunLock,
    tracker: Tracker,
    stop: Stop,
    clock: TrainClock,
    report: Callable[[], None],
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> Trainer:
    """Load policy, task and engine, and connect them to a trainer.

    The lock is held by this process. `report` writes what the clock's meter measured, and the other
    processes of the group call `build_worker`. A `ValueError` says that weights or data are
    missing, malformed or others, or memory too small.
    """
    data = load_data(config, stop.check)
    check_data(store, data.facts, config.retry == "changed")
    worker = build_worker(config, data, stop.check, process_group)
    workers = generators = WorkerGroup(worker, stop)
    if process_group.generators is not None:
        generators = WorkerGroup(replace(worker, process_group=process_group.generators), stop)
    return Trainer(
        config=config,
        store=store,
        lock=lock,
        workers=workers,
        generators=generators,
        loop=make_loop(config, data, workers, generators, clock),
        selector=prompt_selection.start(config.prompts),
        questions=data.questions,
        tracker=tracker,
        progress=Progress(config.budget),
        report=report,
        monitor=make_monitor(config),
    )


def make_loop(
    config: Config, data: Data, workers: WorkerGroup, generators: WorkerGroup, clock: TrainClock
) -> TrainingLoop:
    """Make the training loop; on a GPU its clock waits for the card, whose memory is measured."""
    price = config.budget.clock_model
    if config.hardware.device == "cuda":
        clock.meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
        clock.synchronise = torch.cuda.synchronize
    if price is not None:
        clock.model = read_clock_model(price)
    if generators is not workers:
        clock.beside = TrainClock()  # not by `now`, which one thread may read
    rule = find_rule(config.sampler.rule)
    beside = None if generators is workers else generators.beside
    watched = config.engine.lag > 0 and has_own_weights(config) and config.scores_what_is_sampled()
    gap = (lambda some: generators.call_all(engine_gap, some)) if watched else None
    return TrainingLoop(
        config, data.task, data.prompts, generators, rule, workers.update, clock, beside, gap
    )


def build_worker(
    config: Config, data: Data, check: Callable[[], None], process_group: ProcessGroup
) -> Worker:
    """Load the policy, engine and optimizer of one process.

    A `ValueError` says that weights are missing or unfit, or that the engine ignores the policy's.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config, data.tokenizer, process_group)
    if config.update.compiled and process_group.trains:
        try:
            warm_up(UpdateContext(policy, config, process_group), data.prompts[0])
        except torch._dynamo.exc.TorchDynamoException as error:
            why = str(error).strip().splitlines()[0]
            raise ValueError(f"update.compiled=true: torch cannot compile here: {why}") from error
    peers = SINGLE_PROCESS if process_group.idle else process_group  # nothing is sharded
    if process_group.generates and config.engine.name == "vllm":
        from pods.engines.vllm_engine import VllmEngine

        engine: Engine = VllmEngine(policy, config, check)
        check_weight_sync(policy, engine, data.prompts[0], peers)
    else:  # also where other processes generate: it holds no memory of its own
        engine = TransformersEngine(policy, config.engine.max_rows, check, config.engine.graphs)
    optimizer = make_optimizer(policy, config.update)
    return Worker(config, policy, optimizer, engine, process_group, check)
