"""Load the policy: a causal language model, trained in full or through LoRA adapters (PEFT)."""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from pods.config.schema import Config
from pods.policy import attention
from pods.policy.compiled import fuse_layers
from pods.policy.export import WeightMirror, copy_to_decode
from pods.policy.fsdp import gather_on_host, is_sharded, shard, shard_like
from pods.policy.lora import make_portable, with_adapters, with_merged_adapter
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.runs.paths import weights_source
from pods.system.errors import is_machine_error
from pods.system.machine import CUDA_MATH, why_no_gpu

LONGEST_REASON = 300  # characters


@dataclass(frozen=True)
class Policy:
    """A model in training with its tokenizer."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    reference_model: PreTrainedModel | None
    """The untrained model if a KL term needs it and there is no adapter to switch off."""
    mirror: WeightMirror | None = None
    """The second model that the transformers engine decodes from, if not from the policy's own."""

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The language model, with adapters inside it if there are any."""
        model = self.model
        return model.get_base_model() if isinstance(model, PeftModel) else model  # type: ignore[return-value]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return torch.device(next(self.model.parameters()).device)

    @property
    def vocabulary(self) -> int:
        """The number of ids that the tokenizer knows; models pad their output layer beyond it."""
        return min(len(self.tokenizer), int(self.causal_lm.config.vocab_size))

    @property
    def stop_ids(self) -> list[int]:
        """The ids that end a completion."""
        stops = getattr(self.causal_lm.generation_config, "eos_token_id", None)
        ids = list(stops) if isinstance(stops, list) else [stops]
        ids.append(self.tokenizer.eos_token_id)
        return sorted({i for i in ids if i is not None})

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Recompute activations in backward passes, if the config enabled checkpointing at load."""
        layers = [
            module
            for module in self.causal_lm.modules()
            if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
        ]
        for layer in layers:  # the layer's flag alone: modules inside it stay without dropout
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """Yield the policy as it was before training."""
        if isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                yield self.causal_lm
        else:
            assert self.reference_model is not None
            yield self.reference_model

    def save(self, folder: Path, is_main: bool = True) -> None:
        """Write the trained weights in the layout that PEFT or transformers loads.

        If they are sharded, all processes must call this; only the main one writes.
        """
        state = None
        if is_sharded(self.model):
            state = gather_on_host(dict(self.model.named_parameters()), keep=is_main)
        if is_main and isinstance(self.model, PeftModel):
            self.model.save_pretrained(folder, save_embedding_layers=False)
            make_portable(folder)
        elif is_main:
            self.model.save_pretrained(folder, state_dict=state)
            self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote, one tensor at a time."""
        if isinstance(self.model, PeftModel):
            state = load_file(folder / "adapter_model.safetensors")
            set_peft_model_state_dict(self.model, state)
            if set(state) != set(get_peft_model_state_dict(self.model)):
                raise ValueError(f"{folder}: its adapter does not have this model's layers")
            return

        missing = dict(self.model.named_parameters())
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in missing.keys() & set(file.keys()):
                    parameter = missing.pop(name)
                    parameter.copy_(shard_like(file.get_tensor(name), parameter))

        if missing:
            raise ValueError(f"{folder} lacks {', '.join(missing)}")


def load_tokenizer(config: Config) -> PreTrainedTokenizerBase:
    """Load the tokenizer alone, to encode prompts before the model is loaded."""
    with _located_weights(config) as source:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)  # type: ignore[no-any-return]


@contextmanager
def _located_weights(config: Config) -> Iterator[str]:
    """Yield the folder or hub name of the weights; say in one line why they cannot be loaded."""
    source = weights_source(config.model)
    try:
        yield source
    except OSError as error:
        raise ValueError(
            f"model={config.model.name}: cannot load {source}: set model.path=FOLDER, go online, "
            f"or try `pods fetch {config.model.name}` ({str(error).splitlines()[0]})"
        ) from error
    except Exception as error:
        key = "model.hub" if config.model.path is None else "model.path"
        if _needs_code(error):
            raise ValueError(
                f"{key}={source}: needs code of its own, which is never run"
            ) from error
        is_shipped = config.model.path is None and config.model.hub is None
        if is_shipped or is_machine_error(error):
            raise
        raise ValueError(f"{key}={source}: {_why_not_loaded(error)}") from error


def _why_not_loaded(error: Exception) -> str:
    """Say in one line what is wrong with a model's files; libraries raise any kind of error."""
    reason = " ".join(str(error).split())[:LONGEST_REASON]
    if not isinstance(error, ValueError):
        return f"damaged, or no model that transformers can load ({type(error).__name__}: {reason})"
    if "tokenizer" in reason:
        return "must have the files of a tokenizer"
    return reason


