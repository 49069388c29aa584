"""The transformers engine on the real tiny model: tokens, log-probs and seeded draws."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from compose import composed
from policies import disturb, trained

from pods.engines import transformers_engine
from pods.engines.transformers_engine import TransformersEngine, sample
from pods.policy import logprobs
from pods.policy.packing import pack
from pods.policy.policy import Policy, load
from pods.policy.scoring import UpdateContext, score_all
from pods.system.signals import Preempted
from pods.types import GenerationRequest, Sampling

POLICY = load(composed())
QUESTIONS = ["7+8-4+1?", "1-3?", "5+0+2?", "9-1+3-3+8?"]
PROMPTS = [tuple(POLICY.tokenizer.encode(q, add_special_tokens=False)) for q in QUESTIONS]


def engine(max_rows=256, check=lambda: None, policy=POLICY):
    return TransformersEngine(policy, max_rows, check)


def request(n, temperature=1.0, limit=32, prompts=PROMPTS, seeds=None):
    seeds = range(1, len(prompts) + 1) if seeds is None else seeds
    return GenerationRequest(prompts, n, Sampling(temperature, limit), seeds)


def ids(groups):
    return [[rollout.completion_ids for rollout in group] for group in groups]


def test_greedy_equals_transformers_own_generate():
    groups = engine().generate(request(1, temperature=0.0))
    for prompt, [rollout] in zip(PROMPTS, groups, strict=True):
        expected = POLICY.model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=32)
        assert list(rollout.completion_ids) == expected[0, len(prompt) :].tolist()
        shown = POLICY.tokenizer.decode(rollout.completion_ids, skip_special_tokens=True)
        assert rollout.text == shown and POLICY.tokenizer.eos_token not in shown  # as graders read
        assert rollout.finished
        with torch.no_grad():  # its log-probs are those at temperature 1
            scores = POLICY.model(expected).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        assert rollout.logprobs == pytest.approx(scores.amax(1).numpy(), abs=1e-4)
    likeliest = GenerationRequest(PROMPTS, 1, Sampling(1.0, 32, top_k=1), range(4))
    assert ids(engine().generate(likeliest)) == ids(groups)
    [[cut], *_] = engine().generate(request(1, 0.0, limit=5))  # the limit ends it unfinished
    assert len(cut.completion_ids) == len(cut.logprobs) == 5 and not cut.finished


def test_any_of_several_ids_ends_a_completion(monkeypatch):
    """A model's generation config may name more than its tokenizer's own."""
    four = POLICY.tokenizer.convert_tokens_to_ids("4")
    own = POLICY.tokenizer.eos_token_id
    settings = POLICY.causal_lm.generation_config
    for named in ([four, own], four):
        monkeypatch.setattr(settings, "eos_token_id", named)
        assert POLICY.stop_ids == sorted([four, own])
    ends = set()
    for rollout in (r for group in engine().generate(request(16)) for r in group):
        *before, last = rollout.completion_ids
        ends.add(last)
        assert rollout.finished and not {four, own} & set(before)
    assert ends == {four, own}
    monkeypatch.setattr(settings, "eos_token_id", None)
    assert POLICY.stop_ids == [own]


def test_ids_that_the_tokenizer_does_not_know_are_never_drawn():
    """Models pad their output layer; here half of it counts as padding."""

    class Narrow(Policy):
        vocabulary = 9

    narrow = engine(policy=Narrow(POLICY.model, POLICY.tokenizer, None))
    groups = narrow.generate(request(8, temperature=100.0, limit=16))
    assert {i for group in groups for r in group for i in r.completion_ids} == set(range(9))
    model = SimpleNamespace(config=SimpleNamespace(vocab_size=32))
    padded = SimpleNamespace(tokenizer=range(17), causal_lm=model)
    assert Policy.vocabulary.fget(padded) == 17


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_the_trainers(temperature):
    for rollout in (r for group in engine().generate(request(8, temperature)) for r in group):
        with torch.no_grad():
            expected, _ = logprobs.token_logprobs(
                POLICY.causal_lm, pack([rollout], [[0]]),
                temperature=temperature, vocabulary=POLICY.vocabulary,
            )  # fmt: skip
        assert rollout.logprobs == pytest.approx(expected.numpy(), abs=1e-4)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_with_adapters_logprobs_are_the_trainers_before_and_after_an_update(dtype, bound):
    config = composed("model.tuning=lora", f"model.dtype={dtype}")
    policy, completions = load(config), []
    with_adapters = engine(policy=policy)
    for _ in range(2):
        [group] = with_adapters.generate(request(4, prompts=PROMPTS[:1]))
        scores = score_all(UpdateContext(policy, config), group)
        for rollout, expected in zip(group, scores, strict=True):
            assert rollout.logprobs == pytest.approx(expected.numpy(), abs=bound)
        completions.append([rollout.completion_ids for rollout in group])
        disturb(trained(policy), 0.05)
    assert completions[0] != completions[1]


def test_the_head_is_multiplied_once_for_all_rows():
    """In bfloat16 torch copies it for each row of states that do not lie side by side."""
    shapes, whole = [], []

    def look(_, arguments):
        shapes.append(arguments[0].shape[:2])
        whole.append(arguments[0].is_contiguous())

    hook = POLICY.causal_lm.get_output_embeddings().register_forward_pre_hook(look)
    with hook:
        engine().generate(request(3))
    assert shapes[0] == (len(PROMPTS), 1) and all(whole)


def test_seeds_decide_and_the_cut_into_chunks_does_not():
    before = torch.random.get_rng_state()
    first = ids(engine().generate(request(6)))
    assert torch.equal(before, torch.random.get_rng_state())  # no generator outside is touched
    assert ids(engine().generate(request(6))) == first
    assert ids(engine(max_rows=5).generate(request(6))) == first
    parts = [ids(engine().generate(replace(request(6), rows=r))) for r in (range(8), range(8, 24))]
    assert [[*one, *other] for one, other in zip(*parts, strict=True)] == first
    other = ids(engine().generate(request(6, seeds=[5, 2, 3, 4])))
    assert other[0] != first[0] and other[1:] == first[1:]
    assert len(set(first[3])) > 1


@pytest.mark.parametrize("max_rows", [5, 64])
def test_every_completion_is_reported_once_with_its_prompt_right_after_its_last_token(max_rows):
    tokens, reported = [0], []

    def count():  # called before each token of the batch
        tokens[0] += 1

    groups = engine(max_rows, count).generate(
        request(6, limit=24), lambda index, text: reported.append((index, text, tokens[0]))
    )
    expected = [(i, r.text, len(r.completion_ids)) for i, group in enumerate(groups) for r in group]
    assert sorted(one[:2] for one in reported) == sorted(one[:2] for one in expected)
    assert {rollout.finished for group in groups for rollout in group} == {True, False}
    if max_rows == 64:  # one batch of all
        assert sorted(reported) == sorted(expected)
        assert len({length for _, _, length in expected}) > 3


def test_a_shared_beginning_is_encoded_once_with_the_same_result(monkeypatch):
    unequal = [PROMPTS[0] * 2 + prompt for prompt in PROMPTS]
    equal = [prompt[:19] for prompt in unequal[1:]]
    one_begins_another = [unequal[1], unequal[1] + PROMPTS[2]]
    for prompts in (unequal, equal, one_begins_another):
        monkeypatch.setattr(transformers_engine, "MIN_SHARED_TOKENS", 10_000)
        plain = engine().generate(request(4, limit=16, prompts=prompts))
        monkeypatch.setattr(transformers_engine, "MIN_SHARED_TOKENS", 4)
        assert transformers_engine.shared_prefix(prompts) >= 16
        shared = engine().generate(request(4, limit=16, prompts=prompts))
        assert ids(shared) == ids(plain)
        for mine, theirs in zip(shared, plain, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_it_can_be_stopped_between_tokens():
    with pytest.raises(Preempted):
        engine(8, Mock(side_effect=Preempted)).generate(request(1, limit=8))


def test_sampling_follows_the_distribution():
    logits = torch.log(torch.tensor([[0.5, 0.2, 0.3]])).expand(10_000, -1)
    uniforms = (torch.arange(10_000) + 0.5) / 10_000
    token, logprob = sample(logits, Sampling(1.0, 1), uniforms)
    assert torch.bincount(token, minlength=3).tolist() == [5000, 2000, 3000]
    assert logprob.exp()[token == 1].mean() == pytest.approx(0.2)
    sharper, _ = sample(logits, Sampling(0.5, 1), uniforms)  # p^2 / sum p^2 = 25, 4, 9 of 38
    counts = torch.bincount(sharper, minlength=3).double() / 10_000
    assert counts.tolist() == pytest.approx([25 / 38, 4 / 38, 9 / 38], abs=1e-3)
    # only the k likeliest tokens are drawn, and log-probs are among all
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]])).expand(7_000, -1)
    uniforms = (torch.arange(7_000) + 0.5) / 7_000
    token, logprob = sample(logits, Sampling(1.0, 1, top_k=2), uniforms)
    assert torch.bincount(token, minlength=4).tolist() == [0, 4000, 0, 3000]
    assert logprob.exp().unique().tolist() == pytest.approx([0.3, 0.4])
    every, _ = sample(logits, Sampling(1.0, 1, top_k=9), uniforms)
    assert set(every.tolist()) == {0, 1, 2, 3}
    # a token without probability is never drawn
    logits = torch.tensor([[-torch.inf, 0.3, 0.0, -torch.inf]]).expand(2, -1)
    ends = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    token, _ = sample(logits, Sampling(1.0, 1), ends)
    assert token.tolist() == [1, 2]
