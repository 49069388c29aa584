"""`pods export`: a checkpoint as a folder that transformers or PEFT loads, with a model card."""

import json
import os
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pods.cli.options import add_checkpoint_options
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.find import find_checkpoint, find_run
from pods.runs.paths import weights_source
from pods.runs.store import RunStore

CARD = """---
library_name: {library}
base_model: {base}
---
# {title}

{weights}, trained with reinforcement learning. Accuracy on {test_set}: {accuracy}.

Load it with `{loader}.from_pretrained`. Every setting of the run is in `config.yaml`.
This folder was made by `{command}`.
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
    """Copy the adapter, with its base as PEFT finds it, and write the tokenizer."""
    from pods.policy.policy import load_tokenizer

    if config.model.adapter() is not None:
        merge = "the run began from another adapter, so that this one has no base of its own"
        raise ConfigError("--merge", "false", f"must be given: {merge}")
    shutil.copytree(checkpoint / "policy", folder, dirs_exist_ok=True)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text())
    settings["base_model_name_or_path"] = config.model.hub or weights_source(config.model)
    path.write_text(json.dumps(settings, indent=2))
    load_tokenizer(config).save_pretrained(folder)


def _model_card(store: RunStore, checkpoint: Path, adapter: bool) -> str:
    """Describe a checkpoint by the numbers of its run; `adapter`: its adapters alone."""
    config = store.config()
    step = store.clock(checkpoint)["step"]
    base = config.model.hub or config.model.name
    merged = config.model.tuning == "lora" and not adapter

    adapters = f"LoRA adapters of rank {config.model.lora.r}"
    weights = f"All weights of `{base}`"
    if adapter:
        weights = f"{adapters} for `{base}`"
    elif merged:
        weights += f", with {adapters} merged into them"

    run = shlex.quote(f"{config.study} {config.arm_name()} {store.folder.name}")
    command = f"pods export {run} FOLDER --step {step}"
    return CARD.format(
        library="peft" if adapter else "transformers",
        base=base,
        title=f"{config.task.label()}: {config.arm_name()} {config.nm.label()}, step {step}",
        weights=weights,
        test_set=config.task.test_label(),
        accuracy=_accuracy(store, config, step),
        loader="AutoPeftModelForCausalLM" if adapter else "AutoModelForCausalLM",
        command=f"{command} --merge" if merged else command,
    )


def _accuracy(store: RunStore, config: Config, step: int) -> str:
    """Say how many answers of the checkpoint's evaluation are right."""
    from pods.runs.evaluations import read_evaluation

    if not store.evaluation_path(step).is_file():
        return "not evaluated"

    records = read_evaluation(store, config, step)
    right = sum(record.correct for record in records)
    evaluation = config.evaluation
    questions = f"{len(records) // evaluation.repeats:,} questions × {evaluation.repeats}"
    return (
        f"{right / len(records):.4f}: {right:,} of {len(records):,} answers are right "
        f"({questions}, temperature {evaluation.temperature:g})"
    )
