"""The configs of gpu.py, resolved in advance, so that the GPU machine does not need Hydra.

After a change of conf/, `python experiments/benchmarks/gpu_config.py` rewrites gpu.yaml.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from pods.config.checks import validate
from pods.config.schema import Config
from pods.memory.architecture import KNOWN
from pods.system.machine import cores

FILE = Path(__file__).with_name("gpu.yaml")
OVERRIDES = {
    "shape": [
        "task=chainsum", "model=qwen2_5_3b", "hardware=h200", "hardware.name=gpu", "arm=pods",
        "nm=n64_m16", "prompts_per_step=1", "tracking=none", "engine.kv_gb=8", "engine.max_rows=64",
        "update.micro_batch_tokens=8192", "sampling.max_prompt_tokens=160",
        "sampling.max_completion_tokens=512", "evaluation.repeats=1", "evaluation.questions=1",
    ],  # random weights, so that the task decides nothing
    "gsm8k": [
        "task=gsm8k", "model=smollm2_135m", "hardware=h200", "hardware.name=gpu", "arm=pods",
        "nm=n64_m16", "tracking=none", "model.dtype=bfloat16", "engine.kv_gb=4",
        "engine.max_rows=256", "update.lr=2e-4", "update.micro_batch_tokens=8192",
        "sampling.max_completion_tokens=128", "evaluation.repeats=1", "evaluation.questions=200",
        "budget.train_seconds=50",
    ],  # the paper's learning rate is too small for one minute; a solution has about 100 tokens
    "chainsum": ["task=chainsum", "model=tiny", "arm=pods", "nm=n64_m16", "tracking=none",
                 "evaluation.repeats=1"],
}  # fmt: skip
TOY_SHAPE = "toy"
TOY_SIZES: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 192, "vocab_size": 336,
    "tie_word_embeddings": True,
}  # fmt: skip
SHAPES = {
    **{hub.rpartition("/")[2].removesuffix("-Instruct").lower(): hub for hub in KNOWN},
    TOY_SHAPE: TOY_SHAPE,
}
"""The names of --shape, and the keys in `KNOWN` of the sizes that they stand for."""
TOY: dict[str, Any] = {
    "budget.train_seconds": 1.0, "evaluation.questions": 4, "nm.n": 16, "nm.m": 4,
    "sampling.max_completion_tokens": 16, "update.micro_batch_tokens": 256, "hardware.threads": 1,
}  # fmt: skip
ON_CPU: dict[str, Any] = {
    "hardware.device": "cpu", "hardware.threads": cores(), "model.dtype": "float32",
    "engine.dtype": "float32", "engine.sync": "merged", "engine.kv_gb": 1.0,
}  # fmt: skip


class Skipped(Exception):
    """A part cannot run on this machine; the message is a sentence that says why."""


def shape_config(options: Namespace, changes: Mapping[str, Any]) -> Config:
    """Return the config of random weights of the shape of gpu.py's command line, with changes."""
    model = {"model.hub": SHAPES[options.shape], "model.name": options.shape}
    return _read(options, "shape", {**model, **changes})


def trained_config(options: Namespace, changes: Mapping[str, Any]) -> Config:
    """Return the config of a model that can learn: --model on --data, or the embedded one."""
    if options.model is None:
        return _read(options, "chainsum", changes)
    paths = {"model.path": options.model, "task.path": options.data}
    return _read(options, "gsm8k", {**paths, **changes})


def _read(options: Namespace, name: str, changes: Mapping[str, Any]) -> Config:
    """Add what the command line says of size and device; --set has the last word."""
    device = ON_CPU if options.device == "cpu" else {"hardware.device": "cuda"}
    return read(name, {**device, **(TOY if options.toy else {}), **changes, **options.set})


def read(name: str, changes: Mapping[str, Any]) -> Config:
    """Return a config of gpu.yaml with changes, by dotted key, such as `{"nm.n": 16}`.

    Raises:
        ConfigError: a value is not allowed, or data or weights are missing.
    """
    values = yaml.safe_load(FILE.read_text())[name]
    for key, value in changes.items():
        *sections, last = key.split(".")
        reduce(getitem, sections, values)[last] = value
    return validate(values)


def main() -> None:
    """Compose the configs and write gpu.yaml."""
    from pods.config.compose import compose

    head = "# Written by gpu_config.py, from the overrides there; read on machines without Hydra.\n"
    composed = {name: compose(overrides) for name, overrides in OVERRIDES.items()}
    FILE.write_text(head + yaml.safe_dump(composed, sort_keys=False, width=100))


if __name__ == "__main__":
    main()
