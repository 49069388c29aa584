"""Put the parts of one run together: the only place that names the implementations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from pods.config import Config
from pods.evaluate import questions
from pods.experiment import Experiment
from pods.memory.fit import refuse_unless_it_fits
from pods.memory.plan import Lengths
from pods.method import prompts as selection
from pods.method.downsample import find_rule
from pods.policy.load import Policy, load, load_tokenizer
from pods.policy.optimizer import make_optimizer
from pods.policy.update import update
from pods.progress import Progress
from pods.proof import make_proof
from pods.records import Problem
from pods.rollouts.canary import prove_it_follows
from pods.rollouts.engine import Engine, Prompt
from pods.rollouts.transformers_engine import TransformersEngine, shared_prefix
from pods.runs.attempts import mark
from pods.runs.clock import TrainClock
from pods.runs.frozen import Changed
from pods.runs.identity import difference
from pods.runs.meter import Meter
from pods.runs.store import RunStore
from pods.runs.tracking import Tracker
from pods.stop import Stop
from pods.tasks.load import load as load_task
from pods.tasks.load import used
from pods.tasks.prompts import ChatTokenizer, fitting
from pods.train import Loop

NAMED = 5  # of the problems whose prompts are too long; data.json has all


def build(
    config: Config,
    store: RunStore,
    tracker: Tracker,
    stop: Stop,
    now: Callable[[], float],
    meter: Meter,
    report: Callable[[], None],
) -> Experiment:
    """Load policy, task and engine and put the run together.

    Args:
        config: of the run.
        store: its folder.
        tracker: its mirror.
        stop: says when to end.
        now: the training clock's source of seconds.
        meter: measures the process by phase.
        report: writes down what the meter has measured.

    Raises:
        ValueError: weights or data are missing, malformed, unfit for each other, or not those
            that the run began with; or the run does not fit into memory.
    """
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(config.hardware.threads)
    task = load_task(config.task, stop.check)
    stop.check()
    tokenizer = load_tokenizer(config)
    train, prompts, long_train = _fitting("train", task.train, tokenizer, config)
    test, asked, long_test = _fitting("test", questions(config, task), tokenizer, config)
    print(f"memory: {refuse_unless_it_fits(config, lengths([*prompts, *asked]))}", flush=True)
    policy = load(config, tokenizer)
    on_gpu = policy.device.type == "cuda"
    if on_gpu:
        meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
    facts = {"train": used(train, long_train), "test": used(test, long_test),
             "left_out": list(task.dropped)}  # fmt: skip
    hold_to(store, facts, config.allow_changed)
    engine = make_engine(policy, config, stop.check)
    if config.engine.name == "vllm":
        prove_it_follows(policy, engine, prompts[0])
    optimizer = make_optimizer(policy, config.update)
    loop = Loop(
        config=config,
        task=replace(task, train=train, test=test),
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, policy, optimizer, config, check=stop.check),
        clock=TrainClock(now, torch.cuda.synchronize if on_gpu else lambda: None, meter=meter),
    )
    progress = Progress(config.budget)
    return Experiment(
        config, store, policy, optimizer, loop, selection.start(config.prompts), asked, tracker,
        progress, stop, meter, report, make_proof(config),
    )  # fmt: skip


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
    if begun is None:
        changes = [f"{store.data_path.name}: gone, with what data it began on"] if trained else []
    else:
        changes = difference(_in_short(begun), _in_short(facts))
    if changes and not allow_changed:
        raise Changed(store.folder, changes)
    mark(store, changes)
    if begun is None:
        store.write_data(facts)


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
