"""Log-probs and updates of the real tiny model, compared with plain torch and each other."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from compose import composed
from precision import to_double
from transformers import AutoConfig, AutoModelForCausalLM

from pods.config.parse import ConfigError
from pods.policy import update
from pods.policy.export import merged_weights
from pods.policy.lora import rounded_to_nf4
from pods.policy.optimizer import (
    learning_rate,
    make_optimizer,
    nonfinite,
    restore_optimizer,
    save_optimizer,
)
from pods.policy.policy import load
from pods.policy.scoring import Context
from pods.system.signals import Preempted
from pods.types import Rollout

TEXTS = [
    ("7+8?", "7+8=5;#5"),
    ("1-3+1+7?", "1-3=8;8+1=9;9+7=6;#6"),
    ("5+0+2?", "#"),
    ("9-1?", "9-1=8;#8"),
    ("7+8?", "7+8=4;7+8=5;#5"),
    ("7+8?", "#"),
]
ADVANTAGES = np.array([1.0, -0.5, 2.0, -1.5, 0.75, -2.0])


def make(*overrides):
    config = composed(*overrides)
    return config, load(config)


def rollouts(policy):
    """The rollouts of TEXTS; the engine's log-probs are 0 in them."""
    encoded = [
        [tuple(policy.tokenizer.encode(t, add_special_tokens=False)) for t in texts]
        for texts in TEXTS
    ]
    return [
        Rollout(prompt, ids, np.zeros(len(ids), np.float32), text, True)
        for (prompt, ids), (_, text) in zip(encoded, TEXTS, strict=True)
    ]


def run_update(
    config, policy, optimizer, kept=None, advantages=ADVANTAGES, step=1, check=lambda: None,
    sizes=None,
):  # fmt: skip
    context, kept = Context(policy, config, check=check), kept or rollouts(policy)
    return update.update(context, optimizer, kept, advantages, sizes or [1] * len(kept), step)


def plain_logprobs(policy, rollout, temperature=1.0):
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
    logprobs = (policy.causal_lm(ids).logits[0] / temperature).log_softmax(-1)
    start = len(rollout.prompt_ids)
    return torch.stack([logprobs[t - 1, ids[0, t]] for t in range(start, ids.shape[1])])


def trained(policy):
    return [p for p in policy.model.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def assert_close_weights(policy, other, **tolerances):
    for mine, theirs in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, **tolerances)


def on_policy_loss(policy):
    """sum_i -A_i / (M |o_i|) sum_t log p, whose gradient is that of an on-policy update."""
    return sum(
        -advantage * plain_logprobs(policy, rollout).mean() / len(TEXTS)
        for advantage, rollout in zip(ADVANTAGES, rollouts(policy), strict=True)
    )


def gradient(config, policy, order=(0, 1, 2, 3, 4, 5)):
    """The gradient of one on-policy step, read off an SGD step of size 1."""
    before, order = flat(trained(policy)), list(order)
    start = [p.detach().clone() for p in trained(policy)]
    config = replace(config, update=replace(config.update, lr=1.0, grad_clip=1e9))
    kept = [rollouts(policy)[i] for i in order]
    optimizer = torch.optim.SGD(trained(policy), lr=1.0)
    run_update(config, policy, optimizer, kept, advantages=ADVANTAGES[order])
    change = before - flat(trained(policy))
    with torch.no_grad():
        for parameter, old in zip(trained(policy), start, strict=True):
            parameter.copy_(old)
    return change


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "dr_grpo"])
@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_gradient_does_not_depend_on_micro_batches_or_order(aggregation, tuning):
    config, policy = make(
        f"update.aggregation={aggregation}", "update.kl_beta=0.1", f"model.tuning={tuning}"
    )
    to_double(policy.model)
    if policy.reference_model is not None:
        to_double(policy.reference_model)
    with torch.no_grad():  # away from the start, so that the KL term has a gradient
        for parameter in trained(policy):
            parameter.add_(0.01)
    expected = gradient(config, policy)
    assert expected.abs().max() > 1e-3
    for tokens in (1, 20, 40):  # 1: each sequence alone, with a prompt of its own
        small = replace(config, update=replace(config.update, micro_batch_tokens=tokens))
        assert torch.allclose(gradient(small, policy), expected, rtol=1e-9, atol=1e-9)
    shuffled = gradient(config, policy, [2, 0, 4, 3, 1, 5])
    assert torch.allclose(shuffled, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_activation_checkpointing_saves_less_and_leaves_the_gradient(tuning):
    gradients, saved = [], []
    for enabled in (False, True):
        overrides = (f"update.activation_checkpointing={enabled}", f"model.tuning={tuning}")
        config, policy = make(*overrides)

        def count(tensor):
            saved[-1] += tensor.numel()
            return tensor

        saved.append(0)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            gradients.append(gradient(config, policy))
    assert torch.equal(*gradients) and gradients[0].abs().max() > 1e-3
    assert saved[1] < saved[0] / 2


def test_on_policy_gradient_is_the_papers_formula():
    """L_PODS with ratio 1: sum_i A_i / (M |o_i|) sum_t grad log p, by plain autograd."""
    config, policy = make()
    to_double(policy.model)
    actual = gradient(config, policy)
    expected = flat(torch.autograd.grad(on_policy_loss(policy), trained(policy)))
    assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-7)


