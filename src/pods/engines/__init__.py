"""Engines turn prompts into rollouts, sampled from the policy's current weights.

Start reading in `base.py` (the protocol), then `transformers_engine.py`. Where the weights come
from is in `policy/export.py`; grading and selection of rollouts are not done here.
"""

import logging
import os

os.environ |= {  # before vLLM loads, whoever loads it
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",  # it would send usage statistics
    "VLLM_HOST_IP": "127.0.0.1",
}
level = os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR").upper()
logging.getLogger("vllm").setLevel(logging.getLevelNamesMapping().get(level, logging.ERROR))
