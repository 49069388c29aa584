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

USE = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")"""
USE_ADAPTER = USE.replace("from transformers import AutoModelForCausalLM, AutoTokenizer",
                          "from peft import AutoPeftModelForCausalLM\n"
                          "from transformers import AutoTokenizer")  # fmt: skip
USE_ADAPTER = USE_ADAPTER.replace("= AutoModel", "= AutoPeftModel")


def model_card(store: RunStore, checkpoint: Path, merged: bool) -> str:
    """Describe a checkpoint by the numbers of its run.

    Args:
        store: of the run.
        checkpoint: its folder.
        merged: the adapters are merged into the weights.
    """
    config, clock = store.config(), store.clock(checkpoint)
    adapter = config.model.tuning == "lora" and not merged
    about = {
        "library_name": "peft" if adapter else "transformers",
        **({"base_model": config.model.hub} if config.model.hub else {}),
        "pipeline_tag": "text-generation",
        "tags": ["pods-rl", "reinforcement-learning"],
    }
    step, seconds = clock["step"], clock["train_seconds"]
    arm = config.arm or config.sampler.rule
    rows = {
        "arm": f"{arm} (rule {config.sampler.rule})",
        "rollouts per prompt → trained on": f"{config.nm.n} → {config.nm.m}",
        "model": config.model.hub or config.model.name,
        "task": config.task.name,
        "seed": str(config.seed),
        "steps": f"{step:,}",
        "training seconds": f"{seconds:,.1f}",
        **dict(_accuracies(store, config, step)),
        **_machine(store),
    }
    lines = [
        "---",
        yaml.safe_dump(about, sort_keys=False).strip(),
        "---",
        f"# {config.model.name} on {config.task.name}: {arm} {config.nm.n}→{config.nm.m}, "
        f"step {step}",
        "",
        " ".join(_weights(config, merged)),
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        "",
        "```python",
        USE_ADAPTER if adapter else USE,
        "```",
        "",
        "Every setting is in `config.yaml`. With the current defaults this trains such a run, and "
        "this made the folder:",
        "",
        "```bash",
        shlex.join(["python", "src/run.py", *overrides(config)]),
        command(),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _accuracies(store: RunStore, config: Config, step: int) -> Iterator[tuple[str, str]]:
    """Yield label and text of the accuracy on each test set."""
    for name in ["", *further_sets(store)]:
        label = f"accuracy on {name or config.task.evaluated_on()}"
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


def _machine(store: RunStore) -> dict[str, str]:
    """Say on what and with which libraries the run was trained last; nothing if that is lost."""
    found = environments(store)
    if not found:
        return {}
    last = found[-1]
    packages = last.get("packages", {})
    names = [f"{name} {packages[name]}" for name in ("torch", "transformers", "peft")
             if packages.get(name)]  # fmt: skip
    return {"trained with": ", ".join([*(last.get("gpus") or [str(last.get("cpu"))]), *names])}


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