def test_epochs_and_minibatches_make_the_clip_live():
    narrow = ("update.lr=0.003", "update.clip_low=0.02", "update.clip_high=0.02")
    config, policy = make(*narrow, "update.epochs=4", "update.minibatches=2")
    stats = run_update(config, policy, make_optimizer(policy, config.update))
    assert 0 < stats.clip_fraction <= 1
    once, policy = make(*narrow)
    on_policy = run_update(once, policy, make_optimizer(policy, once.update))
    assert on_policy.clip_fraction == 0


def test_old_logprobs_stay_those_before_the_first_update():
    """Two epochs by hand: the second ratio is against the first weights, not against itself."""
    config, policy = make(
        "update.epochs=2", "update.clip_low=1", "update.clip_high=100", "update.lr=1e-4"
    )
    to_double(policy.model)
    other = copy.deepcopy(policy)
    relaxed = replace(config, update=replace(config.update, grad_clip=1e9))
    run_update(relaxed, policy, torch.optim.SGD(trained(policy), lr=1e-4))

    optimizer = torch.optim.SGD(trained(other), lr=1e-4)
    old = [plain_logprobs(other, r).detach() for r in rollouts(other)]
    for _ in range(2):
        optimizer.zero_grad()
        loss = sum(
            -advantage * (plain_logprobs(other, r) - o).exp().mean() / len(TEXTS)
            for advantage, r, o in zip(ADVANTAGES, rollouts(other), old, strict=True)
        )
        loss.backward()
        optimizer.step()
    assert_close_weights(policy, other, rtol=1e-6, atol=1e-9)


def test_kl_is_measured_against_the_start_with_full_weights_and_with_adapters():
    for tuning in ("full", "lora"):
        config, policy = make("update.kl_beta=0.04", f"model.tuning={tuning}", "update.lr=0.01")
        optimizer = make_optimizer(policy, config.update)
        first = run_update(config, policy, optimizer)
        second = run_update(config, policy, optimizer, step=2)
        assert first.kl == pytest.approx(0.0, abs=1e-6)
        assert second.kl > 1e-5


def test_minibatches_take_their_own_old_logprobs_and_denominators():
    """Two minibatches of three groups by hand."""
    config, policy = make("update.minibatches=2", "update.lr=2e-4", "update.grad_clip=1e9",
                          "update.clip_low=1", "update.clip_high=1e9")  # fmt: skip
    to_double(policy.model)
    other = copy.deepcopy(policy)
    run_update(config, policy, torch.optim.SGD(trained(policy), lr=1), step=5)

    optimizer = torch.optim.SGD(trained(other), lr=2e-4)
    kept = rollouts(other)
    old = [plain_logprobs(other, r).detach() for r in kept]
    for members in ((0, 1, 2), (3, 4, 5)):
        optimizer.zero_grad()
        sum(
            -ADVANTAGES[i] * (plain_logprobs(other, kept[i]) - old[i]).exp().mean() / 3
            for i in members
        ).backward()
        optimizer.step()
    assert_close_weights(policy, other, rtol=1e-5, atol=1e-8)


