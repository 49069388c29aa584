"""AdamW over the trained weights, its learning rate, and its state as files without pickle."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    settings = {"lr": update.lr, "betas": (*update.betas,), "weight_decay": update.weight_decay}
    optimizer = torch.optim.AdamW(trained, **settings)  # type: ignore[arg-type]
    # a step on shards by foreach, torch's choice on a card, would leave `weights_version` as it was
    optimizer.register_step_post_hook(lambda *_: increment_version(trained))
    return optimizer


def trained_weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """List the parameters that the optimizer moves."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextmanager
def rolled_back_on_error(optimizer: torch.optim.Optimizer, keep_copy: bool) -> Iterator[None]:
    """Restore weights and optimizer state if the block raises, and drop the gradients.

    `keep_copy`, of both, is needed where the block makes more than one update.
    """
    weights = [p.detach().clone() for p in trained_weights(optimizer)] if keep_copy else []
    state = copy.deepcopy(optimizer.state_dict()) if keep_copy else {}
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
    entries = optimizer.state.values()
    states = [t for entry in entries for t in entry.values() if isinstance(t, Tensor)]
    for name, tensors in (("a weight", weights), ("the optimizer's state", states)):
        finite = [torch.isfinite(local_shard(t)).all().to(weights[0].device) for t in tensors]
        if finite and not bool(torch.stack(finite).all()):  # wait for a card once
            return f"{name} is NaN or infinite"
    return None


def save_optimizer(optimizer: torch.optim.Optimizer, path: Path, is_main: bool = True) -> None:
    """Write Adam's moments and step counts as safetensors, named `index.name`.

    If the state is sharded, all processes must call this; only the main one writes.
    """
    tensors = {
        f"{i}.{name}": value
        for i, parameter in enumerate(trained_weights(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }
    tensors = gather_on_host(tensors, keep=is_main)
    if is_main:
        save_file(tensors, path)


def restore_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Read back what `save_optimizer` wrote."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = trained_weights(optimizer)
    with safe_open(path, "pt") as file:
        for key in file.keys():  # noqa: SIM118  (not a dict)
            index, _, name = key.partition(".")
            tensor = shard_like(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


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
