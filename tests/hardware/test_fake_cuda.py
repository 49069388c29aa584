"""The code of a card on a pretended one: devices, dtypes, and where the host waits for it."""

from argparse import Namespace

import numpy as np
import pytest
from fake_cuda import fake_cuda

from pods.engines.transformers_engine import TransformersEngine
from pods.policy import attention, update
from pods.policy.optimizer import make_optimizer
from pods.policy.scoring import UpdateContext
from pods.types import GenerationRequest, Sampling

import gpu_checks  # isort: skip  (knows where the benchmarks are)
from gpu_config import shape_config  # isort: skip
from gpu_step import random_policy, random_rollouts  # isort: skip

pytestmark = [pytest.mark.fake_cuda, pytest.mark.filterwarnings("ignore:Accessing the data poi")]
PROMPTS = gpu_checks.drawn(300)[0].prompt_ids[:12], tuple(range(2, 9))
WAITING, ONCE = ("update._gradients", "update._one_update", "update_stats.summarise"), (1, 1, 1)


def policy_and_config(**changes):
    options = Namespace(device="cuda", toy=True, shape="toy", set=[])
    policy, config = random_policy(shape_config(options, changes))
    if config.update.activation_checkpointing:
        policy.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    return policy, config


@pytest.mark.parametrize(("changes", "waits"), [
    ({}, ONCE), ({"model.tuning": "full", "model.dtype": "float32"}, ONCE),
    ({"kl_beta": 0.1}, ONCE), ({"entropy_beta": 0.1}, ONCE),
    ({"importance": "token_truncate"}, ONCE), ({"aggregation": "token_mean"}, ONCE),
    ({"activation_checkpointing": True}, ONCE), ({"epochs": 2, "minibatches": 2}, (4, 4, 4)),
    ({"micro_batch_tokens": 40}, (1, 1, 4)),  # of 4 micro-batches
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kernel", [True, False], ids=["unequal lengths", "padded"])
def test_an_update(changes, waits, kernel, monkeypatch):
    monkeypatch.setattr(attention, "takes_unequal_lengths", lambda *_: kernel)
    changes = {key if "." in key else f"update.{key}": each for key, each in changes.items()}
    with fake_cuda() as card:
        policy, config = policy_and_config(**changes, prompts_per_step=2)
        kept = random_rollouts(PROMPTS[0], [30, 4, 17, 1], policy.vocabulary)
        kept += random_rollouts(PROMPTS[1], [3, 4], policy.vocabulary)
        optimizer, signs = make_optimizer(policy, config.update), np.tile([1.0, -1.0], 3)
        card.waits.clear()
        update.update(UpdateContext(policy, config), optimizer, kept, signs, [4, 2], 1)
    assert card.waits == dict(zip(WAITING, waits, strict=True))


@pytest.mark.parametrize(("n", "leave"), [(1, 0), (8, 7)])
def test_decoding(n, leave):
    """All but one have stopped."""
    with fake_cuda() as card:
        policy, _ = policy_and_config()
        engine = TransformersEngine(policy, 64, lambda: None)
        card.waits.clear()
        [group] = engine.generate(GenerationRequest(PROMPTS[:1], n, Sampling(1.0, 8), [1]))
    assert [len(rollout.completion_ids) for rollout in group] == [1] * n  # what is read is 1
    waits = {place.rpartition(".")[2]: count for place, count in card.waits.items()}
    assert waits.pop("_decode") == 1 + 8 + leave  # its uniforms, each token, who leaves
    assert waits == {"_prefill": 3, "update": 4, "_rollouts": 4}  # 4: an empty cache of two layers
