"""What a card does with the products of a shape: rates, and kernels by name."""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from gpu_config import SHAPES
from torch.profiler import ProfilerActivity, profile

from pods.policy.policy import set_cuda_math

ROUNDS = 5
TOKENS = 8192  # of a product: a full micro-batch


def probe(options: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Measure products by dtype, and copies; name the kernels."""
    set_cuda_math()
    device, sizes = options.device, SHAPES[options.shape]
    tokens = 64 if options.toy else TOKENS
    card = torch.cuda.get_device_properties(0) if device == "cuda" else device
    results: dict[str, Any] = {"card": str(card), "cuda": torch.version.cuda}
    for name in ("bfloat16", "tf32", "float32"):
        results.setdefault("gemm_tflops", {})[name] = gemm_tflops(sizes, name, device, tokens)
        yield results
    results["bytes_per_second"] = bandwidth(device)
    results["kernels"] = {"gemm bfloat16": kernels(product(sizes, "bfloat16", device, tokens))}
    yield results


def seconds_of(work: Callable[[], object], device: str, rounds: int = ROUNDS) -> float:
    """Return the median seconds of some rounds of work, after one that warms up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def kernels(work: Callable[[], object], count: int = 5) -> list[dict[str, Any]]:
    """Return the kernels (on a CPU torch's operations) that take the longest, by name."""
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with profile(activities=activities) as profiled:
        work()
        if on_gpu:
            torch.cuda.synchronize()
    microseconds = {
        event.key: (event.self_device_time_total if on_gpu else event.self_cpu_time_total,
                    event.count)
        for event in profiled.key_averages()
        if not on_gpu or event.device_type == torch.profiler.DeviceType.CUDA
    }  # fmt: skip
    longest = sorted(microseconds.items(), key=lambda each: -each[1][0])[:count]
    return [{"name": name[:160], "milliseconds": time_in / 1000, "calls": calls}
            for name, (time_in, calls) in longest]  # fmt: skip


def product(sizes: Mapping[str, Any], name: str, device: str, tokens: int) -> Callable[[], object]:
    """Return the product of a gated layer for so many tokens, in a dtype."""
    dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
    states = torch.randn(tokens, sizes["hidden_size"], device=device, dtype=dtype)
    weight = torch.randn(sizes["intermediate_size"], sizes["hidden_size"], device=device,
                         dtype=dtype)  # fmt: skip
    return lambda: states @ weight.T


def gemm_tflops(sizes: Mapping[str, Any], name: str, device: str, tokens: int) -> float:
    """Return the rate of that product, 10^12 operations per second; TF32 is off after it."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    seconds = seconds_of(product(sizes, name, device, tokens), device)
    torch.set_float32_matmul_precision("highest")
    return 2 * tokens * sizes["hidden_size"] * sizes["intermediate_size"] / seconds / 1e12


def bandwidth(device: str) -> float:
    """Return the bytes that the device's memory moves per second in a copy."""
    numbers = torch.zeros((2**30 if device == "cuda" else 2**24) // 4, device=device)
    return 2 * 4 * numbers.numel() / seconds_of(numbers.clone, device)
