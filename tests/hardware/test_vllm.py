"""The real vLLM engine: the policy's own tokens and log-probs, after every change of it."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import vllm_checks
from compose import composed
from policies import disturb
from transformers import Qwen2Config, Qwen2ForCausalLM
from vllm_checks import Running, it_can_be_stopped_between_tokens

from pods.engines.transformers_engine import TransformersEngine
from pods.policy.policy import load
from pods.types import GenerationRequest, Sampling

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm engines")]

QUESTIONS = ["7+8-4+1?", "1-3?", "5+0+2?", "9-1+3-3+8?"]
SEEDS = [1, 2, 3, 4]
ALIVE: list = []  # deleting an engine would break others in the process


def started(*overrides, check=lambda: None):
    from pods.engines.vllm_engine import VllmEngine

    config = composed("engine=vllm", *overrides)
    policy = load(config)
    engine = VllmEngine(policy, config, check)
    running = Running(policy, engine, config, prompts(policy), time.monotonic() + 3600)
    ALIVE.append(running)
    return running


@pytest.fixture(scope="module")
def full():
    """All weights trained, merged."""
    return started()


@pytest.fixture(scope="module")
def adapters():
    """LoRA, merged."""
    return started("model.tuning=lora")


@pytest.fixture(scope="module")
def swapped():
    """LoRA, swapped in as an adapter."""
    return started("model.tuning=lora", "engine.sync=adapter")


@pytest.fixture(params=["full", "adapters", "swapped"])
def each(request):
    """Every way to sync; the policy is as it was before when the test ends."""
    running = request.getfixturevalue(request.param)
    before = [p.detach().clone() for p in running.trained()]
    yield running
    with torch.no_grad():
        for parameter, start in zip(running.trained(), before, strict=True):
            parameter.copy_(start)
    running.engine.sync()


def prompts(policy):
    return [tuple(policy.tokenizer.encode(q, add_special_tokens=False)) for q in QUESTIONS]


def asked(running, n, temperature=1.0, limit=32, seeds=SEEDS):
    return GenerationRequest(running.prompts, n, Sampling(temperature, limit), seeds)


def ids(groups):
    return [[rollout.completion_ids for rollout in group] for group in groups]


def largest_gap(running, n=8):
    return running.gaps(running.draw(n, running.config.sampling.temperature, 32)).max()


ASKED = [check for check in vllm_checks.CHECKS if check is not it_can_be_stopped_between_tokens]


@pytest.mark.parametrize("check", ASKED, ids=lambda check: check.__name__)
def test_what_is_asked_of_vllm_on_a_card_holds_for_every_way_to_sync(each, check):
    """But for its stop, which needs a model that never ends a completion by itself."""
    before = [p.detach().clone() for p in each.policy.model.parameters()]
    check(replace(each, deadline=time.monotonic() + 5))  # the script of a card makes 100 syncs
    assert all(map(torch.equal, before, each.policy.model.parameters()))
    assert largest_gap(each, 4) < 1e-4


def test_greedy_tokens_are_those_of_the_transformers_engine(full):
    before = torch.random.get_rng_state()
    expected = TransformersEngine(full.policy, 64, lambda: None).generate(asked(full, 1, 0.0))
    for [mine], [theirs] in zip(full.draw(1, 0.0, 32), expected, strict=True):
        assert mine.completion_ids == theirs.completion_ids
        assert (mine.prompt_ids, mine.text) == (theirs.prompt_ids, theirs.text)
        assert mine.finished and theirs.finished
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    cooler = replace(full.config.sampling, temperature=0.7)
    assert largest_gap(replace(full, config=replace(full.config, sampling=cooler))) < 1e-4
    [[cut], *_] = full.draw(1, 0.0, 5)  # the limit ends it unfinished
    assert len(cut.completion_ids) == len(cut.logprobs) == 5 and not cut.finished
    assert torch.equal(before, torch.random.get_rng_state())  # no generator outside is touched


def test_only_the_k_likeliest_tokens_are_drawn_and_their_log_probs_are_among_all(full):
    settings = Sampling(2.0, 1, top_k=2)
    [group] = full.engine.generate(GenerationRequest(full.prompts[:1], 256, settings, [5]))
    assert len({rollout.completion_ids for rollout in group}) == 2
    hotter = replace(full.config.sampling, temperature=2.0)
    apart = replace(full, config=replace(full.config, sampling=hotter)).gaps([group])
    assert apart.max() < 1e-4
    drawn = {rollout.completion_ids: np.exp(rollout.logprobs[0]) for rollout in group}
    assert sum(drawn.values()) < 0.99  # among the two alone it would be 1
    colder = full.engine.generate(asked(full, 4))  # the next call has a temperature of its own
    assert full.gaps(colder).max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_divided_by_the_temperature_of_the_call_and_padding_is_never_drawn(dtype):
    from pods.engines.vllm_setup import TemperedLogits

    tempered = TemperedLogits(vocabulary=3)
    model = torch.nn.Module()
    model.language_model = torch.nn.Module()  # as in a model that also takes images
    model.language_model.logits_processor = torch.nn.Identity()
    tempered.watch(model)
    for temperature, factor in ((0.5, 2.0), (0, 1.0), (0.005, 200.0), (1.0, 1.0)):
        tempered.temperature = temperature
        logits = torch.tensor([[1.0, -2.0, 4.0, 9.0, 9.0]], dtype=dtype)
        changed = model.language_model.logits_processor(logits).tolist()
        expected = [factor, -2 * factor, 4 * factor, -torch.inf, -torch.inf]
        assert changed == [pytest.approx(expected)]

    with pytest.raises(ValueError, match="Linear has no logits_processor"):
        tempered.watch(torch.nn.Linear(1, 1))


def test_every_completion_is_reported_once_with_its_prompt_as_soon_as_it_ends(full):
    reported = []
    groups = full.engine.generate(asked(full, 8), lambda *both: reported.append(both))
    expected = [(i, rollout.text) for i, group in enumerate(groups) for rollout in group]
    assert sorted(reported) == sorted(expected)
    assert reported != expected  # short ones first


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("up_proj",)])
def test_a_part_of_a_fused_layer_can_be_a_target(targets, monkeypatch):
    monkeypatch.setattr("pods.policy.lora.LORA_TARGETS", targets)
    running = started("model.tuning=lora")
    disturb(running.trained(), 0.05)
    running.engine.sync()
    assert largest_gap(running) < 1e-4


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_ids_that_only_pad_the_output_layer_are_never_drawn(tmp_path, tuning):
    """All weights of a model like Qwen arrive: untied head, biases, a padded vocabulary."""
    small = load(composed())
    config = Qwen2Config(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
        tie_word_embeddings=False, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    small.tokenizer.save_pretrained(tmp_path)
    running = started(f"model.path={tmp_path}", f"model.tuning={tuning}")
    assert running.policy.vocabulary == 19
    disturb(running.trained(), 0.05)
    running.engine.sync()
    groups = running.draw(64, 1.0, 32)
    assert max(token for group in ids(groups) for one in group for token in one) < 19
    assert running.gaps(groups).max() < 1e-4


def test_every_weight_that_is_trained_arrives(each):
    """Log-probs of stale weights are far off, and after a sync they are equal."""
    before = each.draw(8, 1.0, 32)
    sets = [[parameter] for parameter in each.trained()]
    if hasattr(each.policy.model, "peft_config"):  # A without B has no effect
        sets = [each.trained()]
    for parameters in sets:
        disturb(parameters, 0.05)
        assert each.gaps(before).max() > 1e-2
        kept = each.engine.sync()
        assert kept is None or kept == pytest.approx(1.0, abs=1e-4)
        before = each.draw(8, 1.0, 32)
        assert each.gaps(before).max() < 1e-4


def test_the_adapter_in_the_engine_is_the_newest_and_the_only_one(swapped):
    engine, first = swapped.engine, swapped.engine.adapter
    engine.sync()
    assert engine.adapter is first  # nothing was trained, and nothing is handed over
    with torch.no_grad():
        swapped.trained()[0].add_(0)  # as an update without a gradient does
    engine.sync()
    assert engine.adapter.lora_int_id == first.lora_int_id + 1
    assert engine.adapter.lora_name != first.lora_name
    assert engine.vllm.list_loras() == {engine.adapter.lora_int_id}


def test_on_a_card_logits_are_summed_in_float32():
    from pods.engines.vllm_setup import arguments

    card, cpu = composed("engine=vllm", "hardware=l40s", "dry_run=true"), composed("engine=vllm")
    assert arguments(card)["hf_overrides"] == {"head_dtype": "float32"}
    eager = composed("engine=vllm", "hardware=l40s", "engine.graphs=none", "dry_run=true")
    assert [arguments(c)["enforce_eager"] for c in (card, eager, cpu)] == [False, True, True]
    assert arguments(card)["gpu_memory_utilization"] < 0.1  # or vLLM asks for most of the card
    assert "async_scheduling" not in arguments(card)  # vLLM chooses
    assert "hf_overrides" not in arguments(cpu)


def test_more_prompts_than_a_forward_pass_takes_are_answered_the_same_twice():
    running = started("sampling.max_prompt_tokens=96")
    first = running.prompts[0]
    long = [first * 10 + first[: i % 8] for i in range(40)]  # 3,300 tokens; a pass takes 2,048
    request = GenerationRequest(long, 4, Sampling(1.0, 8), range(40))
    first, second = (running.engine.generate(request) for _ in range(2))
    assert ids(first) == ids(second)
    assert running.gaps(first).max() < 1e-4
