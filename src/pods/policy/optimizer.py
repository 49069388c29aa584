"""AdamW over the trained weights, its learning rate, and its state as files without pickle."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.autograd.graph import increment_version

from pods.config.method_keys import UpdateConfig
from pods.policy.fsdp import gather_on_host, local_shard, shard_like
from pods.policy.policy import Policy


def make_optimizer(policy: Policy, update: UpdateConfig) -> torch.optim.Optimizer:
    """Create AdamW over the weights that are trained."""
    trained = [weight for weight in policy.model.parameters() if weight.requires_grad]
    first, second = update.betas
    optimizer = torch.optim.AdamW(
        trained, lr=update.lr, betas=(first, second), weight_decay=update.weight_decay
    )
    # a step on shards by foreach, torch's choice on a card, would leave `weights_version` as it was
    optimizer.register_step_post_hook(lambda *_: increment_version(trained))
    return optimizer


def trained_weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """List the parameters that the optimizer moves."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextmanager
def rolled_back_on_error(optimizer: torch.optim.Optimizer, keep_copy: bool) -> Iterator[None]:
    """Restore weights and optimizer state if the block raises, and drop the gradients.

    `keep_copy`, of both, is needed if the block makes more than one update.
    """
    weights: list[Tensor] = []
    state: dict[str, Any] = {}
    if keep_copy:
        weights = [weight.detach().clone() for weight in trained_weights(optimizer)]
        state = copy.deepcopy(optimizer.state_dict())
    try:
        yield
    except BaseException:
        optimizer.zero_grad()
        if keep_copy:
            with torch.no_grad():
                for parameter, before in zip(trained_weights(optimizer), weights, strict=True):
                    parameter.copy_(before)
            optimizer.load_state_dict(state)
        raise


def nonfinite(optimizer: torch.optim.Optimizer) -> str | None:
    """Describe NaN or infinity in this process's weights and Adam's state; None without any."""
    weights = trained_weights(optimizer)
    states = [
        value
        for entry in optimizer.state.values()
        for value in entry.values()
        if isinstance(value, Tensor)
    ]
    device = weights[0].device
    if not _all_finite(weights, device):
        return "a weight is NaN or infinite"
    if not _all_finite(states, device):
        return "the optimizer's state is NaN or infinite"

    return None


def _all_finite(tensors: Sequence[Tensor], device: torch.device) -> bool:
    finite = [torch.isfinite(local_shard(tensor)).all().to(device) for tensor in tensors]
    return not finite or bool(torch.stack(finite).all())  # wait for a card once


def save_optimizer(optimizer: torch.optim.Optimizer, path: Path, is_main: bool = True) -> None:
    """Write Adam's moments and step counts as safetensors, named `index.name`.

    If the state is sharded, all processes must call this; only the main one writes.
    """
    tensors = {}
    for index, parameter in enumerate(trained_weights(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{index}.{name}"] = value

    gathered = gather_on_host(tensors, keep=is_main)
    if is_main:
        save_file(gathered, path)


def restore_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Read back what `save_optimizer` wrote."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = trained_weights(optimizer)
    with safe_open(path, "pt") as file:
        for key in file.keys():  # noqa: SIM118  (not a dict)
            index, _, name = key.partition(".")
            tensor = shard_like(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = tensor

    restored = optimizer.state_dict()
    restored["state"] = state
    optimizer.load_state_dict(restored)


def learning_rate(update: UpdateConfig, step: int) -> float:
    """Return the rate of step 1, 2, ...: linear warm-up, then constant, linear or cosine to 0.

    The warm-up begins at lr / warmup_steps, or at 0 as transformers' schedules do.
    """
    if step <= update.warmup_steps:
        return update.lr * (step - update.warmup_from_zero) / update.warmup_steps
    if update.schedule == "constant":
        return update.lr
    assert update.schedule_steps is not None

    length = update.schedule_steps - update.warmup_steps
    left = max(0.0, 1.0 - (step - 1 - update.warmup_steps) / length)
    if update.schedule == "linear":
        return update.lr * left
    return update.lr * (1 - math.cos(math.pi * left)) / 2
