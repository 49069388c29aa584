"""A rule for jobs in tests; with FAULT set, its first call breaks the engine of the process.

FAULT=raise: vLLM's next step raises; hang: it never returns; stale: a sync brings nothing over.
"""

import os
import time

from pods.method.downsample import max_variance


def rule(group, m, rng):
    fault = os.environ.pop("FAULT", None)
    if fault is not None:
        FAULTS[fault]()
    return max_variance(group, m, rng)


def _raise():
    from vllm import LLMEngine

    def step(engine):
        raise RuntimeError("injected")

    LLMEngine.step = step


def _hang():
    from vllm import LLMEngine

    LLMEngine.step = lambda engine: time.sleep(3600)


def _stale():
    from pods.rollouts.vllm_engine import VllmEngine

    VllmEngine._merge = lambda engine: 1.0


FAULTS = {"raise": _raise, "hang": _hang, "stale": _stale}
