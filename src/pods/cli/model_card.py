"""The model card of an exported checkpoint: the README.md that a model hub shows."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

from pods.config.compose import overrides
from pods.config.schema import Config
from pods.runs.attempts import command, environments
from pods.runs.evaluations import answered_questions
from pods.runs.files import read_or_empty
from pods.runs.history import further_sets
from pods.runs.store import RunStore

CARD = """---
{about}
---
# {title}

{weights}

| | |
| --- | --- |
{rows}

```python
{use}
```

Every setting is in `config.yaml`. With the current defaults the first command
trains such a run; the second made this folder:

```bash
{train}
{export}
```
"""
USE = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")"""
USE_ADAPTER = """from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

model = AutoPeftModelForCausalLM.from_pretrained("THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")"""


def model_card(store: RunStore, checkpoint: Path, merged: bool) -> str:
    """Describe a checkpoint by the numbers of its run.

    Args:
        store: of the run.
        checkpoint: its folder.
        merged: the adapters are merged into the weights.
    """
    config, step = store.config(), store.clock(checkpoint)["step"]
    adapter = config.model.tuning == "lora" and not merged
    about = {
        "library_name": "peft" if adapter else "transformers",
        **({"base_model": config.model.hub} if config.model.hub else {}),
        "pipeline_tag": "text-generation",
        "tags": ["pods-rl", "reinforcement-learning"],
    }
    arm = f"{config.arm_name()} {config.nm.label()}"
    rows = [f"| {name} | {value} |" for name, value in _numbers(store, config, checkpoint)]
    return CARD.format(
        about=yaml.safe_dump(about, sort_keys=False).strip(),
        title=f"{config.model.name} on {config.task.label()}: {arm}, step {step}",
        weights=" ".join(_weights(config, merged)),
        rows="\n".join(rows),
        use=USE_ADAPTER if adapter else USE,
        train=shlex.join(["python", "src/run.py", *overrides(config)]),
        export=command(),
    )


def _numbers(store: RunStore, config: Config, checkpoint: Path) -> Iterator[tuple[str, str]]:
    """Yield label and text of each number of the run up to a checkpoint."""
    clock = store.clock(checkpoint)
    yield "arm", f"{config.arm_name()} (rule {config.sampler.rule})"
    yield "rollouts per prompt → trained on", config.nm.label()
    yield "model", config.model.hub or config.model.name
    yield "task", config.task.label()
    yield "seed", str(config.seed)
    yield "steps", f"{clock['step']:,}"
    yield "training seconds", f"{clock['train_seconds']:,.1f}"
    yield from _accuracies(store, config, clock["step"])
    for machine in environments(store)[-1:]:  # of the last attempt; lost if its file is damaged
        packages = machine.get("packages", {})
        names = [name for name in ("torch", "transformers", "peft") if packages.get(name)]
        devices = machine.get("gpus") or [machine.get("cpu")]
        versions = [f"{name} {packages[name]}" for name in names]
        yield "trained with", ", ".join(map(str, [*devices, *versions]))


def _accuracies(store: RunStore, config: Config, step: int) -> Iterator[tuple[str, str]]:
    """Yield label and text of the accuracy on each test set."""
    for name in ["", *further_sets(store)]:
        label = f"accuracy on {name or config.task.test_label()}"
        content = read_or_empty(store.evaluation_path(step, name))
        questions = answered_questions(config, step, content, name)
        if questions is None:
            yield label, "not evaluated, or not completely"
            continue
        right = [json.loads(line)["correct"] for line in content.splitlines()]
        yield (
            label,
            f"{sum(right) / len(right):.4f}: {sum(right):,} of {len(right):,} answers are right "
            f"({len(questions):,} questions × {config.evaluation.repeats}, temperature "
            f"{config.evaluation.temperature:g})",
        )


def _weights(config: Config, merged: bool) -> Iterator[str]:
    """Say in sentences what the weights are."""
    model = config.model
    base = f"`{model.hub}`" if model.hub else f"the model `{model.name}`"
    if model.tuning == "full":
        yield f"All weights of {base}, trained with reinforcement learning, in {model.dtype}."
    elif merged:
        yield (
            f"{base}, trained with reinforcement learning through LoRA adapters of rank "
            f"{model.lora.r}, which are merged into these weights in {model.dtype}."
        )
    else:
        yield (
            f"LoRA adapters of rank {model.lora.r} for {base}, trained with reinforcement learning "
            f"on its weights in {model.dtype}."
        )
    if model.path is not None:
        yield "The run read the base weights from a folder of its own (`model.path`)."
    if model.quantization == "nf4" and merged:
        yield "The base weights under the adapters were rounded to 4 bits (nf4), also in here."
    elif model.quantization == "nf4":
        yield (
            "They were trained on a base whose weights under the adapters were rounded to 4 bits "
            "(nf4, double quantisation): load it with "
            '`BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", '
            "bnb_4bit_use_double_quant=True)`, or results differ slightly."
        )
