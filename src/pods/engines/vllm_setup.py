"""Start vLLM in this process, with the model, memory and batch sizes of a run's config."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from huggingface_hub import snapshot_download
from torch import Tensor
from vllm import EngineArgs, LLMEngine

from pods.config.schema import Config
from pods.runs.paths import weights_source
from pods.system.machine import rank

GIB = 2**30
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
    try:
        with torch.random.fork_rng(devices=[]):  # vLLM seeds the process
            return LLMEngine.from_engine_args(EngineArgs(**arguments(config)))
    except ValueError as error:  # pydantic's have several lines
        lines = str(error).splitlines()
        reason = next((line for line in lines if "Value error" in line), lines[0])
        raise ValueError(f"engine=vllm: vLLM does not start: {reason.strip()}") from error


def arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of `EngineArgs` for a run."""
    engine = config.engine
    sampling = config.sampling
    on_cpu = config.hardware.device == "cpu"
    longest = sampling.max_prompt_tokens + sampling.max_completion_tokens
    source = weights_source(config.model)
    if not Path(source).is_dir():
        source = snapshot_download(source, local_files_only=True)
    settings: dict[str, Any] = {
        "model": source,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # ignore the model's sampling settings
        "dtype": engine.dtype,
        "logprobs_mode": "raw_logprobs",  # among all ids; see `TemperedLogits`
        "max_model_len": longest,
        "max_num_seqs": engine.max_rows,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": int(engine.kv_gb * GIB),
        "gpu_memory_utilization": 0.01,  # kv_gb decides; vLLM would refuse if less were free
        "enforce_eager": on_cpu or engine.graphs == "none",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    if rank() is not None:  # each process has its own engine
        settings["distributed_executor_backend"] = "external_launcher"

    if on_cpu:
        settings["block_size"] = CPU_BLOCK
        settings["max_num_batched_tokens"] = max(engine.max_rows, CPU_PREFILL_TOKENS)
        settings["enable_prefix_caching"] = sampling.max_prompt_tokens > CPU_BLOCK
    elif engine.dtype != "float32":  # sums of logits in float32, as the trainer's are
        settings["hf_overrides"] = {"head_dtype": "float32"}

    if engine.sync != "merged":
        settings["enable_lora"] = True
        settings["max_loras"] = 1
        settings["max_lora_rank"] = min(r for r in LORA_RANKS if r >= config.model.lora.r)
        if not on_cpu:  # no second set of graphs for requests without the adapter: there are none
            settings["compilation_config"] = {"cudagraph_specialize_lora": False}

    return settings


@dataclass
class TemperedLogits:
    """Makes vLLM's logits those of the policy at the sampling temperature, without padding.

    vLLM's raw log-probs ignore the temperature, and its processed ones are among the `top_k`
    likeliest ids alone. With the logits divided here, and vLLM's own temperature left at 1, its raw
    ones are the trainer's.
    """

    vocabulary: int
    """Ids from here on pad the output layer, and are never drawn."""
    temperature: float = 1.0
    """Of the present call of the engine; 0 is greedy, and leaves the logits as they are."""

    def watch(self, model: Any) -> None:
        """Change the logits of a model in vLLM from now on.

        Raises:
            ValueError: the model makes its logits in another way than vLLM's models do.
        """
        # By its name, since a wrapper for adapters calls what it wraps without its hooks. A model
        # that also takes images has it in its language model. The outermost comes first.
        named = (part for part in model.modules() if hasattr(part, "logits_processor"))
        owner = next(named, None)
        if owner is None:
            raise ValueError(
                f"engine=vllm: {type(model).__name__} has no logits_processor, so the log-probs of "
                "its tokens cannot be had; engine=transformers needs none"
            )
        owner.logits_processor.register_forward_hook(self.change)

    def change(self, layer: Any, inputs: Any, logits: Tensor) -> Tensor:
        """Return the logits, (R, V), divided by the temperature; padding becomes -inf."""
        if self.temperature not in (0, 1):
            logits = logits.float() / self.temperature
        logits[..., self.vocabulary :] = -torch.inf
        return logits


def facts(vllm: LLMEngine) -> dict[str, Any]:
    """Return which of its parts vLLM has chosen; `environment.json` records them."""
    settings = vllm.vllm_config
    layers = settings.compilation_config.static_forward_context.values()
    backends = {layer.attn_backend.get_name() for layer in layers if hasattr(layer, "attn_backend")}
    return {
        "model_runner": "v2" if settings.use_v2_model_runner else "v1",
        "async_scheduling": bool(settings.scheduler_config.async_scheduling),
        "attention": sorted(backends),
        "eager": bool(settings.model_config.enforce_eager),
        "cuda_graphs": settings.compilation_config.cudagraph_mode.name,
        "compilation": settings.compilation_config.mode.name,
    }