def test_the_gap_between_engine_and_trainer_is_measured():
    config, policy = make()
    kept = rollouts(policy)
    exact = [replace(r, logprobs=plain_logprobs(policy, r).detach().numpy()) for r in kept]
    exact[2] = replace(exact[2], logprobs=exact[2].logprobs + np.float32(0.25))
    for overrides in ((), ("update.epochs=2",)):
        config, policy = make(*overrides)
        stats = run_update(config, policy, make_optimizer(policy, config.update), exact)
        assert stats.logprob_gap == pytest.approx(0.25, abs=1e-4)
        share = len(exact[2].completion_ids) / sum(len(r.completion_ids) for r in exact)
        assert stats.logprob_gap_mean == pytest.approx(0.25 * share, abs=1e-5)


CORRECTIONS = ("token_truncate", "token_mask", "sequence_mask")


def mismatched(policy):
    """Rollouts whose engine is off at each token, and how far: trainer less engine."""
    generator = np.random.default_rng(1)
    kept, shifts = [], []
    for r in rollouts(policy):
        shift = generator.normal(0, 0.3, len(r.completion_ids)).astype(np.float32)
        engine = plain_logprobs(policy, r).detach().numpy() - shift
        kept.append(replace(r, logprobs=engine.astype(np.float32)))
        shifts.append(shift.astype(float))
    return kept, shifts


def weights_by_hand(kind, shifts, cap):
    """Each rollout's weights, and which of them were cut, from trainer less engine."""
    if kind == "sequence_mask":
        shifts = [np.full(len(shift), shift.sum()) for shift in shifts]
    ratios = [np.exp(shift) for shift in shifts]
    over = cap if kind == "token_truncate" else 0.0
    return [np.where(r > cap, over, r) for r in ratios], [r > cap for r in ratios]


@pytest.mark.parametrize(
    ("kind", "epochs"), [("token_truncate", 1), *((kind, 2) for kind in CORRECTIONS)]
)
def test_importance_weights_each_token_of_the_gradient(kind, epochs):
    """By plain autograd: the weights stay those before the first update, while the ratio moves."""
    config, policy = make(
        f"update.importance={kind}", "update.importance_cap=1.2", f"update.epochs={epochs}",
        "update.lr=0.002", "update.grad_clip=1e9", "update.clip_low=1", "update.clip_high=1e9",
    )  # fmt: skip
    to_double(policy.model)
    other = copy.deepcopy(policy)
    before = flat(trained(policy))
    kept, shifts = mismatched(policy)
    optimizer = torch.optim.SGD(trained(policy), lr=1.0)
    run_update(config, policy, optimizer, kept)

    optimizer = torch.optim.SGD(trained(other), lr=0.002)
    weights = [torch.from_numpy(w) for w in weights_by_hand(kind, shifts, 1.2)[0]]
    old = [plain_logprobs(other, r).detach() for r in kept]
    for _ in range(epochs):
        optimizer.zero_grad()
        sum(
            -advantage * (w * (plain_logprobs(other, r) - o).exp()).mean() / len(TEXTS)
            for advantage, w, r, o in zip(ADVANTAGES, weights, kept, old, strict=True)
        ).backward()
        optimizer.step()
    mine, theirs = flat(trained(policy)) - before, flat(trained(other)) - before
    assert theirs.abs().max() > 1e-3
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()


@pytest.mark.parametrize("kind", ["off", *CORRECTIONS])
def test_gaps_and_weights_are_means_over_tokens_for_any_micro_batches(kind):
    cap, changes = 1.2, []
    for off_policy in ((), ("update.epochs=2", "update.minibatches=2")):
        for tokens in (8192, 40, 1):
            config, policy = make(
                f"update.importance={kind}", f"update.importance_cap={cap}", "update.lr=0.002",
                f"update.micro_batch_tokens={tokens}", "update.grad_clip=1e9", *off_policy,
            )  # fmt: skip
            to_double(policy.model)
            before = flat(trained(policy))
            kept, shifts = mismatched(policy)
            optimizer = torch.optim.SGD(trained(policy), lr=1.0)
            stats = run_update(config, policy, optimizer, kept)
            changes.append(flat(trained(policy)) - before)

            gaps = np.abs(np.concatenate(shifts))
            weights, cut = map(np.concatenate, weights_by_hand(kind, shifts, cap))
            assert stats.logprob_gap == pytest.approx(gaps.max(), rel=1e-5)
            assert stats.logprob_gap_mean == pytest.approx(gaps.mean(), rel=1e-5)
            if kind == "off":
                assert (stats.importance_mean, stats.importance_cut) == (1.0, 0.0)
            else:
                assert stats.importance_mean == pytest.approx(weights.mean(), rel=1e-5)
                assert stats.importance_cut == pytest.approx(cut.mean()) and 0 < cut.mean() < 1
    for in_one, *in_several in (changes[:3], changes[3:]):
        assert in_one.abs().max() > 1e-3
        for change in in_several:
            assert torch.allclose(change, in_one, rtol=1e-4, atol=1e-9)


