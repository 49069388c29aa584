"""Start vLLM in this process, with the model, memory and batch sizes of a run's config."""

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from huggingface_hub import snapshot_download
from vllm import EngineArgs, LLMEngine

from pods.config.schema import Config
from pods.memory.shape import GIB
from pods.runs.paths import weights_source
from pods.system.machine import launched

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the maximum ranks that vLLM offers
CPU_PREFILL_TOKENS = 2048  # a pass takes seconds, and signals are handled between passes
CPU_BLOCK = 32  # tokens; only full blocks of prompts are shared, and vLLM's CPU default is 128


def start_vllm(config: Config) -> LLMEngine:
    """Start vLLM on the untrained weights.

    Raises:
        ValueError: vLLM cannot run this model, or has no room for it.
    """
    # not at import time: Hydra undoes the filters that its plugins' imports set
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    if config.hardware.device == "cpu":  # else its sampler compiles ranks that are not needed
        torch._dynamo.config.disable = True
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would override engine.kv_gb
    os.environ["VLLM_BATCH_INVARIANT"] = str(int(config.engine.batch_invariant))
    try:
        with torch.random.fork_rng(devices=[]):  # vLLM seeds the process
            return LLMEngine.from_engine_args(EngineArgs(**arguments(config)))
    except ValueError as error:  # pydantic's have several lines
        lines = str(error).splitlines()
        reason = next((line for line in lines if "Value error" in line), lines[0])
        raise ValueError(f"engine=vllm: vLLM does not start: {reason.strip()}") from error


def arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of `EngineArgs` for a run."""
    engine, sampling, on_cpu = config.engine, config.sampling, config.hardware.device == "cpu"
    longest = sampling.max_prompt_tokens + sampling.max_completion_tokens
    source = weights_source(config.model)
    if not Path(source).is_dir():
        source = snapshot_download(source, local_files_only=True)
    settings: dict[str, Any] = {
        "model": source,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # ignore the model's sampling settings
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
        settings["distributed_executor_backend"] = "external_launcher"
    if on_cpu:
        settings |= {
            "enforce_eager": True,
            "block_size": CPU_BLOCK,
            "max_num_batched_tokens": max(engine.max_rows, CPU_PREFILL_TOKENS),
            "enable_prefix_caching": sampling.max_prompt_tokens > CPU_BLOCK,
        }
    if engine.sync == "adapter":
        rank = next(rank for rank in LORA_RANKS if rank >= config.model.lora.r)
        settings |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    return settings
