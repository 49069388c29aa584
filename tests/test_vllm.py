"""The real vLLM engine: the policy's own tokens and log-probs, after every change of it."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from compose import composed
from transformers import Qwen2Config, Qwen2ForCausalLM

from pods.engines.sync_check import check_weight_sync
from pods.engines.transformers_engine import TransformersEngine
from pods.policy.logprobs import token_logprobs
from pods.policy.packing import pack
from pods.policy.policy import load
from pods.system.signals import Preempted
from pods.types import GenerationRequest, Sampling

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm engines")]

QUESTIONS = ["7+8-4+1?", "1-3?", "5+0+2?", "9-1+3-3+8?"]
SEEDS = [1, 2, 3, 4]
ALIVE: list = []  # deleting an engine would break others in the process


def nothing() -> None:
    pass


def started(*overrides, check=nothing):
    from pods.engines.vllm_engine import VllmEngine

    config = composed("engine=vllm", *overrides)
    policy = load(config)
    ALIVE.append(VllmEngine(policy, config, check))
    return policy, ALIVE[-1]


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


@pytest.fixture(scope="module")
def swapped_files():
    """LoRA, swapped in as an adapter that passes through files."""
    return started("model.tuning=lora", "engine.sync=adapter_file")


@pytest.fixture(params=["full", "adapters", "swapped", "swapped_files"])
def each(request):
    """Every way to sync; the policy is as it was before when the test ends."""
    policy, engine = request.getfixturevalue(request.param)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    yield policy, engine
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.copy_(before[name])
    engine.sync()


def prompts(policy):
    return [tuple(policy.tokenizer.encode(q, add_special_tokens=False)) for q in QUESTIONS]


def draw(policy, engine, n, temperature=1.0, limit=32, seeds=SEEDS, on_completion=None):
    request = GenerationRequest(prompts(policy), n, Sampling(temperature, limit), seeds)
    return engine.generate(request, on_completion)


def ids(groups):
    return [[rollout.completion_ids for rollout in group] for group in groups]


def gaps(policy, groups, temperature):
    """|engine's log-prob - trainer's| of every token."""
    each = []
    for rollout in [rollout for group in groups for rollout in group]:
        with torch.no_grad():
            expected, _ = token_logprobs(
                policy.causal_lm, pack([rollout], [[0]]),
                temperature=temperature, vocabulary=policy.vocabulary,
            )  # fmt: skip
        each.append(np.abs(rollout.logprobs - expected.numpy()))
    return np.concatenate(each)


def trained(policy):
    return {n: p for n, p in policy.model.named_parameters() if p.requires_grad}


def disturb(parameter, size=0.05):
    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        parameter.add_(size * noise)


def touch(policy):
    """Write a weight as it is, as an update without a gradient does."""
    with torch.no_grad():
        next(iter(trained(policy).values())).add_(0)


def disturb_all(policy):
    for parameter in trained(policy).values():
        disturb(parameter)


def test_greedy_tokens_are_those_of_the_transformers_engine(full):
    policy, engine = full
    expected = draw(policy, TransformersEngine(policy, 64, nothing), 1, 0.0)
    for [mine], [theirs] in zip(draw(policy, engine, 1, 0.0), expected, strict=True):
        assert mine.completion_ids == theirs.completion_ids
        assert (mine.prompt_ids, mine.text) == (theirs.prompt_ids, theirs.text)
        assert mine.finished and theirs.finished
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_the_distribution_drawn_from(full, temperature):
    policy, engine = full
    groups = draw(policy, engine, 8, temperature)
    assert gaps(policy, groups, temperature).max() < 1e-4


def test_frequencies_are_the_probabilities(full):
    policy, engine = full
    [group] = engine.generate(GenerationRequest(prompts(policy)[:1], 256, Sampling(1.0, 1), [5]))
    drawn = np.array([rollout.completion_ids[0] for rollout in group])
    for token in np.unique(drawn):
        p = np.exp(next(r.logprobs[0] for r in group if r.completion_ids[0] == token))
        assert abs((drawn == token).mean() - p) < 4 * np.sqrt(p * (1 - p) / 256) + 1e-9


def test_every_completion_is_reported_once_with_its_prompt_as_soon_as_it_ends(full):
    policy, engine = full
    reported = []
    groups = draw(policy, engine, 8, on_completion=lambda *both: reported.append(both))
    expected = [(i, rollout.text) for i, group in enumerate(groups) for rollout in group]
    assert sorted(reported) == sorted(expected)
    assert reported != expected  # short ones first


def test_the_length_limit_ends_a_completion_that_is_then_not_finished(full):
    policy, engine = full
    [[rollout]] = engine.generate(GenerationRequest(prompts(policy)[:1], 1, Sampling(0.0, 5), [0]))
    assert len(rollout.completion_ids) == len(rollout.logprobs) == 5
    assert not rollout.finished


@pytest.mark.parametrize(
    "overrides",
    [("model.tuning=lora", "model.lora.targets=[q_proj,v_proj]"),
     ("model.tuning=lora", "model.lora.targets=[up_proj]")],
)  # fmt: skip
def test_a_part_of_a_fused_layer_can_be_a_target(overrides):
    policy, engine = started(*overrides)
    disturb_all(policy)
    engine.sync()
    groups = draw(policy, engine, 8)
    assert gaps(policy, groups, 1.0).max() < 1e-4


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
    policy, engine = started(f"model.path={tmp_path}", f"model.tuning={tuning}")
    assert policy.vocabulary == 19
    disturb_all(policy)
    engine.sync()
    groups = draw(policy, engine, 64)
    assert max(token for group in ids(groups) for one in group for token in one) < 19
    assert gaps(policy, groups, 1.0).max() < 1e-4


def test_it_refuses_to_generate_from_stale_weights(each):
    policy, engine = each
    disturb(next(iter(trained(policy).values())))
    with pytest.raises(RuntimeError, match="has changed since vLLM was last synced"):
        draw(policy, engine, 1, limit=8)


def test_every_weight_that_is_trained_arrives(each):
    """Log-probs of stale weights are far off, and after a sync they are equal."""
    policy, engine = each
    before = draw(policy, engine, 8)
    if not hasattr(policy.model, "peft_config"):
        sets = [[parameter] for parameter in trained(policy).values()]
    else:  # A without B has no effect
        sets = [list(trained(policy).values())]
    for parameters in sets:
        for parameter in parameters:
            disturb(parameter)
        stale = gaps(policy, before, 1.0)
        assert stale.max() > 1e-2
        engine.sync()
        after = draw(policy, engine, 8)
        assert gaps(policy, after, 1.0).max() < 1e-4
        before = after


@pytest.mark.parametrize("fault", [False, True])
def test_the_weight_sync_check_at_the_start_of_a_run(each, monkeypatch, fault):
    from pods.engines import vllm_engine

    policy, engine = each
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    if fault:
        monkeypatch.setattr(vllm_engine, "merge", lambda *_: 1.0)
        monkeypatch.setattr(vllm_engine, "hand_over_adapter", lambda *_: engine.adapter)
        monkeypatch.setattr(vllm_engine, "swap_adapter_files", lambda *_: engine.adapter)
    with pytest.raises(ValueError, match="weight sync does not work") if fault else nullcontext():
        check_weight_sync(policy, engine, prompts(policy)[0])
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, before[name])
    monkeypatch.undo()
    engine.sync()
    groups = draw(policy, engine, 4)
    assert gaps(policy, groups, 1.0).max() < 1e-4


def test_a_hundred_syncs_leave_the_trainers_weights_as_they_are(each):
    policy, engine = each
    for parameter in trained(policy).values():
        disturb(parameter, 1e-3)
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    for _ in range(100):
        touch(policy)
        kept = engine.sync()
    assert kept is None or kept == pytest.approx(1.0, abs=1e-4)
    for name, parameter in policy.model.named_parameters():
        assert parameter.detach().numpy().tobytes() == before[name].numpy().tobytes()
    groups = draw(policy, engine, 4)
    assert gaps(policy, groups, 1.0).max() < 1e-4


@pytest.mark.parametrize("name", ["swapped", "swapped_files"])
def test_the_adapter_in_the_engine_is_the_newest_and_the_only_one(request, name):
    policy, engine = request.getfixturevalue(name)
    first = engine.adapter
    engine.sync()
    assert engine.adapter is first  # nothing was trained, and nothing is handed over
    touch(policy)
    engine.sync()
    assert engine.adapter.lora_int_id == first.lora_int_id + 1
    assert engine.adapter.lora_name != first.lora_name
    assert engine.vllm.list_loras() == {engine.adapter.lora_int_id}


def test_a_padding_that_a_cards_sampler_cannot_forbid_is_refused_at_start():
    from pods.engines.vllm_setup import check_padding

    card = composed("engine=vllm", "hardware=l40s", "dry_run=true")
    check_padding(1024, card)
    check_padding(1025, composed("engine=vllm"))  # a CPU's sampler can
    with pytest.raises(ValueError, match=r"padded by 1025 ids .* at most 1024; use engine=tran"):
        check_padding(1025, card)


def test_on_a_card_logits_are_summed_in_float32_and_the_older_runner_can_be_chosen(monkeypatch):
    from pods.engines.vllm_setup import arguments

    on_card = ("engine=vllm", "hardware=l40s", "dry_run=true")
    settings = arguments(composed(*on_card))
    assert settings["hf_overrides"] == {"head_dtype": "float32"}
    assert "async_scheduling" not in settings  # vLLM chooses
    older = arguments(composed(*on_card, "engine.older_runner=true"))
    assert older["async_scheduling"] is False
    assert "hf_overrides" not in arguments(composed("engine=vllm"))


def test_two_fresh_engines_draw_the_same_in_every_call():
    calls = []
    for _ in range(2):
        fresh = started()
        seeds = (SEEDS, [9, 8, 7, 6], SEEDS)
        calls.append([ids(draw(*fresh, 16, seeds=each)) for each in seeds])
    assert calls[0] == calls[1]
    assert calls[0][0] == calls[0][2] != calls[0][1]
    assert len(set(calls[0][0][3])) > 1


def test_more_prompts_than_a_forward_pass_takes_are_answered_the_same_twice():
    policy, engine = started("sampling.max_prompt_tokens=96")
    [first, *_] = prompts(policy)
    long = [first * 10 + first[: i % 8] for i in range(40)]  # 3,300 tokens; a pass takes 2,048
    request = GenerationRequest(long, 4, Sampling(1.0, 8), range(40))
    first, second = (engine.generate(request) for _ in range(2))
    assert ids(first) == ids(second)
    assert gaps(policy, first, 1.0).max() < 1e-4


def test_it_can_be_stopped_between_tokens_and_leaves_nothing_behind():
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls == 8:
            raise Preempted

    policy, engine = started(check=check)
    with pytest.raises(Preempted):
        draw(policy, engine, 4)
    assert not engine.vllm.engine_core.engine_core.scheduler.has_unfinished_requests()
    after = ids(draw(policy, engine, 4))
    assert after == ids(draw(policy, engine, 4))


def test_no_generator_outside_is_touched(full):
    policy, engine = full
    before = torch.random.get_rng_state()
    draw(policy, engine, 2, limit=8)
    assert torch.equal(before, torch.random.get_rng_state())
