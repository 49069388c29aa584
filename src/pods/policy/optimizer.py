"""AdamW over what is trained, its learning rate, and its state as files without pickle."""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pods.config import UpdateConfig
from pods.policy.load import Policy


def make_optimizer(policy: Policy, update: UpdateConfig) -> torch.optim.AdamW:
    """AdamW over what is trained."""
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    beta1, beta2 = update.betas
    return torch.optim.AdamW(
        trained, lr=update.lr, betas=(beta1, beta2), weight_decay=update.weight_decay
    )


def save_optimizer(optimizer: torch.optim.AdamW, path: Path) -> None:
    """Write Adam's moments and step counts as safetensors, `index.name` each."""
    state = optimizer.state_dict()["state"]
    tensors = {f"{i}.{name}": t for i, entry in state.items() for name, t in entry.items()}
    save_file(tensors, path)


def restore_optimizer(optimizer: torch.optim.AdamW, path: Path) -> None:
    """Read back what `save_optimizer` wrote."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in load_file(path).items():
        index, _, name = key.partition(".")
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
