"""What vLLM is told of model, memory and batches when it starts."""

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from huggingface_hub import snapshot_download
from vllm import EngineArgs, LLMEngine

from pods.config import Config
from pods.machine import launched
from pods.runs.home import weights

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those vLLM has room for
GIB = 2**30
CPU_PREFILL_TOKENS = 2048  # a forward pass takes seconds: a signal is heard between them
CPU_BLOCK = 32  # tokens: prompts are shared in whole blocks, and its CPU default is 128


def start_vllm(config: Config) -> LLMEngine:
    """Start it on the untrained weights, in this process.

    Raises:
        ValueError: vLLM cannot run this model, or has no room for it.
    """
    # its own affair; here and not at an import, since Hydra undoes what its plugins' imports set
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    if config.hardware.device == "cpu":  # else its sampler compiles a rank that nobody asks for
        torch._dynamo.config.disable = True
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would win over engine.kv_gb
    os.environ["VLLM_BATCH_INVARIANT"] = str(int(config.engine.batch_invariant))
    try:
        with torch.random.fork_rng(devices=[]):  # it seeds the process
            return LLMEngine.from_engine_args(EngineArgs(**arguments(config)))
    except ValueError as error:  # pydantic's have several lines
        lines = str(error).splitlines()
        reason = next((line for line in lines if "Value error" in line), lines[0])
        raise ValueError(f"engine=vllm does not start: {reason.strip()}") from error


def arguments(config: Config) -> dict[str, Any]:
    """What vLLM is told of model, memory and batches."""
    engine, sampling, on_cpu = config.engine, config.sampling, config.hardware.device == "cpu"
    longest = sampling.max_prompt_tokens + sampling.max_completion_tokens
    place = weights(config.model)
    found: dict[str, Any] = {
        "model": place if Path(place).is_dir() else snapshot_download(place, local_files_only=True),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no sampling settings but ours
        "dtype": engine.dtype,
        "logprobs_mode": "processed_logprobs",  # of the distribution that is drawn from
        "max_model_len": longest,
        "max_num_seqs": engine.max_rows,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": None if engine.kv_gb is None else int(engine.kv_gb * GIB),
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    if launched():  # each process has an engine of its own
        found["distributed_executor_backend"] = "external_launcher"
    if on_cpu:
        found |= {"enforce_eager": True, "block_size": CPU_BLOCK,
                  "max_num_batched_tokens": max(engine.max_rows, CPU_PREFILL_TOKENS),
                  "enable_prefix_caching": sampling.max_prompt_tokens > CPU_BLOCK}  # fmt: skip
    if engine.sync == "adapter":
        rank = next(rank for rank in LORA_RANKS if rank >= config.model.lora.r)
        found |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    return found
