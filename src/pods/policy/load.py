"""Load the policy: a causal language model, trained whole or through LoRA adapters (PEFT)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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

from pods.config import Config
from pods.policy import attention
from pods.policy.adapters import with_adapters
from pods.policy.sharding import Gathered, gather, part, shard, sharded, version
from pods.policy.team import ALONE, Team
from pods.runs.home import weights


@dataclass(frozen=True)
class Policy:
    """A model in training with its tokenizer."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    start: PreTrainedModel | None
    """The untrained weights where a KL term needs them and no adapter can be switched off."""
    gathered: Gathered | None = None
    """What an engine decodes from where the model's own weights are spread over processes."""

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The model itself, adapters inside it."""
        model = self.model
        return model.get_base_model() if isinstance(model, PeftModel) else model  # type: ignore[return-value]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(next(self.model.parameters()).device)

    @property
    def vocabulary(self) -> int:
        """Ids that the tokenizer knows; models pad their output layer beyond it."""
        return min(len(self.tokenizer), int(self.causal_lm.config.vocab_size))

    @property
    def stop_ids(self) -> list[int]:
        """Ids that end a completion."""
        settings = self.causal_lm.generation_config
        stops = settings.eos_token_id if settings is not None else None
        listed = stops if isinstance(stops, list) else [stops]
        return sorted({i for i in [*listed, self.tokenizer.eos_token_id] if i is not None})

    @property
    def version(self) -> int:
        """A number that grows whenever a trained weight changes, see `sharding.version`."""
        return version(self.model)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Within it layers forget what they compute, where the config asked for that at load."""
        layers = [
            layer
            for layer in self.causal_lm.modules()
            if isinstance(layer, GradientCheckpointingLayer) and layer.gradient_checkpointing
        ]
        for layer in layers:  # this flag alone: what is inside stays as it is, without dropout
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """The policy as it was before training."""
        if isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                yield self.causal_lm
        else:
            assert self.start is not None
            yield self.start

    def save(self, folder: Path, leads: bool = True) -> None:
        """Write what is trained, in the layout that PEFT or transformers loads.

        Args:
            folder: to write to.
            leads: whether this process writes; weights that are spread need all of them.
        """
        if isinstance(self.model, PeftModel):
            self.model.save_pretrained(folder, save_embedding_layers=False)
            return
        state = None
        if sharded(self.model):
            state = gather(dict(self.model.named_parameters()), keep=leads)
        if leads:
            self.model.save_pretrained(folder, state_dict=state)
            self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote, one tensor at a time."""
        if isinstance(self.model, PeftModel):
            state = load_file(folder / "adapter_model.safetensors")
            set_peft_model_state_dict(self.model, state)
            if set(state) != set(get_peft_model_state_dict(self.model)):
                raise ValueError(f"{folder} holds an adapter of another shape")
            return
        left = dict(self.model.named_parameters())
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in left.keys() & set(file.keys()):
                    parameter = left.pop(name)
                    parameter.copy_(part(file.get_tensor(name), parameter))
        if left:
            raise ValueError(f"{folder} lacks {', '.join(left)}")


def load_tokenizer(config: Config) -> PreTrainedTokenizerBase:
    """Load the tokenizer alone, to see prompts before the model is here.

    Raises:
        ValueError: it is nowhere to be found.
    """
    with _found(config) as where:
        return AutoTokenizer.from_pretrained(where)  # type: ignore[no-any-return]


@contextmanager
def _found(config: Config) -> Iterator[str]:
    """Where the weights are; turns what comes of their absence into a line."""
    where = weights(config.model)
    try:
        yield where
    except OSError as error:
        raise ValueError(
            f"model={config.model.name}: cannot load {where}: set model.path=FOLDER, go online, "
            f"or try `pods fetch {config.model.name}` ({str(error).splitlines()[0]})"
        ) from error


def load(
    config: Config, tokenizer: PreTrainedTokenizerBase | None = None, team: Team = ALONE
) -> Policy:
    """Load model and tokenizer; adapters start from the run's seed.

    Args:
        config: of the run.
        tokenizer: where it is loaded already.
        team: the processes of the run, over which the weights are spread if the config says so.

    Raises:
        ValueError: the weights are nowhere to be found, or of a kind that packing does not know;
            or there is no such device here.
    """
    if config.hardware.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("hardware.device=cuda: torch sees no GPU here; hardware=cpu runs anywhere")
    attention.register()
    tokenizer = load_tokenizer(config) if tokenizer is None else tokenizer
    with _found(config) as where:
        model = AutoModelForCausalLM.from_pretrained(
            where, dtype=getattr(torch, config.model.dtype), attn_implementation=attention.NAME
        )
    _check_length(model, config)
    _check_kind(model, config)
    model.eval()
    full = config.model.tuning == "full"
    start = copy.deepcopy(model) if full and config.update.kl_beta > 0 else None
    gathered, device = None, config.hardware.device
    spread, dtype = config.sharded() and team.size > 1, getattr(torch, config.engine.dtype)
    own = spread or (config.sharded() and dtype != model.dtype)  # the same with any number of them
    if own and config.engine.name == "transformers":
        gathered = Gathered(model, dtype, device, team)
    for each in filter(None, (start, model)):
        if spread:
            shard(each, team)  # goes to the device layer by layer
        else:
            each.to(device)
    if gathered is not None:
        gathered.remember()
    policy = Policy(model if full else with_adapters(model, config), tokenizer, start, gathered)
    if config.update.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return policy


def _check_kind(model: PreTrainedModel, config: Config) -> None:
    """Refuse what the packed update would get wrong without a word."""
    name, known = f"model={config.model.name}", model.config
    kinds = set(getattr(known, "layer_types", None) or ["full_attention"])
    window = getattr(known, "sliding_window", None) if "layer_types" not in known else None
    if kinds != {"full_attention"} or window is not None:
        raise ValueError(f"{name}: each layer must attend to all tokens before; this model has "
                         f"{', '.join(sorted(kinds))}, sliding window {window}")  # fmt: skip
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"{name}: its output layer has a bias, which log-probs do not read")


def _check_length(model: PreTrainedModel, config: Config) -> None:
    known = model.config.max_position_embeddings
    longest = config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens
    if longest > known:
        raise ValueError(
            f"sampling.max_prompt_tokens + sampling.max_completion_tokens = {longest}: "
            f"must be at most {known}, the positions that model={config.model.name} knows"
        )
