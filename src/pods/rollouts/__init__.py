"""Engines: they turn prompts into rollouts from the current policy."""

import logging
import os
import warnings

os.environ |= {  # here, so that it is there before vLLM loads, whoever loads it
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",  # it would call home
    "VLLM_HOST_IP": "127.0.0.1",
}
if "VLLM_LOGGING_LEVEL" not in os.environ:
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    logging.getLogger("vllm").setLevel("ERROR")  # it speaks while it loads
warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")  # its own affair
