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
from pods.system.machine import cores

FILE = Path(__file__).with_name("gpu.yaml")
OVERRIDES = {
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
GRPO: dict[str, Any] = {"arm": "grpo", "sampler.rule": "all", "nm.n": 16, "nm.m": 16}
TOY: dict[str, Any] = {
    "budget.train_seconds": 2.0, "evaluation.questions": 4,
    "sampling.max_completion_tokens": 16, "update.micro_batch_tokens": 2048,
}  # fmt: skip
ON_CPU: dict[str, Any] = {
    "hardware.device": "cpu", "hardware.threads": cores(), "model.dtype": "float32",
    "engine.dtype": "float32", "engine.sync": "merged",
}  # fmt: skip


def config_of(options: Namespace, changes: Mapping[str, Any]) -> Config:
    """Return the config for gpu.py's command line, with changes.

    Args:
        options: gpu.py's command line.
        changes: values by dotted key, such as `{"nm.n": 16}`.

    Raises:
        ConfigError: a value is not allowed, or data or weights are missing.
    """
    changes = {"engine.name": options.engine, **(TOY if options.toy else {}), **changes}
    if options.model is not None:
        changes |= {"model.path": options.model, "task.path": options.data}
    changes |= ON_CPU if options.device == "cpu" else {"hardware.device": "cuda"}
    return read("chainsum" if options.model is None else "gsm8k", changes)


def read(name: str, changes: Mapping[str, Any]) -> Config:
    """Return a config of gpu.yaml with changes; raises as `config_of`."""
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
