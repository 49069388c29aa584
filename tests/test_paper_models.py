"""The sizes of the papers' models from a config alone, against what transformers and PEFT make.

The models are built on torch's meta device, where weights have a shape but no memory.
"""

import math

import pytest
import torch
from compose import ROOT, composed
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from pods.memory import architecture
from pods.memory.shape import read_shape

QWEN = {"model_type": "qwen2", "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "hidden_act": "silu"}  # fmt: skip
CONFIGS = {  # config.json of each, as published
    "qwen2_5_3b": QWEN | {
        "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
        "num_key_value_heads": 2, "intermediate_size": 11008, "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "qwen2_5_7b": QWEN | {
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
    "llama3_2_3b": {
        "model_type": "llama", "hidden_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    },
}  # fmt: skip
PUBLISHED = {"qwen2_5_3b": 3.09, "qwen2_5_7b": 7.62, "llama3_2_3b": 3.21}  # billions
PAPERS = list(CONFIGS)
FULL = ("model.tuning=full", "model.dtype=float32", "engine.sync=merged")


def config_of(model: str, *more: str):
    return composed(f"model={model}", "task=gsm8k", "hardware=h200", "dry_run=true", *more)


@pytest.fixture(scope="module", params=PAPERS)
def paper(request):
    """The name of a paper's model, and the model without memory."""
    config = AutoConfig.for_model(**CONFIGS[request.param])
    with torch.device("meta"):
        return request.param, AutoModelForCausalLM.from_config(config)


@pytest.fixture(autouse=True)
def no_weights(tmp_path, monkeypatch):
    """Hide fetched models and the hub's cache."""
    monkeypatch.setenv("PODS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: None)


def test_every_weight_has_the_name_and_sizes_that_transformers_gives_it(paper):
    name, model = paper
    known = architecture.KNOWN[config_of(name).model.hub]
    theirs = {key: tuple(value.shape) for key, value in model.named_parameters()}
    assert dict(architecture.weight_shapes(known)) == theirs  # a tied output layer counts once


def test_the_total_is_the_published_one(paper):
    name, model = paper
    shape = read_shape(config_of(name, *FULL).model)
    assert shape.parameters == shape.trained == sum(p.numel() for p in model.parameters())
    assert round(shape.parameters / 1e9, 2) == PUBLISHED[name]
    outside = [p.numel() for key, p in model.named_parameters() if ".layers." not in key]
    assert shape.embedded == sum(outside)


def test_adapters_are_those_that_peft_makes(paper):
    name, model = paper
    chosen = config_of(name).model
    lora = chosen.lora
    with torch.device("meta"):
        adapted = get_peft_model(
            model,
            LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules=list(lora.targets)),
        )
    theirs = [p.numel() for p in adapted.parameters() if p.requires_grad]
    shape = read_shape(chosen)
    assert (shape.trained, 2 * shape.adapted) == (sum(theirs), len(theirs))
    adapted.unload()


def test_every_model_of_conf_that_is_on_the_hub_is_known():
    names = [path.stem for path in (ROOT / "conf" / "model").glob("*.yaml") if path.stem != "tiny"]
    hubs = {config_of(name, "engine.sync=merged").model.hub for name in names}
    assert hubs == set(architecture.KNOWN)


@pytest.mark.parametrize(
    ("name", "billions"),  # on the models' pages
    [("Qwen/Qwen2.5-0.5B-Instruct", 0.49), ("Qwen/Qwen2.5-Math-1.5B", 1.54),
     ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.78), ("Qwen/Qwen2.5-Math-7B", 7.62),
     ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.13)],
)  # fmt: skip
def test_the_other_models_have_their_published_totals(name, billions):
    total = sum(
        math.prod(shape) for _, shape in architecture.weight_shapes(architecture.KNOWN[name])
    )
    assert round(total / 1e9, 2) == billions
