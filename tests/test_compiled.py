"""`update.compiled`: the same update by fewer passes, compiled before the clock starts."""

import sysconfig
from pathlib import Path
from shutil import which

import needs
import numpy as np
import pytest
import torch
from compose import composed
from torch._dynamo.utils import counters

from pods.policy import logprobs
from pods.policy.fsdp import full_tensor
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load
from pods.policy.scoring import UpdateContext, warm_up
from pods.policy.update import update
from pods.types import Rollout

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks at it
KINDS = {"lora": ("model.tuning=lora", "update.kl_beta=0.1"),
         "full": ("model.tuning=full", "update.entropy_beta=0.1", "update.epochs=2",
                  "update.activation_checkpointing=true"),
         "sharded": ("model.tuning=full", "model.compute_dtype=bfloat16")}  # fmt: skip


def rollouts(lengths):
    rng = np.random.default_rng(len(lengths))
    ids = [tuple(rng.integers(3, 18, length).tolist()) for length in (9, *lengths)]
    return [Rollout(ids[0], each, np.full(len(each), -1, np.float32), "", True) for each in ids[1:]]


def trained(*words):
    """The gradient norms of three updates of other sizes, the weights, and what was compiled."""
    config = composed(*words, "update.micro_batch_tokens=64")
    context = UpdateContext(load(config), config)
    optimizer = make_optimizer(context.policy, config.update)
    before = [weight.detach().clone() for weight in context.policy.model.parameters()]
    if config.update.compiled:
        warm_up(context, (4, 5))  # one chunk
    assert all(map(torch.equal, before, context.policy.model.parameters()))
    made, norms = counters["stats"]["unique_graphs"], []
    for step, lengths in enumerate([(7, 3, 5, 2), (1, 20), (4, 4, 4, 30, 2, 9)], start=1):
        kept, signs = rollouts(lengths), np.resize([1.0, -1.0], len(lengths))
        norms.append(update(context, optimizer, kept, signs, [len(kept)], step).grad_norm)
    recompiled = counters["stats"]["unique_graphs"] - made
    moved = zip(context.policy.model.parameters(), before, strict=True)
    change = torch.cat([full_tensor(now - then).flatten().detach() for now, then in moved])
    return norms, change, recompiled


@pytest.mark.parametrize("kind", ["lora", "full", pytest.param("sharded", marks=pytest.mark.slow)])
def test_a_compiled_update_is_the_plain_one_and_nothing_is_compiled_in_it(kind, monkeypatch):
    if not Path(sysconfig.get_path("include"), "Python.h").exists() or which("g++") is None:
        needs.lacking("Python's headers or a C++ compiler are missing")
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", 4 * 19)  # 17 tokens: the last chunk has one
    torch._dynamo.reset()
    norms, expected, _ = trained(*KINDS[kind])
    again, change, recompiled = trained(*KINDS[kind], "update.compiled=true")
    assert recompiled == 0
    bound = 0.1 if kind == "sharded" else 1e-3  # the former rounds to bfloat16
    assert again == pytest.approx(norms, rel=bound)
    assert 0 < (change - expected).norm() < bound * expected.norm()