def test_without_the_correction_the_engines_logprobs_change_nothing():
    weights = []
    for engine in (rollouts, lambda policy: mismatched(policy)[0]):
        config, policy = make("update.importance=off", "update.lr=0.01")
        optimizer = make_optimizer(policy, config.update)
        run_update(config, policy, optimizer, engine(policy))
        weights.append(flat(trained(policy)))
    assert torch.equal(*weights)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
def test_adapters_cannot_sit_on_the_output_layer():
    with pytest.raises(ValueError, match="output layer"):
        make("model.tuning=lora", "model.lora.targets=[lm_head]")


def test_adapters_train_nothing_but_themselves_and_start_from_the_seed():
    config, policy = make("model.tuning=lora", "update.lr=0.01")
    names = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert names and all("lora_" in name for name in names)
    base = {n: p.clone() for n, p in policy.model.named_parameters() if not p.requires_grad}
    run_update(config, policy, make_optimizer(policy, config.update))
    for name, parameter in policy.model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, base[name])
    loaded = [load(composed("model.tuning=lora", f"seed={seed}")).model for seed in (0, 0, 1)]
    weights = [next(p for n, p in model.named_parameters() if "lora_A" in n) for model in loaded]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_weights_and_optimizer_are_restored_as_they_were_saved(tuning, tmp_path):
    config, policy = make(f"model.tuning={tuning}", "update.lr=0.01")
    optimizer = make_optimizer(policy, config.update)
    run_update(config, policy, optimizer)
    policy.save(tmp_path / "policy")
    save_optimizer(optimizer, tmp_path / "optimizer.safetensors")
    fresh = load(config)
    fresh_optimizer = make_optimizer(fresh, config.update)
    fresh.restore(tmp_path / "policy")
    restore_optimizer(fresh_optimizer, tmp_path / "optimizer.safetensors")
    run_update(config, policy, optimizer, step=2)
    run_update(config, fresh, fresh_optimizer, step=2)
    assert_close_weights(policy, fresh, rtol=0, atol=0)


@pytest.mark.parametrize("off_policy", [(), ("update.minibatches=2", "update.epochs=2")])
def test_an_update_that_is_not_finite_or_stopped_moves_nothing(off_policy):
    """The last optimizer update fails; where there are others before it, they are rolled back."""
    config, policy = make("model.tuning=lora", *off_policy)
    optimizer = make_optimizer(policy, config.update)
    run_update(config, policy, optimizer)
    before = [p.detach().clone() for p in policy.model.parameters()]
    state = copy.deepcopy(optimizer.state_dict()["state"])

    def assert_nothing_moved():
        assert all(map(torch.equal, before, policy.model.parameters()))
        for index, entry in optimizer.state_dict()["state"].items():
            assert all(torch.equal(entry[name], state[index][name]) for name in entry)
        assert all(p.grad is None for p in policy.model.parameters())

    advantages = ADVANTAGES.copy()
    advantages[-1] = np.inf
    with pytest.raises(FloatingPointError, match="the loss is"):
        run_update(config, policy, optimizer, advantages=advantages, step=2)
    assert_nothing_moved()

    handle = trained(policy)[0].register_hook(lambda gradient: gradient * np.inf)
    with pytest.raises(FloatingPointError, match="the gradient's norm is"):  # of a finite loss
        run_update(config, policy, optimizer, step=2)
    handle.remove()
    assert_nothing_moved()

    calls = iter(range(100))

    def stop_late():
        if next(calls) == (4 if off_policy else 0):  # 1 call for the old log-probs, then updates
            raise Preempted

    with pytest.raises(Preempted):
        run_update(config, policy, optimizer, step=2, check=stop_late)
    assert_nothing_moved()
    assert nonfinite(optimizer) is None
    with torch.no_grad():
        trained(policy)[0][0, 0] = np.nan
    assert nonfinite(optimizer) == "a weight is NaN or infinite"


