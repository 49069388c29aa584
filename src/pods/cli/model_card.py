"""The model card of an exported checkpoint: the README.md that a model hub shows."""

from pathlib import Path
from typing import Any

import yaml

from pods.config.schema import Config
from pods.runs.attempts import environments
from pods.runs.evaluations import read_evaluation
from pods.runs.store import RunStore
from pods.tasks.load import TRAIN_SETS

CARD = """---
{about}---
# {title}

{weights}.

| | |
| --- | --- |
{rows}

Load it with `{model}.from_pretrained`, of {library}. Every setting of the run is in `config.yaml`.
This folder was made by `pods export '{run}' FOLDER {how}`.
"""


def model_card(store: RunStore, checkpoint: Path, adapter: bool) -> str:
    """Describe a checkpoint by the numbers of its run; `adapter`: its adapters alone."""
    config, clock = store.config(), store.clock(checkpoint)
    arm, step = config.arm_name(), clock["step"]
    model, rank, task = config.model, config.model.lora.r, config.task
    machine = [{}, *environments(store)][-1]  # lost if its file is damaged
    library = "peft" if adapter else "transformers"
    rows = {
        "arm": f"{arm} (rule {config.sampler.rule})",
        "rollouts per prompt → trained on": config.nm.label(),
        "model": model.hub or model.name,
        "task": task.label(),
        "seed": config.seed,
        "steps": f"{step:,}",
        "training seconds": f"{clock['train_seconds']:,.1f}",
        f"accuracy on {task.test_label()}": _accuracy(store, config, step),
        "trained on": ", ".join(machine.get("gpus") or [machine.get("cpu", "?")]),
    }
    what = f"LoRA adapters of rank {rank} for" if adapter else "All weights of"
    merged = model.tuning == "lora" and not adapter
    weights = f"{what} `{model.hub or model.name}`, trained with reinforcement learning, in "
    weights += model.dtype + merged * f". LoRA adapters of rank {rank} are merged into them"
    return CARD.format(
        about=yaml.safe_dump(_header(config, library), sort_keys=False),
        title=f"{model.name} on {task.label()}: {arm} {config.nm.label()}, step {step}",
        weights=weights,
        rows="\n".join(f"| {label} | {value} |" for label, value in rows.items()),
        library=library,
        model="AutoPeftModelForCausalLM" if adapter else "AutoModelForCausalLM",
        run=f"{config.study} {arm} {store.folder.name}",
        how=f"--step {step}{' --merge' * merged}",
    )


def _header(config: Config, library: str) -> dict[str, Any]:
    """Return what a hub reads of a card; the license of a model from it is linked."""
    task, (hub, path) = config.task.name, (config.model.hub, config.model.path)
    shipped = hub is None and path is None  # with this package, under its license
    about = {
        "license": "apache-2.0" if shipped else "other",
        "license_name": None if shipped else "that-of-the-base-model",
        "license_link": hub and f"https://huggingface.co/{hub}",
        "library_name": library,
        "base_model": hub,
        "datasets": [TRAIN_SETS[task].dataset] if task in ("gsm8k", "math") else None,
        "pipeline_tag": "text-generation",
        "tags": ["pods-rl", "reinforcement-learning"],
    }
    return {key: value for key, value in about.items() if value}


def _accuracy(store: RunStore, config: Config, step: int) -> str:
    records = read_evaluation(store, config, step)
    if isinstance(records, str):
        return "not evaluated, or not completely"
    right, evaluation = sum(record.correct for record in records), config.evaluation
    questions = f"{len(records) // evaluation.repeats:,} questions × {evaluation.repeats}"
    return (
        f"{right / len(records):.4f}: {right:,} of {len(records):,} answers are right "
        f"({questions}, temperature {evaluation.temperature:g})"
    )
