"""What must hold of the update's kernels on a card: plain functions of a device."""

from typing import Any
from unittest.mock import create_autospec, patch

import torch
from gpu_checks import BFLOAT16, apart, below
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pods.policy.attention import attend, take_rows
from pods.policy.packing import Layout, MicroBatch, pack
from pods.types import Rollout

HEADS, KEY_HEADS, WIDTH = 6, 2, 16
PROMPTS, LENGTHS = (5, 3, 1), ((4, 1, 7), (2, 2), (3,))
KERNEL = "torch.nn.attention.varlen.varlen_attn"
LONG = (150, 40), ((300, 17, 129), (64, 1))  # more than one tile of a kernel


def twin(
    query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, key_ends: Tensor,
    most_queries: int, most_keys: int, *, scale: float, window_size: Any, enable_gqa: bool = True,
) -> Tensor:  # fmt: skip
    """Attend as torch's kernel for unequal lengths, one sequence at a time, in float32."""
    assert window_size == (-1, 0) and enable_gqa
    queries, keys = query_ends.diff().tolist(), key_ends.diff().tolist()
    assert (max(queries), max(keys)) == (most_queries, most_keys)
    repeats = query.shape[1] // key.shape[1]
    outputs = []
    key, value = (states.repeat_interleave(repeats, 1) for states in (key, value))
    pairs = ((query, queries), (key, keys), (value, keys))
    wide = (states.float().transpose(0, 1).split(counts, dim=1) for states, counts in pairs)
    for q, k, v in zip(*wide, strict=True):
        size = (q.shape[1], k.shape[1])
        seen = torch.ones(size, dtype=torch.bool, device=q.device).tril(size[1] - size[0])
        output = scaled_dot_product_attention(q[None], k[None], v[None], seen, scale=scale)
        outputs.append(output[0].transpose(0, 1))
    return torch.cat(outputs).to(query.dtype)


def row(prompts: Any = PROMPTS, lengths: Any = LENGTHS) -> MicroBatch:
    """Pack prompts and their completions; of a token only its place matters."""
    rollouts, groups = [], []
    for i, (prompt, many) in enumerate(zip(prompts, lengths, strict=True)):
        groups.append(list(range(len(rollouts), len(rollouts) + len(many))))
        rollouts += [Rollout((i,) * prompt, (0,) * n, None, "", True) for n in many]  # type: ignore[arg-type]
    return pack(rollouts, groups)


def states_of(batch: MicroBatch, device: str, dtype: torch.dtype) -> list[Tensor]:
    """Random queries, keys and values as a layer passes them, always the same, far from uniform."""
    torch.manual_seed(0)
    shapes = [(1, len(batch.ids), heads, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    return [(2 * torch.randn(shape)).to(device, dtype) for shape in shapes]


def output_and_gradients(batch: MicroBatch, states: list[Tensor]) -> list[Tensor]:
    """What `attend` makes of a packed row, and its gradient in queries, keys and values."""
    leaves = [each.clone().requires_grad_() for each in states]
    layout = Layout(batch.spans, leaves[0].device)
    inputs = [leaf.transpose(1, 2) for leaf in leaves]
    output, _ = attend(torch.nn.Module(), *inputs, None, scaling=0.3, layout=layout)
    slopes = torch.linspace(-1, 2, output.numel(), device=output.device).view(output.shape)
    return [output.detach(), *torch.autograd.grad((output.float() * slopes).sum(), leaves)]


def the_kernel_is_its_twin(device: str) -> None:
    """Output and gradients of the card's kernel, against its twin and padded float32."""
    for batch in (row(), row(*LONG)):
        states = states_of(batch, device, torch.bfloat16)
        found = output_and_gradients(batch, states)
        with patch(KERNEL, create_autospec(twin, side_effect=twin)) as called:
            expected = output_and_gradients(batch, states)
        assert called.call_count == 1, "the padded path ran instead of the kernel for rows"
        padded = output_and_gradients(batch, [each.float() for each in states])
        for one, other, third in zip(found, expected, padded, strict=True):
            below(apart(one.float(), other.float()), BFLOAT16, "attention, to its twin")
            below(apart(one.float(), third), BFLOAT16, "attention, to padded float32")


def rows_are_those_of_the_cpu(device: str) -> None:
    """Rows, and a gradient where one row is taken 300 times: sums of bfloat16 would stop early."""
    indices = torch.tensor([[0] * 300, [*range(5)] * 60])
    gradients = []
    for place, dtype in ((device, torch.bfloat16), ("cpu", torch.float32)):
        torch.manual_seed(0)
        states = torch.randn(5, 8).to(torch.bfloat16).to(place, dtype).requires_grad_()
        taken = take_rows(states, indices.to(place))
        assert taken.shape == (2, 300, 8) and torch.equal(taken[1, 3], states[3])
        (taken.float() * 1.01).sum().backward()
        gradients.append(states.grad.float().cpu())  # type: ignore[union-attr]
    below(apart(*gradients), 0.01, "gradient")


CHECKS = (the_kernel_is_its_twin, rows_are_those_of_the_cpu)