def test_learning_rate_by_hand():
    def at(step, **changes):
        settings = replace(composed().update, lr=1.0, **changes)
        return learning_rate(settings, step)

    assert [at(s, warmup_steps=4) for s in (1, 2, 4, 5, 99)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    decay = {"warmup_steps": 2, "schedule_steps": 12}
    assert at(2, schedule="linear", **decay) == at(3, schedule="linear", **decay) == 1.0
    assert at(8, schedule="linear", **decay) == pytest.approx(0.5)
    assert at(8, schedule="cosine", **decay) == pytest.approx(0.5)
    assert at(7, schedule="linear", **decay) == pytest.approx(0.6)
    assert at(5, schedule="cosine", warmup_steps=2, schedule_steps=10) == pytest.approx(
        (2 + np.sqrt(2)) / 4  # a quarter of the way: (1 + cos(pi / 4)) / 2
    )
    assert at(13, schedule="linear", **decay) == at(99, schedule="cosine", **decay) == 0.0


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mistral", {"sliding_window": 4}, "must attend to all earlier tokens"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
         "must attend to all earlier tokens"),
        ("phi", {}, "its output layer has a bias"),
    ],
)  # fmt: skip
def test_a_model_that_packing_would_get_wrong_is_refused(kind, changes, message, tmp_path):
    source = load(composed())
    settings = AutoConfig.for_model(
        kind, vocab_size=19, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, **changes,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(settings).save_pretrained(tmp_path)
    source.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        load(composed(f"model.path={tmp_path}"))


def test_base_weights_rounded_to_nf4_give_what_a_qlora_layer_gives():
    """bitsandbytes' own layer restores its weights in each pass; all ways out have them rounded."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    overrides = ("model.tuning=lora", "model.lora.targets=[q_proj,down_proj]")
    plain = load(composed(*overrides)).causal_lm
    policy = load(composed(*overrides, "model.quantization=nf4"))
    layer = policy.causal_lm.model.layers[1].mlp.down_proj
    weight = plain.model.layers[1].mlp.down_proj.get_base_layer().weight.detach()
    theirs = bitsandbytes.nn.Linear4bit(
        weight.shape[1], weight.shape[0], False, torch.float32, quant_type="nf4"
    )
    rounded = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type="nf4")
    theirs.weight = rounded.to("cpu")
    x = torch.randn(5, weight.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(x), theirs(x))
    assert not torch.allclose(layer(x), x @ weight.T, atol=1e-3)
    exported = {name: w for name, w, _ in merged_weights(policy.model, torch.float32)}
    assert policy.mirror.refresh() is None
    for name, mirrored in policy.mirror.model.named_parameters():
        start = plain.get_parameter(name) if "_proj" not in name else None
        if name.endswith(("q_proj.weight", "down_proj.weight")):
            path = name.removesuffix(".weight")
            base = policy.causal_lm.get_submodule(path).get_base_layer().weight
            assert torch.equal(mirrored, base) and torch.equal(exported[name], base)
        elif start is not None:
            assert torch.equal(mirrored, start)


def test_nf4_has_the_sixteen_values_of_qloras_table():
    """Each of 64 numbers in [-1, 1] takes the nearest of the values in appendix E."""
    pytest.importorskip("bitsandbytes")
    below = [-1, -0.69619, -0.52507, -0.39492, -0.28444, -0.18477, -0.09105]
    above = [0.07958, 0.16093, 0.24611, 0.33792, 0.44071, 0.56262, 0.72296, 1]
    values = torch.tensor([*below, 0, *above])
    block = torch.linspace(-1, 1, 64)
    nearest = values[(block[:, None] - values).abs().argmin(1)]
    expected = nearest.repeat(64, 1)
    torch.testing.assert_close(rounded_to_nf4(block.repeat(64, 1)), expected, atol=1e-4, rtol=0)


def test_quantization_needs_adapters_that_are_merged():
    for overrides, line in (
        (["model.tuning=full"], "model.quantization=nf4: must be none where model.tuning=full"),
        (
            ["model.tuning=lora", "engine=vllm", "engine.sync=adapter"],
            "engine.sync=adapter: must be merged where model.quantization=nf4",
        ),
    ):
        with pytest.raises(ConfigError, match=line):
            composed("model.quantization=nf4", *overrides, "dry_run=true")
