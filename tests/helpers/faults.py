"""A rule for jobs in tests; with FAULT set, its first call in a step breaks the engine.

FAULT=raise: vLLM's next step raises; hang: it never returns; stale: a sync brings nothing over.
"""

import os
import time

from pods.method.rules import max_variance


def rule(group, m, rng):
    tried = len(group.rollouts[0].prompt_ids) == 1  # before the engine is there
    if not tried and (fault := os.environ.pop("FAULT", None)):
        break_engine(fault)
    return max_variance(group, m, rng)


def break_engine(fault):
    from vllm.v1.engine.core import EngineCore

    from pods.engines import vllm_engine

    def fail(engine, model_executed):
        raise RuntimeError("injected")

    if fault == "stale":
        vllm_engine.merge = lambda *arguments: 1.0
    else:
        EngineCore.post_step = fail if fault == "raise" else lambda *_, **__: time.sleep(3600)
