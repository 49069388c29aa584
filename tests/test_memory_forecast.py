"""What a run needs of memory: by hand, as torch holds it, and as a real run was seen to take."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from compose import composed
from peft import LoraConfig, get_peft_model
from running import SHORT
from transformers import AutoConfig, AutoModelForCausalLM

from pods.config.schema import CONF, LORA_TARGETS
from pods.engines import transformers_engine
from pods.engines.transformers_engine import TransformersEngine, roomy_cache
from pods.launch import memory_forecast
from pods.launch.memory_forecast import GIB
from pods.launch.model_sizes import describe_model, read_sizes, trained_numbers
from pods.policy import logprobs
from pods.policy.optimizer import make_optimizer, trained_weights
from pods.policy.policy import load
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.training.shapes import rows_at_once
from pods.types import GenerationRequest, Rollout, Sampling

PROMPT = tuple(range(2, 12))
TEN = ("sampling.max_prompt_tokens=10", "sampling.max_completion_tokens=32")
ON_GPU = ("hardware=h200", "task=gsm8k", "model=qwen2_5_0_5b", "model.dtype=float32",
          "dry_run=true")  # fmt: skip
SHARDED = (*ON_GPU, "model.tuning=full", "engine=transformers", "engine.dtype=float32",
           "prompts_per_step=8")  # fmt: skip
TIED_QWEN = {"model_type": "qwen2", "tie_word_embeddings": True}
QWEN = {"model_type": "qwen2", "tie_word_embeddings": False}
LLAMA = {"model_type": "llama", "tie_word_embeddings": True}
KINDS = {  # of the presets, as published; the sizes are in their files
    "qwen2_5_0_5b": TIED_QWEN,
    "qwen2_5_1_5b_math": TIED_QWEN,
    "qwen2_5_3b": TIED_QWEN,
    "qwen2_5_7b": QWEN,
    "qwen2_5_7b_math": QWEN,
    "r1_distill_qwen_1_5b": QWEN,
    "llama3_2_3b": LLAMA,
    "smollm2_135m": LLAMA,
}
NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "vocabulary": "vocab_size",
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No weights have been fetched."""
    monkeypatch.setenv("PODS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)


@pytest.fixture
def set_memory(monkeypatch):
    """Set the free and the total memory that the machine reports."""

    def set_to(free, total):
        monkeypatch.setattr(memory_forecast, "free_memory", lambda _: (free, total))

    return set_to


def forecast(config, questions=None):
    """By default of an evaluation that fills `engine.max_rows`."""
    return memory_forecast.forecast(config, questions)


def describe(configs, at_once):
    return memory_forecast.describe(configs, [None] * len(configs), at_once)


def peak(config):
    return sum(forecast(config).values())


def preset(name):
    return composed(f"model={name}", "hardware=l40s", "task=gsm8k", "dry_run=true").model


def config_json(name):
    sizes = preset(name).sizes
    return KINDS[name] | {key: getattr(sizes, ours) for ours, key in NAMES.items()}


def test_every_preset_has_the_sizes_of_its_model():
    with_weights = {"tiny", "hub"}  # the first one's are in the package
    assert {path.stem for path in CONF.glob("model/*.yaml")} == {*KINDS, *with_weights}


@pytest.mark.parametrize("name", KINDS)
def test_sizes_are_those_that_transformers_and_peft_make(name, tmp_path):
    """The models are built on torch's meta device, where weights have a shape but no memory."""
    content = config_json(name)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(**content))
        total = sum(p.numel() for p in made.parameters())
        lora = LoraConfig(r=16, target_modules=list(LORA_TARGETS))
        adapted = get_peft_model(made, lora)
    model = preset(name)
    sizes = read_sizes(model)
    assert sizes == model.sizes and sizes.parameters == total
    model = dataclasses.replace(model, tuning="lora", lora=dataclasses.replace(model.lora, r=16))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert trained_numbers(model, sizes) == trained

    # once the weights are here, their config.json says it, but for the biases of Qwen
    folder = tmp_path / "models" / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(content))
    read = read_sizes(model)
    assert read is not model.sizes and read.parameters == pytest.approx(total, rel=2e-4)
    assert dataclasses.replace(read, parameters=total) == sizes


