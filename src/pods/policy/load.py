"""Load the policy: a causal language model, trained whole or through LoRA adapters (PEFT)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pods.config import Config
from pods.policy import attention
from pods.randomness import derive
from pods.runs.home import weights


@dataclass(frozen=True)
class Policy:
    """A model in training with its tokenizer; the engine and the update share its weights."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    start: PreTrainedModel | None
    """The untrained weights where a KL term needs them and no adapter can be switched off."""

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
        """A number that grows whenever torch writes to a trained weight in place.

        Not where its `.data` is written to, nor by a fused optimizer.
        """
        return sum(p._version for p in self.model.parameters() if p.requires_grad)

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """The policy as it was before training."""
        if isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                yield self.causal_lm
        else:
            assert self.start is not None
            yield self.start

    def save(self, folder: Path) -> None:
        """Write what is trained, in the layout that PEFT or transformers loads."""
        if isinstance(self.model, PeftModel):
            self.model.save_pretrained(folder, save_embedding_layers=False)
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote."""
        if isinstance(self.model, PeftModel):
            state = load_file(folder / "adapter_model.safetensors")
            set_peft_model_state_dict(self.model, state)
            if set(state) != set(get_peft_model_state_dict(self.model)):
                raise ValueError(f"{folder} holds an adapter of another shape")
        else:
            saved = AutoModelForCausalLM.from_pretrained(folder, dtype=self.model.dtype)
            self.model.load_state_dict(saved.state_dict())


def load(config: Config) -> Policy:
    """Load model and tokenizer; adapters start from the run's seed.

    Raises:
        ValueError: the weights are nowhere to be found, or there is no such device here.
    """
    where = weights(config.model)
    if config.hardware.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("hardware.device=cuda: torch sees no GPU here; hardware=cpu runs anywhere")
    attention.register()
    try:
        tokenizer = AutoTokenizer.from_pretrained(where)
        model = AutoModelForCausalLM.from_pretrained(
            where, dtype=getattr(torch, config.model.dtype), attn_implementation=attention.NAME
        )
    except OSError as error:
        raise ValueError(
            f"model={config.model.name}: cannot load {where}: set model.path=FOLDER, go online, "
            f"or try `pods fetch {config.model.name}` ({str(error).splitlines()[0]})"
        ) from error
    _check_length(model, config)
    model = model.to(config.hardware.device).eval()
    full = config.model.tuning == "full"
    start = copy.deepcopy(model) if full and config.update.kl_beta > 0 else None
    return Policy(model if full else with_adapters(model, config), tokenizer, start)


def _check_length(model: PreTrainedModel, config: Config) -> None:
    known = model.config.max_position_embeddings
    longest = config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens
    if longest > known:
        raise ValueError(
            f"sampling.max_prompt_tokens + sampling.max_completion_tokens = {longest}: "
            f"must be at most {known}, the positions that model={config.model.name} knows"
        )


def with_adapters(model: PreTrainedModel, config: Config) -> PeftModel:
    """Freeze the model and put float32 adapters on the target layers; B starts at 0."""
    lora = config.model.lora
    for place, part in model.named_modules():
        name = place.rpartition(".")[2]
        if name in lora.targets and not isinstance(part, torch.nn.Linear):
            raise ValueError(f"model.lora.targets: {name} is no linear layer")
    settings = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, target_modules=list(lora.targets), task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():
        torch.manual_seed(derive(config.seed, "adapters"))
        adapted = get_peft_model(model, settings)
    assert isinstance(adapted, PeftModel)
    head = adapted.get_base_model().get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.bias is not None:
        raise ValueError(
            "model.lora.targets: the output layer must stay as it is: log-probs read its weight"
        )
    return adapted.eval()
