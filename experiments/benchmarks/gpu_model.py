"""Random weights of a known shape, with a tokenizer of its size: a policy without any file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from gpu_config import TOY_SHAPE
from step import Endless, endless
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from pods.config.schema import Config
from pods.memory.architecture import KNOWN
from pods.policy import attention
from pods.policy.lora import with_adapters
from pods.policy.policy import Policy, set_cuda_math
from pods.types import Prompt

QWEN_WORDS = 151_665  # that Qwen2.5's tokenizer knows; its models pad the output layer beyond it
WORDS = {TOY_SHAPE: 331}


def random_policy(config: Config, folder: Path | None = None) -> tuple[Endless, Config]:
    """Make a policy with adapters on the config's device; no id stops its completions.

    Args:
        config: its `model.hub` is a key of `KNOWN`.
        folder: where to write weights and tokenizer for an engine that reads files; None: nowhere.

    Returns:
        The policy, and the config with `model.path` set to the folder.
    """
    assert config.model.hub is not None
    set_cuda_math()
    attention.register()
    sizes = KNOWN[config.model.hub]
    with torch.random.fork_rng(), torch.device(config.hardware.device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**sizes), dtype=getattr(torch, config.model.dtype),
            attn_implementation=attention.NAME,
        )  # fmt: skip
    words = WORDS.get(config.model.hub, min(QWEN_WORDS, sizes["vocab_size"]))
    tokenizer = stand_in_tokenizer(words)
    if folder is not None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        config = replace(config, model=replace(config.model, path=str(folder)))
    policy = Policy(with_adapters(model.eval(), config), tokenizer, None)
    return endless(policy), config


def stand_in_tokenizer(words: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer of so many words, of which the first pads and the second ends."""
    model = WordLevel({f"w{i}": i for i in range(words)}, "w0")
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(model), pad_token="w0", eos_token="w1", unk_token="w0"
    )


def random_prompts(policy: Policy, count: int, tokens: int) -> list[Prompt]:
    """Draw prompts of random ids: the ids do not change the work."""
    rng = np.random.default_rng(0)
    return [tuple(row) for row in rng.integers(2, policy.vocabulary, (count, tokens)).tolist()]