def test_a_preset_is_forecast_without_its_weights():
    """LoRA of rank 64 on Qwen2.5-3B: 120 million numbers of 4 bytes, five times."""
    parts = forecast(composed("experiment=gsm8k_l40s", "dry_run=true"))
    assert parts["weights"] == 2 * 3_085_938_688
    per_layer = 2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 11008)
    assert parts["training"] == 5 * 4 * 36 * 64 * per_layer
    assert 12 * GIB < sum(parts.values()) < 48 * GIB  # what an L40S has


@pytest.mark.parametrize(("words", "said"), [
    (("model=qwen2_5_3b",), "3.09 billion parameters, and 120 million in the LoRA adapters, "),
    (("model=qwen2_5_0_5b", "model.tuning=full", "model.dtype=float32"),
     "494 million parameters, all trained"),
    (("model=hub", "model.hub=some/body"), "body, some/body on the hub"),
])  # fmt: skip
def test_a_model_is_described_without_its_weights(words, said):
    config = composed(*words, "hardware=l40s", "task=gsm8k", "dry_run=true")
    assert said in describe_model(config.model)
    # two bytes of each weight are to be fetched, if their number is known
    assert ("(6.2 GB to download)" in describe_model(config.model)) == ("3b" in words[0])


def test_the_embedded_model_is_described_by_its_folder():
    said = describe_model(composed().model)
    assert said.endswith("/models/tiny, 132,608 parameters, all trained") and "hub" not in said


@pytest.mark.parametrize(("words", "questions", "rows", "prompts"), [
    # 8 rollouts of one prompt, 4 questions asked twice
    (("nm.n=8", "nm.m=4", "prompts_per_step=1"), 4, 8, 4),
    (("nm.n=8", "nm.m=4", "prompts_per_step=1"), 40, 80, 40),
    (("nm.n=8", "nm.m=4", "prompts_per_step=1", "nm.groups=3"), 4, 24, 4),
    (("nm.n=8", "nm.m=4", "prompts_per_step=6"), 4, 48, 6),
    # a step samples further batches of 12 prompts
    (("nm.n=8", "nm.m=4", "group_filter=resample", "group_filter.batch=12"), 4, 96, 12),
    (("nm.n=8", "nm.m=4", "group_filter=none", "group_filter.batch=12"), 4, 16, 4),
    (("nm.n=8", "nm.m=4", "prompts_per_step=1"), 4000, 256, 256),
    (("nm.n=8", "nm.m=4", "prompts_per_step=1", "hardware.processes=2"), 41, 41, 41),
    (("nm.n=8", "nm.m=4", "prompts_per_step=1"), None, 256, 256),
])  # fmt: skip
def test_only_rows_that_can_occur_are_counted(words, questions, rows, prompts):
    config = composed(*TEN, *words, "evaluation.repeats=2")
    parts = memory_forecast._generating(config, read_sizes(config.model), questions)
    assert parts["logits"] == rows * 19 * 24
    assert parts["keys and values"] == rows * 42 * (2 * 2 * 2 * 32 * 4)
    assert parts["prompts"] == prompts * 10 * (4 * (64 + 256) * 4 + 5 * 10)
    assert rows_at_once(config, questions) == rows


def test_the_parts_of_the_tiny_model_by_hand():
    config = composed(*TEN, "engine.max_rows=64")
    assert forecast(config)["logits"] == 64 * 19 * 24
    # an update adds less: a step keeps 16 x 2 rollouts of 32 tokens, over 19 ids
    assert memory_forecast._scored(config, read_sizes(config.model)) == 3 * 4 * 32 * 32 * 19
    assert memory_forecast.LOGITS == logprobs.CHUNK_ELEMENTS


