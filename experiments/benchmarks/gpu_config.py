"""The configs of gpu.py, whose weights are random and have one of the shapes."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.system.machine import cores

OVERRIDES = {
    "shape": [
        "task=chainsum", "model=qwen2_5_3b", "hardware=h200", "arm=pods",
        "nm=n64_m16", "prompts_per_step=1", "tracking=none", "engine.kv_gb=8", "engine.max_rows=64",
        "update.micro_batch_tokens=8704", "sampling.max_prompt_tokens=160",
        "sampling.max_completion_tokens=512", "evaluation.repeats=1", "evaluation.questions=1",
    ],  # random weights, so that the task decides nothing
    "chainsum": ["task=chainsum", "model=tiny", "arm=pods", "nm=n64_m16", "tracking=none",
                 "evaluation.repeats=1"],  # of tests/hardware/gpu_checks.py
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-3b": {
        "model_type": "qwen2", "hidden_size": 2048, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 11_008,
        "vocab_size": 151_936, "tie_word_embeddings": True,
    },
    "toy": {
        "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192,
        "vocab_size": 336, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""By `model.name`, the keys of a model's config.json that decide its sizes."""
TOY: dict[str, Any] = {
    "budget.train_seconds": 1.0, "evaluation.questions": 4, "nm.n": 16, "nm.m": 4,
    "sampling.max_completion_tokens": 16, "update.micro_batch_tokens": 256, "hardware.threads": 1,
}  # fmt: skip
ON_CPU: dict[str, Any] = {
    "hardware.device": "cpu", "hardware.threads": cores(), "model.dtype": "float32",
    "engine.dtype": "float32", "engine.sync": "merged", "engine.kv_gb": 1.0,
}  # fmt: skip

QWEN_WORDS = 151_665  # that Qwen2.5's tokenizer knows; its models pad the output layer beyond it


class Skipped(Exception):
    """A part cannot run on this machine; the message is a sentence that says why."""


def shape_config(options: Namespace, changes: Mapping[str, Any]) -> Config:
    """Return the config of random weights of the shape of gpu.py's command line, with changes."""
    model = {"model.hub": "random/weights", "model.path": None, "model.name": options.shape}
    device = ON_CPU if options.device == "cpu" else {"hardware.device": "cuda"}
    changes = {**model, **device, **(TOY if options.toy else {}), **changes}
    return read("shape", changes, options.set)


def read(name: str, changes: Mapping[str, Any], words: Sequence[str] = ()) -> Config:
    """Return one of the configs with changes, such as `{"nm.n": 16}` or `nm.n=16`."""
    changed = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
    return validate(compose([*OVERRIDES[name], *changed, *words]))
