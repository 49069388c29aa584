"""`pods export`: a checkpoint as a folder that transformers or PEFT loads, with a model card."""

import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import yaml

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.attempts import environments
from pods.runs.find import find_checkpoint, find_run
from pods.runs.store import RunStore

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


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to create")
    merge = "merge adapters into their base, for whole weights"
    parser.add_argument("--merge", action="store_true", help=merge)


def run(options: Namespace) -> None:
    """Write the folder; it appears complete or not at all."""
    store, out = find_run(options.run, options.runs_dir), options.out
    if out.exists() or out.is_symlink():
        raise ConfigError("OUT", out, "must not exist; nothing is overwritten")
    if store.folder.resolve() in out.resolve().parents:
        raise ConfigError("OUT", out, "must not be in the run's folder")
    config, checkpoint = store.config(), find_checkpoint(store, options.step)
    adapter = config.model.tuning == "lora" and not options.merge
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.tmp{os.getpid()}")
    folder.mkdir()
    try:
        if adapter:
            _write_adapter(config, checkpoint, folder)
        elif config.model.tuning == "lora":
            from pods.policy.policy import load_policy

            policy = load_policy(config, checkpoint, "cpu")
            policy.model.merge_and_unload().save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
        else:  # saved whole, with the tokenizer
            shutil.copytree(checkpoint / "policy", folder, dirs_exist_ok=True)
        shutil.copyfile(store.config_path, folder / store.config_path.name)
        (folder / "README.md").write_text(_model_card(store, checkpoint, adapter), "utf-8")
        folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'adapter' if adapter else 'weights'} of {checkpoint}: {out}")


def _write_adapter(config: Config, checkpoint: Path, folder: Path) -> None:
    """Copy the adapter, with its base under a portable name, and write the tokenizer."""
    from pods.policy.policy import load_tokenizer

    if config.model.adapter() is not None:
        merge = "the run began from another adapter, so that this one has no base of its own"
        raise ConfigError("--merge", "false", f"must be given: {merge}")
    shutil.copytree(checkpoint / "policy", folder, dirs_exist_ok=True)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text())
    if config.model.hub is not None:
        settings["base_model_name_or_path"] = config.model.hub
    path.write_text(json.dumps(settings, indent=2))
    load_tokenizer(config).save_pretrained(folder)


def _model_card(store: RunStore, checkpoint: Path, adapter: bool) -> str:
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
    from pods.tasks.load import TRAIN_SETS

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
    from pods.runs.evaluations import read_evaluation

    if not store.evaluation_path(step).is_file():
        return "not evaluated"
    records = read_evaluation(store, config, step)
    right, evaluation = sum(record.correct for record in records), config.evaluation
    questions = f"{len(records) // evaluation.repeats:,} questions × {evaluation.repeats}"
    return (
        f"{right / len(records):.4f}: {right:,} of {len(records):,} answers are right "
        f"({questions}, temperature {evaluation.temperature:g})"
    )
