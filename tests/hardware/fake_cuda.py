"""Tensors that pretend to be on a card, so that code for one runs where there is none.

A tensor on the CPU is real. One on "cuda" has a shape, a dtype and a device but no numbers, and
what is read of it is 1. Each wait of the host for the card is noted by function. torch's own
backward pass asks a driver for streams: here Python walks the graph, and compares each gradient
with what its node expects. torch must be built for CUDA.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from compose import ROOT
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.autograd import Function
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
READS, FINDS, PUTS = aten._local_scalar_dense, aten.nonzero, (aten.index_put_, aten.index_put)
PRODUCTS = (aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.linear)


class FakeCuda(FakeTensorMode):
    """Computes what is on the CPU, and the shapes of what is on "cuda"."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.waits: Counter[str] = Counter()  # of the host for the card, by file and function

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fake = any(isinstance(each, FakeTensor) for each in tree_leaves((args, kwargs)))
        devices = [kwargs.get("device"), *(a for a in args if isinstance(a, torch.device))]
        [device, *_] = [torch.device(each).type for each in devices if each is not None] or [None]
        packet = func.overloadpacket
        copies = packet in (aten._to_copy, aten.to)  # the latter in inference mode
        if copies and device is not None and fake != (device == "cuda"):
            return self._copied(args[0], device, (*args[1:], *kwargs.values()))
        if fake and waits(packet, args):
            self.waits[place()] += 1
        if fake and packet is READS:
            with unset_fake_temporarily():
                return torch.ones((), dtype=args[0].dtype).item()
        if fake and packet is FINDS:  # all are true but one, so that decoding sees a sequence end
            return self._made((max(1, args[0].numel() - 1), args[0].dim()), torch.long)
        if fake or device == "cuda" or func is torch.ops.prim.device.default:
            return super().dispatch(func, types, args, kwargs)
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    def _copied(self, tensor: Tensor, device: str, settings: tuple[Any, ...]) -> Tensor:
        """Copy to or from the card, for which the host waits unless it is told not to."""
        if not any(each is True for each in settings):
            self.waits[place()] += 1
        [dtype, *_] = [*(s for s in settings if isinstance(s, torch.dtype)), tensor.dtype]
        with unset_fake_temporarily():
            read = torch.ones(tensor.shape, dtype=dtype)
        return self._made(tensor.shape, dtype) if device == "cuda" else read

    def _made(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        settings = {"dtype": dtype, "device": torch.device("cuda")}
        return super().dispatch(aten.empty.memory_format, (), (list(shape),), settings)  # type: ignore[no-any-return]


def waits(packet: Any, args: Any) -> bool:
    """Tell whether an operation on the card makes the host wait; products must have one dtype."""
    tensors = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
    assert packet not in PRODUCTS or len({each.dtype for each in tensors}) == 1, f"{packet}: dtypes"
    if packet is aten.index or packet in PUTS:
        indices = [each for each in tree_leaves(args[1]) if isinstance(each, Tensor)]
        masks = packet in PUTS and any(each.dtype == torch.bool for each in indices)
        return masks or any(each.device.type == "cpu" for each in indices)
    copied = packet is aten.copy_ and len({each.device.type for each in tensors}) > 1
    return packet in (READS, FINDS) or (copied and True not in args[2:])


def place() -> str:
    """Return the file and function of the package that the innermost call comes from."""
    for frame, _ in traceback.walk_stack(None):
        path, function = Path(frame.f_code.co_filename), frame.f_code.co_qualname
        if path.is_relative_to(ROOT / "src"):
            return f"{path.stem}.{function.partition('.<locals>')[0]}"
    return "elsewhere"


@contextmanager
def fake_cuda() -> Iterator[FakeCuda]:
    """Let "cuda" be a pretended card."""
    apply, tensor = Function.apply.__func__, torch.tensor  # type: ignore[attr-defined]

    def flagged(cls: Any, *args: Any, **settings: Any) -> Any:
        output = apply(cls, *args, **settings)
        node = (output[0] if isinstance(output, tuple) else output).grad_fn
        if node is not None:
            node.is_tensor = [isinstance(each, Tensor) for each in args]
        return output

    def made(data: Any, *, device: Any = None, **settings: Any) -> Tensor:
        modes = _get_current_function_mode_stack()  # one is `with torch.device(...)`
        places = [device, *(m.device for m in reversed(modes) if hasattr(m, "device")), "cpu"]
        with unset_fake_temporarily():
            result = tensor(data, device="cpu", **settings)
        return result.to(next(place for place in places if place is not None))

    with (
        FakeCuda() as mode,
        patch.object(torch.nn.Module, "_apply", converted),
        patch.object(Function, "apply", classmethod(flagged)),
        patch.object(torch, "tensor", made),
        patch.object(Tensor, "backward", backward),
        patch.object(FakeTensor, "tolist", lambda tensor: tensor.cpu().tolist()),
    ):
        yield mode


def converted(module: Any, convert: Any, recurse: bool = True) -> Any:
    """Convert a module's weights as its `_apply` does, which cannot swap a real one for a fake."""
    for each in module.modules() if recurse else [module]:
        for name, weight in each._parameters.items():
            if weight is not None:
                with torch.no_grad():
                    moved = convert(weight)
                each._parameters[name] = torch.nn.Parameter(moved, weight.requires_grad)
        for name, buffer in each._buffers.items():
            each._buffers[name] = None if buffer is None else convert(buffer)
    return module


def backward(loss: Tensor) -> None:
    """Add up the gradients of a loss as `Tensor.backward` does, from node to node."""
    root = loss.grad_fn
    seen, stack, waiting = {root}, [root], Counter[Any]()
    while stack:
        for after, _ in stack.pop().next_functions:  # type: ignore[union-attr]
            waiting[after] += 1
            if after is not None and after not in seen:
                seen.add(after)
                stack.append(after)
    ready, inputs = [root], {root: {0: torch.ones_like(loss)}}
    with torch.no_grad():
        while ready:
            node: Any = ready.pop()
            got = inputs.pop(node, {})
            outputs = _gradients(node, got) if got else [None] * len(node.next_functions)
            for (after, index), gradient in zip(node.next_functions, outputs, strict=True):
                if after is not None and gradient is not None:
                    at = inputs.setdefault(after, {})
                    at[index] = at[index] + gradient if index in at else gradient
                waiting[after] -= 1
                if after is not None and not waiting[after]:
                    ready.append(after)


def _gradients(node: Any, got: dict[int, Tensor]) -> list[Tensor | None]:
    """Call a node with the gradients of its outputs, which must be what it expects."""
    name = node.name()
    if name.endswith("AccumulateGrad"):
        weight = node.variable
        gradient = _fitting(weight, got[0], name)
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return []
    expected = node._input_metadata
    given = [_fitting(expected[i], g, name) if (g := got.get(i)) is not None else None
             for i in range(len(expected))]  # fmt: skip
    outputs = (node if callable(node) else node.apply)(*given)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    flags = getattr(node, "is_tensor", [True] * len(outputs))
    return [output for output, flag in zip(outputs, flags, strict=True) if flag]


def _fitting(expected: Any, gradient: Tensor, name: str) -> Tensor:
    """Sum a gradient to the shape that is expected; device and dtype must agree."""
    gradient = gradient.sum_to_size(tuple(expected.shape))
    found, due = ((each.device.type, each.dtype) for each in (gradient, expected))
    assert found == due, f"{name}: {found}, not {due}"
    return gradient
