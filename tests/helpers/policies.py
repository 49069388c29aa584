"""Small policies, their rollouts and updates."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from compose import composed
from torch.nn.functional import rms_norm
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pods.policy import update
from pods.policy.policy import load
from pods.policy.scoring import UpdateContext
from pods.runs.paths import weights_source
from pods.types import Rollout

TEXTS = [
    ("7+8?", "7+8=5;#5"),
    ("1-3+1+7?", "1-3=8;8+1=9;9+7=6;#6"),
    ("5+0+2?", "#"),
    ("9-1?", "9-1=8;#8"),
    ("7+8?", "7+8=4;7+8=5;#5"),
    ("7+8?", "#"),
]
ADVANTAGES = np.array([1.0, -0.5, 2.0, -1.5, 0.75, -2.0])


def make(*overrides):
    config = composed(*overrides)
    return config, load(config)


def untrained(config, dtype=torch.float32, **settings):
    """The model that a run starts from, as transformers loads it."""
    source = weights_source(config.model)
    return AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **settings)


def save_other(folder, architecture, **settings):
    """Save a small random model of another architecture, with the tiny model's tokenizer."""
    config = AutoConfig.for_model(
        architecture, vocab_size=19, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, pad_token_id=0, **settings)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    disturb(model.parameters(), 0.1)  # biases begin at 0
    model.save_pretrained(folder)
    load(composed()).tokenizer.save_pretrained(folder)


def disturbed(*overrides, size=0.02, double=False):
    """A policy whose trained weights were moved, in float64 if asked."""
    config, policy = make(*overrides)
    for model in filter(None, (policy.model, policy.reference_model)) if double else ():
        to_double(model)
    disturb(trained(policy), size)
    return config, policy


def to_double(model):
    """Make a Llama compute all in float64, in place: its norms would go through float32."""
    model.double()
    for layer in model.modules():
        if isinstance(layer, LlamaRMSNorm):
            weight, eps = layer.weight, layer.variance_epsilon
            layer.forward = partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
    return model


def rollouts(policy):
    """The rollouts of TEXTS; the engine's log-probs are 0 in them."""
    encode = partial(policy.tokenizer.encode, add_special_tokens=False)
    encoded = [(tuple(encode(prompt)), tuple(encode(text)), text) for prompt, text in TEXTS]
    return [
        Rollout(prompt, ids, np.zeros(len(ids), np.float32), text, True)
        for prompt, ids, text in encoded
    ]


def run_update(
    config, policy, optimizer, kept=None, advantages=ADVANTAGES, step=1, check=lambda: None,
    sizes=None,
):  # fmt: skip
    context, kept = UpdateContext(policy, config, check=check), kept or rollouts(policy)
    return update.update(context, optimizer, kept, advantages, sizes or [1] * len(kept), step)


def plain_logits(model, rollout, temperature=1.0):
    """(T, V) before each token of one completion, by transformers' own forward pass."""
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
    return model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1] / temperature


def plain_logprobs(policy, rollout, temperature=1.0):
    logprobs = plain_logits(policy.causal_lm, rollout, temperature).log_softmax(-1)
    return logprobs.gather(1, torch.tensor(rollout.completion_ids)[:, None])[:, 0]


def sgd_step(config, policy, kept=None, **options):
    """How an update by SGD that clips nothing moves the weights, and its statistics."""
    config = replace(config, update=replace(config.update, grad_clip=1e9))
    before, optimizer = flat(trained(policy)), torch.optim.SGD(trained(policy), lr=1.0)
    stats = run_update(config, policy, optimizer, kept, **options)
    return flat(trained(policy)) - before, stats


def disturb(parameters, size=0.02):
    """Move weights away from their start, always in the same way."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in parameters:
            p.add_(size * torch.randn(p.shape, generator=generator, dtype=p.dtype))


def trained(policy):
    return [p for p in policy.model.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])
