"""`pods export`: a checkpoint as a folder that transformers or PEFT loads, with a model card."""

import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.find import find_checkpoint, find_run
from pods.runs.store import RunStore

CARD = """---
library_name: {library}
---
# {model} on {task}: {arm} {sizes}, step {step}

{weights}, trained with reinforcement learning for {seconds:,.1f} s. {accuracy}.

`{loader}.from_pretrained` loads it ({library}). Every setting of the run is in `config.yaml`.
This folder was made by `pods export '{run}' FOLDER {options}`.
"""


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to create")
    merge = "merge adapters into their base, for whole weights"
    parser.add_argument("--merge", action="store_true", help=merge)


def run(options: Namespace) -> None:
    """Write the folder; it appears complete or not at all."""
    store = find_run(options.run, options.runs_dir)
    out = options.out
    if out.exists() or out.is_symlink():
        raise ConfigError("OUT", out, "must not exist; nothing is overwritten")
    if store.folder.resolve() in out.resolve().parents:
        raise ConfigError("OUT", out, "must not be in the run's folder")
    config = store.config()
    checkpoint = find_checkpoint(store, options.step)
    adapter = config.model.tuning == "lora" and not options.merge

    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.tmp{os.getpid()}")
    folder.mkdir()
    try:
        if adapter:
            _write_adapter(config, checkpoint, folder)
        elif config.model.tuning == "lora":
            _write_merged(config, checkpoint, folder)
        else:  # saved whole, with the tokenizer
            shutil.copytree(checkpoint / "policy", folder, dirs_exist_ok=True)
        shutil.copyfile(store.config_path, folder / store.config_path.name)
        (folder / "README.md").write_text(_model_card(store, checkpoint, adapter), "utf-8")
        folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    what = "adapter" if adapter else "weights"
    print(f"{what} of {checkpoint}: {out}")


def _write_merged(config: Config, checkpoint: Path, folder: Path) -> None:
    """Write the base's weights with the adapters merged into them, and the tokenizer."""
    from pods.policy.policy import load_policy

    policy = load_policy(config, checkpoint, "cpu")
    policy.model.merge_and_unload().save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


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
    """Describe a checkpoint; `adapter`: the folder holds its adapters alone."""
    config = store.config()
    model = config.model
    clock = store.clock(checkpoint)
    step = clock["step"]
    base = model.hub or model.name
    merged = model.tuning == "lora" and not adapter

    options = f"--step {step}"
    if merged:
        options += " --merge"
    weights = f"All weights of `{base}`, in {model.dtype}"
    if merged:
        weights += f", with LoRA adapters of rank {model.lora.r} merged into them"
    if adapter:
        weights = f"LoRA adapters of rank {model.lora.r} for `{base}`, in {model.dtype}"
    return CARD.format(
        library="peft" if adapter else "transformers",
        loader="AutoPeftModelForCausalLM" if adapter else "AutoModelForCausalLM",
        model=model.name,
        task=config.task.label(),
        arm=config.arm_name(),
        sizes=config.nm.label(),
        step=step,
        weights=weights,
        seconds=clock["train_seconds"],
        accuracy=_accuracy(store, config, step),
        run=f"{config.study} {config.arm_name()} {store.folder.name}",
        options=options,
    )


def _accuracy(store: RunStore, config: Config, step: int) -> str:
    """Return a sentence without its full stop."""
    from pods.runs.evaluations import means, read_evaluation

    if not store.evaluation_path(step).is_file():
        return "This step was not evaluated"
    records = read_evaluation(store, config, step)
    evaluation = config.evaluation
    questions = len(records) // evaluation.repeats
    return (
        f"Accuracy on {config.task.test_label()}: {means(records)['accuracy']:.4f} "
        f"({questions:,} questions × {evaluation.repeats}, temperature {evaluation.temperature:g})"
    )
