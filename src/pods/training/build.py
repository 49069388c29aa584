"""Build one run: the place that names engine and optimizer and connects all parts."""

from collections.abc import Callable

import torch

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
from pods.training.alarms import Alarms, EngineMotion
from pods.training.clock import TrainClock
from pods.training.data import Data, check_data, load_data
from pods.training.loop import TrainingLoop
from pods.training.mismatch import engine_gap, has_own_weights, make_monitor
from pods.training.progress import Progress
from pods.training.step import RunState
from pods.training.trainer import Trainer
from pods.training.workers import SharedEngine, Worker
from pods.types import Prompt, Rollout


def build_trainer(
    config: Config,
    store: RunStore,
    lock: RunLock | None,
    tracker: Tracker,
    stop: Stop,
    clock: TrainClock,
    report: Callable[[], None],
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> Trainer:
    """Load policy, task and engine, and connect them to a trainer.

    Args:
        config, store: of the run.
        lock: the run's lock, which this process holds if it is the main one.
        tracker, stop, clock: of this process.
        report: writes what the clock's meter measured.
        process_group: the processes of the run, which all call this.

    Raises:
        ValueError: weights or data are missing, malformed or others, or memory is too small.
    """
    data = load_data(config, stop.check)
    if any(facts != data.facts for facts in process_group.all_values(data.facts)):
        raise ValueError(
            f"hardware.processes={config.hardware.processes}: the processes have read different "
            f"problems; task={config.task.name} must give each of them the same"
        )
    process_group.on_main(check_data, store, data.facts, config.retry == "changed")
    worker = build_worker(config, data, stop.check, process_group)
    set_up_clock(clock, config)
    loop = make_loop(config, data, worker, clock)
    motion = EngineMotion(loop.engine, data.prompts[0], watched=config.model.tuning == "lora")
    return Trainer(
        config=config,
        store=store,
        lock=lock,
        worker=worker,
        stop=stop,
        loop=loop,
        state=RunState(prompt_selection.start(config.prompts)),
        questions=data.questions,
        tracker=tracker,
        progress=Progress(config.budget),
        report=report,
        alarms=Alarms(make_monitor(config), motion),
    )


def set_up_clock(clock: TrainClock, config: Config) -> None:
    """Let the clock wait for a card, whose memory is measured."""
    if config.hardware.device == "cuda":
        clock.meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
        clock.synchronise = torch.cuda.synchronize


def make_loop(config: Config, data: Data, worker: Worker, clock: TrainClock) -> TrainingLoop:
    """Make the training loop, which generates and updates on all processes."""
    process_group = worker.process_group
    engine = worker.engine
    if process_group.size > 1:
        engine = SharedEngine(engine, process_group)

    def gap(rollouts: list[Rollout]) -> float:
        return process_group.all_max(engine_gap(worker, rollouts))

    lagged = config.engine.lag > 0
    watched = lagged and has_own_weights(config) and config.scores_what_is_sampled()
    return TrainingLoop(
        config=config,
        task=data.task,
        prompts=data.prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=worker.update,
        clock=clock,
        gap=gap if watched else None,
        process_group=process_group,
    )


def build_worker(
    config: Config, data: Data, check: Callable[[], None], process_group: ProcessGroup
) -> Worker:
    """Load the policy, engine and optimizer of one process.

    Raises:
        ValueError: weights are missing or unfit, or the engine ignores the policy's.
    """
    torch.set_num_threads(config.hardware.threads)
    policy = load(config, data.tokenizer, process_group)
    if config.update.compiled:
        _compile(UpdateContext(policy, config, process_group), data.prompts[0])
    engine: Engine
    if config.engine.name == "vllm":
        from pods.engines.vllm_engine import VllmEngine

        engine = VllmEngine(policy, config, check)
        check_weight_sync(policy, engine, data.prompts[0], process_group)
    else:
        engine = TransformersEngine(policy, config.engine.max_rows, check)

    return Worker(
        config=config,
        policy=policy,
        optimizer=make_optimizer(policy, config.update),
        engine=engine,
        process_group=process_group,
        check=check,
    )


def _compile(context: UpdateContext, prompt: Prompt) -> None:
    try:
        warm_up(context, prompt)
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"update.compiled=true: torch cannot compile here: {reason}") from error