def _needs_code(error: Exception) -> bool:
    """Return whether transformers or torch refused to run code of a model, or to unpickle it."""
    return "trust_remote" in str(error) or "weights_only" in str(error)


def load(
    config: Config,
    tokenizer: PreTrainedTokenizerBase | None = None,
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> Policy:
    """Load the model, and the tokenizer unless it is given; adapters start from the run's seed.

    Raises:
        ValueError: weights or device are missing, or packing does not support the model.
    """
    if config.hardware.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"hardware.device=cuda: {why_no_gpu(torch.version.cuda)}")
    set_cuda_math()
    if tokenizer is None:
        tokenizer = load_tokenizer(config)
    model = _load_model(config)
    _check_supported(model, config)
    model.eval()

    is_full = config.model.tuning == "full"
    reference_model = None
    if is_full and config.update.kl_beta > 0:
        reference_model = copy.deepcopy(model)
        _place(reference_model, config, process_group)
    decoder = copy_to_decode(model, config, process_group)
    _place(model, config, process_group)

    trained = model if is_full else with_adapters(model, config)
    mirror = None if decoder is None else WeightMirror(decoder, model)
    if config.update.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return Policy(
        model=trained, tokenizer=tokenizer, reference_model=reference_model, mirror=mirror
    )


def _load_model(config: Config) -> PreTrainedModel:
    with _located_weights(config) as source:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=attention.NAME,
            trust_remote_code=False,
        )

    adapter = config.model.adapter()
    if adapter is not None:
        model = with_merged_adapter(model, adapter)
    return model  # type: ignore[no-any-return]


def _place(model: PreTrainedModel, config: Config, process_group: ProcessGroup) -> None:
    """Bring a model to the device of this process, sharded and fused as the config says."""
    if config.update.compiled:
        fuse_layers(model)
    if config.uses_fsdp(process_group.size):
        shard(model, process_group, config)  # goes to the device layer by layer
    else:
        model.to(config.hardware.device)  # type: ignore[arg-type]


def load_policy(
    config: Config, folder: Path, device: Literal["cpu", "cuda"] | None = None
) -> Policy:
    """Load a run's policy as it was at a checkpoint, whole, in this process, not to be trained.

    Without a device it is that of the run, or the CPU if this machine has no GPU.

    Raises:
        ValueError: base weights are missing or do not fit the checkpoint.
    """
    if device is None:
        device = config.hardware.device
        if device == "cuda" and not torch.cuda.is_available():
            print("no GPU here: generating on the CPU", file=sys.stderr)
            device = "cpu"

    logging.disable_progress_bar()
    alone = replace(
        config,
        model=replace(config.model, compute_dtype=None),
        engine=replace(config.engine, name="transformers"),
        hardware=replace(config.hardware, device=device, processes=1, shard=False),
        update=replace(config.update, kl_beta=0.0, activation_checkpointing=False, compiled=False),
    )
    policy = load(alone)
    policy.restore(folder / "policy")

    return policy


def set_cuda_math() -> None:
    """Set torch's CUDA math modes (no effect without a GPU)."""
    torch.set_float32_matmul_precision("high" if CUDA_MATH["tf32"] else "highest")
    torch.backends.cuda.enable_cudnn_sdp(CUDA_MATH["cudnn_attention"])
    sums = CUDA_MATH["bf16_reduced_precision_sums"]
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = sums


def _check_supported(model: PreTrainedModel, config: Config) -> None:
    """Refuse lengths that a model lacks positions for, and kinds that packing would get wrong."""
    name = f"model={config.model.name}"
    settings = model.config
    limit = settings.max_position_embeddings
    longest = config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens
    if longest > limit:
        key = f"sampling.max_prompt_tokens + sampling.max_completion_tokens = {longest}"
        raise ValueError(f"{key}: must be at most {limit}, the positions that {name} has")

    kinds = set(getattr(settings, "layer_types", None) or ["full_attention"])
    window = None if "layer_types" in settings else getattr(settings, "sliding_window", None)
    if kinds != {"full_attention"} or window is not None:
        has = f"{', '.join(sorted(kinds))}, sliding window {window}"
        raise ValueError(f"{name}: each layer must attend to all earlier tokens; it has {has}")

    scales = ("logits_scaling", "logit_scale", "final_logit_softcapping")
    if any(getattr(settings, scale, None) not in (None, 1) for scale in scales):
        raise ValueError(f"{name}: its logits are scaled or capped, which log-probs would ignore")
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        raise ValueError(f"{name}: its output layer has a bias, which log-probs would ignore")
