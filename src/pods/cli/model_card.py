"""The model card of an exported checkpoint: the README.md that a model hub shows."""

from pathlib import Path

import yaml

from pods.config.schema import Config
from pods.runs.attempts import environments
from pods.runs.evaluations import decode_records, is_complete
from pods.runs.store import RunStore
from pods.system.text import command

CARD = """---
{about}---
# {title}

{weights}

| | |
| --- | --- |
{rows}

```python
from {library} import {model}
from transformers import AutoTokenizer

model = {model}.from_pretrained("THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
```

Every setting of the run is in `config.yaml`. This folder was made by `{export}`.
"""


def model_card(store: RunStore, checkpoint: Path, adapter: bool) -> str:
    """Describe a checkpoint by the numbers of its run; `adapter`: its adapters alone."""
    config, clock = store.config(), store.clock(checkpoint)
    model, rank, task = config.model, config.model.lora.r, config.task
    machine = [{}, *environments(store)][-1]  # lost if its file is damaged
    library = "peft" if adapter else "transformers"
    about = {
        "library_name": library,
        **({"base_model": model.hub} if model.hub else {}),
        "pipeline_tag": "text-generation",
        "tags": ["pods-rl", "reinforcement-learning"],
    }
    rows = {
        "arm": f"{config.arm_name()} (rule {config.sampler.rule})",
        "rollouts per prompt → trained on": config.nm.label(),
        "model": model.hub or model.name,
        "task": task.label(),
        "seed": config.seed,
        "steps": f"{clock['step']:,}",
        "training seconds": f"{clock['train_seconds']:,.1f}",
        f"accuracy on {task.test_label()}": _accuracy(store, config, clock["step"]),
        "trained on": ", ".join(machine.get("gpus") or [machine.get("cpu", "?")]),
    }
    what = f"LoRA adapters of rank {rank} for" if adapter else "All weights of"
    base = f"`{model.hub}`" if model.hub else f"the model `{model.name}`"
    merged = f" LoRA adapters of rank {rank} are merged into them."
    weights = f"{what} {base}, trained with reinforcement learning, in {model.dtype}."
    name = f"{model.name} on {task.label()}: {config.arm_name()} {config.nm.label()}"
    return CARD.format(
        about=yaml.safe_dump(about, sort_keys=False),
        title=f"{name}, step {clock['step']}",
        weights=weights + merged * (model.tuning == "lora" and not adapter),
        rows="\n".join(f"| {label} | {value} |" for label, value in rows.items()),
        library=library,
        model="AutoPeftModelForCausalLM" if adapter else "AutoModelForCausalLM",
        export=command(),
    )


def _accuracy(store: RunStore, config: Config, step: int) -> str:
    if not is_complete(store, config, step):
        return "not evaluated, or not completely"
    records = decode_records(store.evaluation_path(step).read_bytes())
    right, evaluation = sum(record.correct for record in records), config.evaluation
    questions = f"{len(records) // evaluation.repeats:,} questions × {evaluation.repeats}"
    return (
        f"{right / len(records):.4f}: {right:,} of {len(records):,} answers are right "
        f"({questions}, temperature {evaluation.temperature:g})"
    )
