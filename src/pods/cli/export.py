"""`pods export`: a checkpoint as a folder that transformers or PEFT loads, with a model card."""

import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pods.cli.checkpoints import add_options as add_checkpoint_options
from pods.cli.checkpoints import find_checkpoint, find_run, load_policy
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.runs.paths import adapter_source

ADAPTER_CONFIG = "adapter_config.json"


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_checkpoint_options(parser)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to create")
    parser.add_argument(
        "--merge", action="store_true", help="merge adapters into their base, for whole weights"
    )


def export(options: Namespace) -> int:
    """Write the folder; it appears complete or not at all.

    Raises:
        ConfigError: there is no such run or checkpoint, or the folder exists already.
    """
    from pods.cli.model_card import model_card

    store, out = find_run(options.run, options.runs_dir), options.out
    if out.exists() or out.is_symlink():
        raise ConfigError("OUT", out, "must not exist; nothing is overwritten")
    if store.folder.resolve() in out.resolve().parents:
        raise ConfigError("OUT", out, "must not be in the run's folder")
    config, checkpoint = store.config(), find_checkpoint(store, options.step)
    merged = options.merge and config.model.tuning == "lora"
    with _appearing(out) as folder:
        if merged:
            _write_merged(config, checkpoint, folder)
        else:
            _copy_policy(config, checkpoint, folder)
        shutil.copyfile(store.config_path, folder / store.config_path.name)
        (folder / "README.md").write_text(model_card(store, checkpoint, merged), "utf-8")
    what = "adapter" if config.model.tuning == "lora" and not merged else "weights"
    print(f"{what} of {checkpoint}: {out}")
    return 0


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed at the end, and removed after an error."""
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.tmp{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_policy(config: Config, checkpoint: Path, folder: Path) -> None:
    """Copy the policy as it was saved, under portable names, and the tokenizer."""
    if config.model.tuning == "lora" and adapter_source(config.model) is not None:
        merge = "the run began from another adapter, so that this one has no base of its own"
        raise ConfigError("--merge", "false", f"must be given: {merge}")
    for path in (checkpoint / "policy").iterdir():
        shutil.copyfile(path, folder / path.name)
    if config.model.tuning == "full":
        return  # saved with the tokenizer
    path = folder / ADAPTER_CONFIG
    settings = json.loads(path.read_text())
    if config.model.hub is not None:
        settings["base_model_name_or_path"] = config.model.hub
    path.write_text(json.dumps(settings, indent=2))
    from pods.policy.policy import load_tokenizer

    load_tokenizer(config).save_pretrained(folder)


def _write_merged(config: Config, checkpoint: Path, folder: Path) -> None:
    """Write whole weights in model.dtype, with config, generation config and tokenizer."""
    from pods.policy.export import merge_adapters

    policy = load_policy(config, checkpoint, "cpu")
    merge_adapters(policy.model).save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
