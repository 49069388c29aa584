"""The preflight tries the largest shapes of a run; the memory of a card is read without torch."""

import dataclasses
import subprocess
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from compose import composed

from pods.engines.transformers_engine import TransformersEngine, shared_prefix
from pods.policy.fsdp import weights_version
from pods.policy.optimizer import make_optimizer, trained_weights
from pods.policy.packing import pack, plan_micro_batches
from pods.policy.policy import load
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.system import machine
from pods.training.preflight import preflight, worst_micro_batches
from pods.training.workers import Worker
from pods.types import Rollout

PROMPT = tuple(range(2, 12))


def test_the_memory_of_the_visible_card_is_read_without_torch(monkeypatch):
    listing = subprocess.CompletedProcess([], 0, "0, 1000, 49140\n1, 2000, 49140\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: listing)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.free_memory("cuda") == (1000 * 2**20, 49140 * 2**20)
    for visible, free in (("1,0", (2000 * 2**20, 49140 * 2**20)), ("GPU-5d", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine.free_memory("cuda") == free


def test_the_worst_micro_batches_fill_the_limit_and_no_other_needs_more():
    shared = tuple(range(40))
    assert shared_prefix([(*shared, 1, 2), (*shared, 3), (*shared, 1)]) == 40
    assert shared_prefix([(1, 2, 3), (1, 2)]) == 0

    def worst(prompt, *limit):
        return worst_micro_batches(composed("sampling.max_completion_tokens=32", *limit), prompt)

    tight = "update.micro_batch_tokens=74"
    assert worst(10, tight) == [(10, 32, 2)] and worst(10) == [(10, 32, 32)]
    # with a prompt of 60 one sequence is over the limit; prompts of 42 leave a token for each
    assert worst(60, tight) == [(42, 32, 1), (60, 1, 32)]
    wide = worst(12, "update.micro_batch_tokens=300")
    most = max(rows * (prompt + length) for prompt, rows, length in wide)
    rng = np.random.default_rng(0)
    for _ in range(50):
        drawn = rng.integers(1, 33, size=32).tolist()
        made = [Rollout((5,) * 12, (3,) * n, np.zeros(n), "", True) for n in drawn]
        for planned in plan_micro_batches(made, range(32), 300):
            [span] = pack(made, planned).spans
            padded = len(span.lengths) * max(span.lengths)
            assert span.prompt_length + padded <= max(p + rows * n for p, rows, n in wide)
            assert padded + len(span.lengths) * span.prompt_length <= most


@pytest.fixture
def ready():
    config = composed("model.tuning=lora", "nm=n16_m16")
    torch.set_num_threads(1)
    policy = load(config)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    optimizer = make_optimizer(policy, config.update)
    return Worker(config, policy, optimizer, engine, SINGLE_PROCESS, lambda: None)


def test_the_preflight_goes_to_full_rows_and_length_and_leaves_all_as_it_was(ready, monkeypatch):
    config, engine, policy = ready.config, ready.engine, ready.policy
    weights = {k: v.clone() for k, v in policy.model.state_dict().items()}
    version, state = weights_version(policy.model), torch.get_rng_state()
    monkeypatch.setattr(engine, "_forward", Mock(wraps=engine._forward))
    preflight(ready, [PROMPT], [PROMPT[:3]] * 256)
    longest = len(PROMPT) + config.sampling.max_completion_tokens - 1
    calls = [call.args for call in engine._forward.call_args_list]
    seen = [(len(ids), attention.shape[1]) for ids, attention, _ in calls]
    assert seen == [(1, longest - 1), (config.engine.max_rows, longest)]
    assert weights_version(policy.model) == version and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, weights[k]) for k, v in policy.model.state_dict().items())
    assert all(p.grad is None for p in trained_weights(ready.optimizer))


def test_the_preflight_tries_no_rows_that_no_step_and_no_evaluation_has(ready, monkeypatch):
    """Two prompts of 16 rollouts, and three questions five times, of which one is the longest."""
    forward = Mock(wraps=ready.engine._forward)
    monkeypatch.setattr(ready.engine, "_forward", forward)
    preflight(ready, [PROMPT[:3]], [PROMPT, PROMPT[:2], PROMPT[:3]])
    ids, attention, _ = forward.call_args.args
    assert len(ids) == 2 * 16
    assert attention.shape[1] == len(PROMPT) + ready.config.sampling.max_completion_tokens - 1


NO_MEMORY = (torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
             RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"))  # fmt: skip


def test_no_memory_at_the_preflight_is_one_line(ready, monkeypatch):
    config, policy, engine = ready.config, ready.policy, ready.engine
    on_vllm = dataclasses.replace(config, engine=dataclasses.replace(config.engine, name="vllm"))

    for error in NO_MEMORY:
        monkeypatch.setattr(engine, "_forward", Mock(side_effect=error))
        with pytest.raises(ValueError, match=r"^not enough memory for decoding 256 rows: lower "):
            preflight(ready, [PROMPT], [PROMPT] * 256)
        monkeypatch.setattr(policy.causal_lm.get_decoder(), "forward", Mock(side_effect=error))
        with pytest.raises(ValueError, match=r"lower update.micro_batch_tokens=8192, or set upd"):
            preflight(dataclasses.replace(ready, config=on_vllm), [PROMPT], [])
    other = RuntimeError("mat1 and mat2 shapes cannot")
    monkeypatch.setattr(engine, "_forward", Mock(side_effect=other))
    with pytest.raises(RuntimeError, match=r"^mat1"):  # another error stays what it is
        preflight(ready, [PROMPT], [PROMPT] * 256)


@pytest.mark.parametrize(("words", "processes"), [((), 1), ((), 2),
                         (("update.minibatches=2", "update.epochs=3"), 1)])  # fmt: skip
def test_the_trial_update_is_one_whole_micro_batch_for_each_process(
    ready, monkeypatch, words, processes
):
    config = composed("model.tuning=lora", "nm=n16_m16", "engine.name=vllm", "dry_run=true", *words)
    group = ProcessGroup()
    group.size = processes
    calls = []

    def update(worker, rollouts, advantages, sizes, step):
        settings = worker.config.update
        calls.append((len(rollouts), len(advantages), sizes, settings.epochs, settings.minibatches))

    monkeypatch.setattr(Worker, "update", update)
    preflight(dataclasses.replace(ready, config=config, process_group=group), [PROMPT], [])
    rows = [size.completions for size in worst_micro_batches(config, len(PROMPT))]
    assert calls == [(n * processes, n * processes, [n * processes], 1, 1) for n in rows]
