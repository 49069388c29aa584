"""AdamW over what is trained, its learning rate, and its state as files without pickle."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from pods.config import UpdateConfig
from pods.policy.load import Policy
from pods.policy.sharding import gather, own, part


def make_optimizer(policy: Policy, update: UpdateConfig) -> torch.optim.AdamW:
    """AdamW over what is trained."""
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    beta1, beta2 = update.betas
    return torch.optim.AdamW(
        trained, lr=update.lr, betas=(beta1, beta2), weight_decay=update.weight_decay,
        fused=False,  # it writes to weights without `Policy.version` growing
    )  # fmt: skip


def trained(optimizer: torch.optim.AdamW) -> list[Tensor]:
    """The parameters that the optimizer moves."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextmanager
def all_or_nothing(optimizer: torch.optim.AdamW, several: bool) -> Iterator[None]:
    """If the block raises, weights and optimizer state are again what they were before it.

    Args:
        optimizer: its gradients are dropped too.
        several: the block makes more than one update, so that a copy has to be kept.
    """
    weights = [parameter.detach().clone() for parameter in trained(optimizer)] if several else []
    state = copy.deepcopy(optimizer.state_dict()) if several else {}
    try:
        yield
    except BaseException:
        optimizer.zero_grad()
        if several:
            with torch.no_grad():
                for parameter, before in zip(trained(optimizer), weights, strict=True):
                    parameter.copy_(before)
            optimizer.load_state_dict(state)
        raise


def nonfinite(optimizer: torch.optim.AdamW) -> str | None:
    """What this process has of weights and Adam's state and is NaN or infinite; None if nothing."""
    states = [t for entry in optimizer.state.values() for t in entry.values()]
    for name, tensors in (("a weight", trained(optimizer)), ("the optimizer's state", states)):
        if not all(bool(torch.isfinite(own(tensor)).all()) for tensor in tensors):
            return f"{name} is NaN or infinite"
    return None


def save_optimizer(optimizer: torch.optim.AdamW, path: Path, leads: bool = True) -> None:
    """Write Adam's moments and step counts as safetensors, `index.name` each.

    Args:
        optimizer: of the policy.
        path: of the file.
        leads: whether this process writes; a state that is spread needs all of them.
    """
    state = optimizer.state_dict()["state"]
    tensors = {f"{i}.{name}": t for i, entry in state.items() for name, t in entry.items()}
    tensors = gather(tensors, keep=leads)
    if leads:
        save_file(tensors, path)


def restore_optimizer(optimizer: torch.optim.AdamW, path: Path) -> None:
    """Read back what `save_optimizer` wrote."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = trained(optimizer)
    with safe_open(path, "pt") as file:
        for key in file.keys():  # noqa: SIM118  (not a dict)
            index, _, name = key.partition(".")
            tensor = part(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def learning_rate(update: UpdateConfig, step: int) -> float:
    """The learning rate of step 1, 2, ...: linear warm-up, then constant, linear or cosine to 0."""
    if step <= update.warmup_steps:
        return update.lr * step / update.warmup_steps
    if update.schedule == "constant":
        return update.lr
    assert update.schedule_steps is not None
    length = update.schedule_steps - update.warmup_steps
    left = max(0.0, 1.0 - (step - 1 - update.warmup_steps) / length)
    if update.schedule == "linear":
        return update.lr * left
    return update.lr * (1 - math.cos(math.pi * left)) / 2