@pytest.mark.parametrize(("words", "rows", "scored"), [
    (("update.micro_batch_tokens=10000",), 32, 32 * 32),
    (("update.micro_batch_tokens=210",), 32, 200),  # and the 10 of a prompt
    (("update.micro_batch_tokens=60", "nm.m=64"), 50, 50),  # one token of each of 50 completions
    (("update.micro_batch_tokens=20",), 32, 32),  # a completion is never cut
    (("update.micro_batch_tokens=10000", "nm.groups=3", "update.minibatches=2"), 48, 48 * 32),
    # of three groups, which stay whole, one update takes two
    (("update.micro_batch_tokens=10000", "nm.groups=3", "update.minibatches=2",
      "prompts_per_step=1"), 32, 32 * 32),
])  # fmt: skip
def test_activations_by_hand(words, rows, scored):
    """2 layers of width 64, of 2 heads of 32 with as many keys, and 256 gated, in float32."""
    parts = forecast(composed(*TEN, *words))
    tokens = scored + 10
    per_token = 4 * 4 * 64 + 4 * (2 * 64 + 4 * 64 + 4 * 256 + 2 * 64)
    layer = tokens * per_token + (scored + rows * 10) * 2 * 64 * 4
    embedded = tokens * 64 * 4
    assert parts["activations"] == 1.75 * (2 * layer + 3 * embedded)
    parts = forecast(composed(*TEN, *words, "update.activation_checkpointing=true"))
    assert parts["activations"] == 1.75 * (layer + 2 * embedded)


def test_weights_and_engines_by_hand():
    total = 494_032_768
    for words, copies in (
        ((), 3), (("update.kl_beta=0.1",), 4), (("update.epochs=2",), 6),
        (("update.minibatches=2",), 6), (("update.minibatches=2", "update.kl_beta=0.1"), 7),
    ):  # fmt: skip
        assert forecast(composed(*SHARDED, *words))["training"] == 4 * copies * total
    words = (*ON_GPU, "engine=vllm", "engine.kv_gb=3")
    parts = forecast(composed(*words))
    assert parts["engine"] == 2 * total + (3 + 1) * GIB  # in bfloat16, and its libraries
    assert "keys and values" not in parts  # which are the 3 GiB


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_an_update_keeps_what_torch_keeps(tuning):
    """Weights, gradients and moments match to the byte, activations to a tenth too many."""
    config = composed(*TEN, f"model.tuning={tuning}")
    parts = forecast(config)
    policy = load(config)
    optimizer = make_optimizer(policy, config.update)
    parameters = list(policy.model.parameters())
    own = {p.untyped_storage().data_ptr() for p in parameters}
    saved: dict[int, int] = {}

    def note(tensor):  # views of the same memory count once, weights not at all
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    count = config.prompts_per_step * config.nm.m  # one micro-batch of all, all of full length
    rollouts = [Rollout(PROMPT, (3,) * 32, np.zeros(32, np.float32), "", True)] * count
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        update(UpdateContext(policy, config), optimizer, rollouts, np.ones(count), [count], 1)
    activations = memory_forecast._activations(config, read_sizes(config.model))
    assert 1.0 <= activations / sum(saved.values()) <= 1.1
    assert parts["activations"] == 1.75 * activations  # the heap of a CPU was seen to hold

    gradients = sum(p.nbytes for p in trained_weights(optimizer))
    entries = optimizer.state.values()
    moments = sum(entry[name].nbytes for entry in entries for name in ("exp_avg", "exp_avg_sq"))
    adapters = 0 if tuning == "full" else 2 * gradients  # with the copies of a bfloat16 layer
    assert parts["training"] == adapters + gradients + moments
    trained = 0 if tuning == "full" else gradients  # adapters are no part of the model's weights
    assert parts["weights"] == sum(p.nbytes for p in parameters) - trained
    numbers = sum(p.numel() for p in trained_weights(optimizer))
    assert trained_numbers(config.model, read_sizes(config.model)) == numbers


