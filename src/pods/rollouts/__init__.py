"""Engines: they turn prompts into rollouts from the current policy."""

import logging
import os

os.environ |= {  # here, so that it is there before vLLM loads, whoever loads it
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",  # it would call home
    "VLLM_HOST_IP": "127.0.0.1",
}
level = os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR").upper()
logging.getLogger("vllm").setLevel(logging.getLevelNamesMapping().get(level, logging.ERROR))
