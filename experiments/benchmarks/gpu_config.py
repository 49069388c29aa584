"""The configs of gpu.py, resolved beforehand: where a card is there need be no Hydra.

`python experiments/benchmarks/gpu_config.py` writes gpu.yaml anew, after a change of conf/.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from pods.checks import build
from pods.config import Config
from pods.machine import cores

FILE = Path(__file__).with_name("gpu.yaml")
WORDS = {
    "gsm8k": [
        "task=gsm8k", "model=smollm2_135m", "hardware=h200", "hardware.name=gpu", "arm=pods",
        "nm=n64_m16", "tracking=none", "model.dtype=bfloat16", "engine.kv_gb=4",
        "engine.max_rows=256", "update.lr=2e-4", "update.micro_batch_tokens=8192",
        "sampling.max_completion_tokens=128", "evaluation.repeats=1", "evaluation.questions=200",
        "budget.train_seconds=50",
    ],  # the paper's learning rate would move nothing in a minute; a solution has some 100 tokens
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


def config_of(asked: Namespace, changes: Mapping[str, Any]) -> Config:
    """The run that was asked for, with other values of some keys.

    Args:
        asked: of gpu.py's command line.
        changes: value by dotted key, such as `{"nm.n": 16}`.

    Raises:
        ConfigError: a value is not allowed, or data or weights are not where it says.
    """
    wanted = {"engine.name": asked.engine, **(TOY if asked.toy else {}), **changes}
    if asked.model is not None:
        wanted |= {"model.path": asked.model, "task.path": asked.data}
    wanted |= ON_CPU if asked.device == "cpu" else {"hardware.device": "cuda"}
    return read("chainsum" if asked.model is None else "gsm8k", wanted)


def read(name: str, changes: Mapping[str, Any]) -> Config:
    """One of the configs of gpu.yaml, with other values of some keys; raises as `config_of`."""
    values = yaml.safe_load(FILE.read_text())[name]
    for key, value in changes.items():
        *sections, last = key.split(".")
        reduce(getitem, sections, values)[last] = value
    return build(values)


def main() -> None:
    """Compose the configs, and write them."""
    from pods.compose import compose

    head = "# Written by gpu_config.py, from the words there; read where there is no Hydra.\n"
    composed = {name: compose(words) for name, words in WORDS.items()}
    FILE.write_text(head + yaml.safe_dump(composed, sort_keys=False, width=100))


if __name__ == "__main__":
    main()
