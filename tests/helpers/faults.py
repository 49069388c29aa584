"""A rule for jobs in tests; with FAULT set, its first call breaks the engine of the process.

FAULT=raise: vLLM's next step raises; hang: it never returns; stale: a sync brings nothing over.
"""

import os
import time

from pods.method.rules import max_variance


def rule(group, m, rng):
    fault = os.environ.pop("FAULT", None)
    if fault is not None:
        FAULTS[fault]()
    return max_variance(group, m, rng)


def _raise():
    from vllm.v1.engine.core import EngineCore

    def post_step(engine, model_executed):
        raise RuntimeError("injected")

    EngineCore.post_step = post_step


def _hang():
    from vllm.v1.engine.core import EngineCore

    EngineCore.post_step = lambda engine, model_executed: time.sleep(3600)


def _stale():
    from pods.engines import vllm_engine

    vllm_engine.merge = lambda *arguments: 1.0


FAULTS = {"raise": _raise, "hang": _hang, "stale": _stale}