def test_decoding_holds_what_the_cache_holds(monkeypatch):
    """No row ends, so all rows grow to the full length."""
    config = composed(*TEN, "engine.max_rows=64")
    engine, caches = TransformersEngine(load(config), 64, lambda: None), []
    engine.stop_ids = torch.tensor([10_000])

    def noted(room):
        caches.append(roomy_cache(room))
        return caches[-1]

    monkeypatch.setattr(transformers_engine, "roomy_cache", noted)
    engine.generate(GenerationRequest([PROMPT], 64, Sampling(1.0, 32), [0]))
    [cache] = caches
    assert cache.get_seq_length() == len(PROMPT) + 31
    held = sum(buffer.nbytes for layer in cache.layers for buffer in layer.buffers)
    assert forecast(config)["keys and values"] == held


def test_the_machine_is_compared_and_the_cure_named(set_memory):
    config = composed()
    needed = peak(config)
    for free, cure in ((needed + 1, False), (needed - 2**20, True)):
        set_memory(free, 4 * needed)
        said = describe([config], 1)
        assert said.startswith("at most ") and "\n" not in said
        assert said.endswith(memory_forecast.CURE) == cure


def test_jobs_and_processes_share_the_memory_of_a_cpu_but_not_of_gpus(set_memory):
    config = composed("hardware.processes=2")
    set_memory(4 * peak(config) + 9, 4 * peak(config) + 9)
    assert describe([config], 2).endswith(" are free for each of 4 processes")
    assert "for each of 6 processes; to fit, lower " in describe([config], 3)
    set_memory(141 * GIB, 141 * GIB)
    assert describe([composed(*SHARDED, "hardware.processes=8")], 8).endswith(" GB are free")
    assert "free" not in describe([composed()], None)


def test_the_largest_of_some_jobs_is_described():
    small, large = composed("engine.max_rows=8"), composed("engine.max_rows=4096")
    assert describe([small, large], None) == describe([large], None) != describe([small], None)


def test_a_model_that_nobody_knows_is_unknown(tmp_path):
    words = ("model=hub", "model.hub=some/body", "task=gsm8k", "dry_run=true")
    config = composed(*words)
    assert read_sizes(config.model) is None and forecast(config) == {}
    said = "unknown: model=body has neither model.sizes nor a config.json here"
    assert describe([config], 1) == said
    (tmp_path / "config.json").write_text("{}")  # of another kind of model
    elsewhere = composed("model=qwen2_5_3b", *words[2:], f"model.path={tmp_path}")
    assert read_sizes(elsewhere.model) is None  # whatever the preset's are


def test_processes_that_share_the_weights_by_hand():
    config = composed(*SHARDED, "hardware.processes=8", "hardware.shard=true")
    single = forecast(composed(*SHARDED))
    shared = forecast(config)
    total = 494_032_768
    layer = 896 * (2 * 896 + 2 * 128 + 3 * 4864 + 2)
    assert shared["weights"] == 4 * total / 8
    assert shared["training"] == 3 * 4 * total / 8
    embedded = total - 24 * layer
    # two layers, and the gradient of one twice: made, and added up; the same of the embeddings
    assert shared["gathered"] == 4 * (4 * layer + 3 * embedded)
    assert shared["engine"] == 4 * total
    assert not {"gathered", "engine"} & {*single}
    config.engine.dtype = "bfloat16"
    assert forecast(config)["engine"] == 2 * total
    for settings in (("hardware.processes=8",), ("hardware.shard=true",)):
        assert forecast(composed(*SHARDED, *settings)) == single


@pytest.mark.slow
def test_a_run_stays_below_its_forecast_and_not_far(run_py, tmp_path: Path):
    settings = (*SHORT, "nm=n64_m64", "prompts_per_step=8", "update.micro_batch_tokens=16384")
    result = run_py(*settings)
    assert result.returncode == 0, result.stderr
    shown = run_py(*settings, "dry_run=true").stdout
    size, unit = shown.split("memory: at most ")[1].split()[:2]
    planned = float(size) * {"GB": 1e9, "MB": 1e6}[unit]
    [file] = tmp_path.glob("runs/*/*/*/*/attempts/001/phases.json")
    phases = json.loads(file.read_text())
    peaks = {name: part.get("peak_bytes", 0) for name, part in phases.items()}
    measured = max(peaks.values())
    assert 0.95 <= planned / measured <= 1.5  # the heap's part differs from libc to libc
    assert peaks["preflight"] >= 0.8 * measured
