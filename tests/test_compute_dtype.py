"""Updates that compute in bfloat16 on float32 weights, on one process and on two.

bfloat16 keeps 8 bits, so that each of some ten roundings in a row is wrong by up to 0.4 % of its
number; in a gradient, which is a sum of many of them with both signs, some percent are left.
"""

import contextlib
import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from compose import composed
from running import steps
from safetensors.torch import load_file
from several import watch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from pods.config.schema import Config
from pods.policy import update as updating
from pods.policy.fsdp import full_tensor, is_sharded, mesh_of_one, weights_version
from pods.policy.joined import JoinedProcesses
from pods.policy.optimizer import make_optimizer, restore_optimizer, save_optimizer
from pods.policy.policy import Policy, load
from pods.policy.process_group import SINGLE_PROCESS
from pods.policy.scoring import UpdateContext
from pods.runs.attempts import environment
from pods.system.signals import Preempted, Stop
from pods.types import Rollout

FULL = ("model.tuning=full", "update.micro_batch_tokens=64")
CAST = (*FULL, "model.compute_dtype=bfloat16")
GRADIENT, WEIGHTS = 0.1, 0.1  # relative errors; 0.03 and 0.06 were measured (0.04 by autocast)


@pytest.fixture(autouse=True)
def alone():
    """Leave torch's process group, in which a test's process is alone."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    mesh_of_one.cache_clear()


def batch() -> list[Rollout]:
    """Eight completions of one prompt, of random tokens, in several micro-batches."""
    drawn = np.random.default_rng(0)
    prompt = tuple(drawn.integers(3, 18, 12).tolist())
    lengths = drawn.integers(5, 30, 8)
    return [
        Rollout(prompt, tuple(drawn.integers(3, 18, length).tolist()),
                np.full(length, -2.0, np.float32), "", True)
        for length in lengths
    ]  # fmt: skip


def start(words: tuple[str, ...], **settings) -> tuple[Config, Policy, torch.optim.Optimizer]:
    config = composed(*words)
    policy = load(config, **settings)
    return config, policy, make_optimizer(policy, config.update)


@pytest.mark.parametrize("how", ["foreach", "fused"])
def test_a_step_on_shards_is_a_new_version_as_a_card_takes_it(how):
    """So that engines get the new weights: by foreach or fused, torch itself does not count it."""
    _, policy, optimizer = start(CAST)
    optimizer.param_groups[0][how] = True
    policy.model(torch.tensor([[4, 5, 6, 7]])).logits.sum().backward()
    before = weights_version(policy.model)
    optimizer.step()
    assert is_sharded(policy.model) and weights_version(policy.model) > before


def train(made, first: int, last: int, check=lambda: None, group=SINGLE_PROCESS) -> None:
    config, policy, optimizer = made
    advantages = np.array([1.0, -0.5, 0.25, -1.0, 2.0, -1.5, 0.5, -0.25])
    for step in range(first, last + 1):
        context = UpdateContext(policy, config, group, check)
        updating.update(context, optimizer, batch(), advantages, [8], step)


def test_sharded_gradients_are_clipped_all_at_once():
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    names: list[str] = []
    made = start(CAST)
    with Seen():
        train(made, 1, 1)
    assert names.count("_foreach_norm") == 1


def flat(made) -> torch.Tensor:
    weights = made[1].model.parameters()
    return torch.cat([full_tensor(weight.detach()).flatten().clone() for weight in weights])


def gradient(words: tuple[str, ...], monkeypatch) -> torch.Tensor:
    """The whole gradient of the first update, before clipping."""
    found: dict[str, torch.Tensor] = {}
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", torch.nn.utils.clip_grad_norm_)
        watch(found)
        train(start(words), 1, 1)
    return torch.cat([part.flatten() for part in found.values()])


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.dtype == expected.dtype == torch.float32
    return float((found - expected).norm() / expected.norm())


def test_gradients_are_float32s_within_some_percent_as_torchs_own_autocast(monkeypatch):
    words = (*FULL, "hardware.shard=true", "model.compute_dtype=float32")
    expected = gradient(FULL, monkeypatch)
    # in float32 one process is not wrapped, whatever the keys say of processes
    assert torch.equal(gradient(words, monkeypatch), expected) and not dist.is_initialized()
    found = gradient(CAST, monkeypatch)
    assert 1e-4 < relative(found, expected) < GRADIENT  # it is another arithmetic
    cosine = torch.nn.functional.cosine_similarity(found, expected, dim=0)
    assert cosine > math.sqrt(1 - GRADIENT**2)
    with torch.autocast("cpu", torch.bfloat16):  # without FSDP2, about as far from float32
        theirs = gradient(FULL, monkeypatch)
    error = relative(found, expected) / relative(theirs, expected)
    assert 0.4 < error < 1.6, error


def test_what_a_card_may_do_is_set_and_recorded():
    torch.backends.cuda.enable_cudnn_sdp(True)
    start(FULL)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert torch.get_float32_matmul_precision() == "highest"
    assert set(environment()["cuda_math"].values()) == {False}


def test_weights_after_10_steps_and_a_resume_in_the_middle(tmp_path):
    made, exact = start(CAST), start(FULL)
    untrained = flat(exact)
    assert torch.equal(flat(made), untrained)
    train(made, 1, 5)
    made[1].save(tmp_path / "policy")
    save_optimizer(made[2], tmp_path / "optimizer.safetensors")
    train(made, 6, 10)
    train(exact, 1, 10)
    assert relative(flat(made) - untrained, flat(exact) - untrained) < WEIGHTS
    stored = load_file(tmp_path / "policy" / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.float32}
    again = start(CAST)
    again[1].restore(tmp_path / "policy")
    restore_optimizer(again[2], tmp_path / "optimizer.safetensors")
    train(again, 6, 10)
    assert torch.equal(flat(again), flat(made))


def test_an_update_that_is_stopped_halfway_leaves_nothing_behind():
    made, expected = start(CAST), start(CAST)
    before = flat(made)
    with pytest.raises(Preempted):
        train(made, 1, 1, Mock(side_effect=[None, None, Preempted]))
    assert torch.equal(flat(made), before)
    for each in (made, expected):
        train(each, 1, 2)
    assert torch.equal(flat(made), flat(expected))


@pytest.mark.parametrize(("rank", "rows"), [(0, 3), (7, 0)])  # of the embedding's 19
def test_a_process_of_eight_whose_others_are_pretended(rank, rows, tmp_path):
    """They send nothing, so that numbers mean nothing: an update, its stop, and a checkpoint."""
    dist.init_process_group("fake", rank=rank, world_size=8, store=FakeStore())
    group = JoinedProcesses.__new__(JoinedProcesses)  # torch makes no group of gloo for these
    group.stop, group.rank, group.size, group.control = Stop(), rank, 8, dist.group.WORLD
    group.mesh = init_device_mesh("cpu", (8,))
    words = (*CAST, "hardware.shard=true", "prompts_per_step=8")
    config, policy, optimizer = made = start(words, process_group=group)
    assert len(policy.causal_lm.get_input_embeddings().weight.to_local()) == rows
    with contextlib.suppress(FloatingPointError):
        train(made, 1, 1, group=group)
    config.update.micro_batch_tokens = 20  # a share has two completions, alone in their batches
    context = UpdateContext(policy, config, group, Mock(side_effect=[None, Preempted]))
    with pytest.raises(Preempted):
        updating.update(context, optimizer, batch() * 2, np.ones(16), [16], 2)
    assert all(weight.grad is None for weight in policy.model.parameters())
    before = [weight.to_local().clone() for weight in policy.model.parameters()]
    policy.save(tmp_path, group.is_main)
    save_optimizer(optimizer, tmp_path / "optimizer.safetensors", group.is_main)
    if rank == 0:
        policy.restore(tmp_path)
        restore_optimizer(optimizer, tmp_path / "optimizer.safetensors")
        assert all(map(torch.equal, before, (w.to_local() for w in policy.model.parameters())))


@pytest.mark.slow
def test_two_processes_are_one_within_bfloat16(tmp_path):
    words = ("hardware.shard=true", "model.compute_dtype=bfloat16", "budget.max_steps=1")
    runs = [steps(tmp_path / str(processes), processes, *words) for processes in (1, 2)]
    (alone, expected), (together, found) = runs
    assert alone[0]["tokens"] == together[0]["tokens"]  # the engine's copy is the same
    both = [
        torch.cat([each[name].flatten() for name in sorted(each)]) for each in (expected, found)
    ]
    assert relative(both[1], both[0]) < GRADIENT
    for name in ("policy/model.safetensors", "optimizer.safetensors"):
        folder = tmp_path / "2"
        assert (folder / name).read_bytes() == (folder / "again" / name).read_bytes()
