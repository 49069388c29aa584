"""Log-probs and updates of the real tiny model, compared with plain torch and each other."""

import copy
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import policies
import pytest
import torch
from compose import ROOT, composed
from policies import ADVANTAGES, flat, make, plain_logprobs, rollouts, run_update, sgd_step, trained
from safetensors.torch import load_file, save_file

from pods.policy import optimizer as optimizers
from pods.policy.optimizer import learning_rate, make_optimizer, nonfinite, restore_optimizer
from pods.policy.policy import load
from pods.system.signals import Preempted


def gradient(config, policy, order=(0, 1, 2, 3, 4, 5)):
    """The gradient of one on-policy step, read off an SGD step of size 1."""
    order, start = list(order), [p.detach().clone() for p in trained(policy)]
    config = replace(config, update=replace(config.update, lr=1.0))
    kept = [rollouts(policy)[i] for i in order]
    change, _ = sgd_step(config, policy, kept, advantages=ADVANTAGES[order])
    with torch.no_grad():
        for parameter, old in zip(trained(policy), start, strict=True):
            parameter.copy_(old)
    return -change


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "dr_grpo"])
@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_gradient_does_not_depend_on_micro_batches_or_order(aggregation, tuning):
    words = (f"update.aggregation={aggregation}", "update.kl_beta=0.1", f"model.tuning={tuning}")
    config, policy = policies.disturbed(*words, double=True)  # so the KL term has a gradient
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
def test_importance_weights_each_token_of_the_gradient(kind, epochs, monkeypatch):
    """By plain autograd: the weights stay those before the first update, while the ratio moves."""
    monkeypatch.setattr("pods.policy.update.IMPORTANCE_CAP", 1.2)
    config, policy = make(
        f"update.importance={kind}", f"update.epochs={epochs}", "update.lr=0.002",
        "update.clip_low=1", "update.clip_high=1e9")  # fmt: skip
    policies.to_double(policy.model)
    other = copy.deepcopy(policy)
    kept, shifts = mismatched(policy)
    mine, _ = sgd_step(config, policy, kept)

    before = flat(trained(other))
    optimizer = torch.optim.SGD(trained(other), lr=0.002)
    weights = [torch.from_numpy(w) for w in weights_by_hand(kind, shifts, 1.2)[0]]
    old = [plain_logprobs(other, r).detach() for r in kept]
    for _ in range(epochs):
        optimizer.zero_grad()
        sum(
            -advantage * (w * (plain_logprobs(other, r) - o).exp()).mean() / len(policies.TEXTS)
            for advantage, w, r, o in zip(ADVANTAGES, weights, kept, old, strict=True)
        ).backward()
        optimizer.step()
    theirs = flat(trained(other)) - before
    assert theirs.abs().max() > 1e-3
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()


@pytest.mark.parametrize("kind", ["off", *CORRECTIONS])
def test_gaps_and_weights_are_means_over_tokens_for_any_micro_batches(kind, monkeypatch):
    cap = 1.2
    monkeypatch.setattr("pods.policy.update.IMPORTANCE_CAP", cap)
    for off_policy in ((), ("update.epochs=2", "update.minibatches=2")):
        changes = []
        for tokens in (8192, 20):
            config, policy = make(
                f"update.importance={kind}", "update.lr=0.002",
                f"update.micro_batch_tokens={tokens}", *off_policy)  # fmt: skip
            policies.to_double(policy.model)
            kept, shifts = mismatched(policy)
            change, stats = sgd_step(config, policy, kept)
            changes.append(change)
            gaps = np.abs(np.concatenate(shifts))
            weights, cut = map(np.concatenate, weights_by_hand(kind, shifts, cap))
            assert stats.logprob_gap == pytest.approx(gaps.max(), rel=1e-5)
            assert stats.logprob_gap_mean == pytest.approx(gaps.mean(), rel=1e-5)
            if kind == "off":
                assert (stats.importance_mean, stats.importance_cut) == (1.0, 0.0)
                assert stats.importance_ess == 1.0
            else:
                assert stats.importance_mean == pytest.approx(weights.mean(), rel=1e-5)
                ess = weights.sum() ** 2 / (weights @ weights * len(weights))
                assert stats.importance_ess == pytest.approx(ess, rel=1e-5)
                assert stats.importance_cut == pytest.approx(cut.mean()) and 0 < cut.mean() < 1
        assert changes[0].abs().max() > 1e-3
        assert torch.allclose(changes[1], changes[0], rtol=1e-4, atol=1e-9)


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
    optimizers.save_optimizer(optimizer, tmp_path / "optimizer.safetensors")
    fresh = load(config)
    fresh_optimizer = make_optimizer(fresh, config.update)
    fresh.restore(tmp_path / "policy")
    restore_optimizer(fresh_optimizer, tmp_path / "optimizer.safetensors")
    run_update(config, policy, optimizer, step=2)
    run_update(config, fresh, fresh_optimizer, step=2)
    assert all(map(torch.equal, policy.model.parameters(), fresh.model.parameters()))
    [file] = (tmp_path / "policy").glob("*.safetensors")
    less = load_file(file)
    less.popitem()
    save_file(less, file)
    with pytest.raises(ValueError, match=r"(: its adapter does not have this| lacks model\.)"):
        fresh.restore(tmp_path / "policy")


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

    calls_before = 4 if off_policy else 0  # 1 call for the old log-probs, then updates
    stop_late = Mock(side_effect=[*[None] * calls_before, Preempted])
    with pytest.raises(Preempted):
        run_update(config, policy, optimizer, step=2, check=stop_late)
    assert_nothing_moved()
    assert nonfinite(optimizer) is None
    [*_, moments] = optimizer.state.values()
    for spoilt, said in ((moments["exp_avg"], "the optimizer's state is NaN or infinite"),
                         (trained(policy)[0], "a weight is NaN or infinite")):  # fmt: skip
        with torch.no_grad():
            spoilt[0, 0] = np.nan
        assert nonfinite(optimizer) == said


def test_learning_rate_by_hand():
    def at(step, schedule="linear", warmup_steps=2, schedule_steps=12):
        settings = replace(composed().update, lr=1.0, schedule=schedule,
                           warmup_steps=warmup_steps, schedule_steps=schedule_steps)  # fmt: skip
        return learning_rate(settings, step)

    warm = [at(s, "constant", warmup_steps=4) for s in (1, 2, 4, 5, 99)]
    assert warm == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert at(2) == at(3) == 1.0 and at(13) == at(99, "cosine") == 0.0
    assert [at(7), at(8), at(8, "cosine")] == pytest.approx([0.6, 0.5, 0.5])
    # a quarter of the way: (1 + cos(pi / 4)) / 2
    assert at(5, "cosine", schedule_steps=10) == pytest.approx((2 + np.sqrt(2)) / 4)


def test_a_model_that_packing_would_get_wrong_is_refused(tmp_path):
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    attends = "must attend to all earlier tokens"
    for kind, changes, message in (
        ("mistral", {"sliding_window": 4}, attends), ("qwen2", sliding, attends),
        ("phi", {}, "its output layer has a bias"),
    ):  # fmt: skip
        policies.save_other(tmp_path / kind, kind, num_key_value_heads=2, **changes)
        with pytest.raises(ValueError, match=message):
            load(composed(f"model.path={tmp_path / kind}"))


DAMAGES = {
    "weights cut off": ("model.safetensors", b"cut", "deserializing header"),
    "weights empty": ("model.safetensors", b"", "deserializing header"),
    "a header of 2^63 bytes": ("model.safetensors", b"\xff" * 7 + b"\x7f{}", "header"),
    "a config that is a list": ("config.json", b"[]", "mapping|list indices"),
    "a config of 100,000 levels": ("config.json", b"[" * 100_000, "recursion"),
    "a config at odds with itself": ("config.json", None, "not a multiple"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_one_line_with_their_key(damage, tmp_path):
    file, content, why = DAMAGES[damage]
    shutil.copytree(ROOT / "src/pods/models/tiny", tmp_path / "model")
    path = tmp_path / "model" / file
    if content is None:
        content = path.read_bytes().replace(b'"hidden_size": 64', b'"hidden_size": 77')
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why) as caught:
        load(composed(f"model.path={tmp_path / 'model'}"))
    assert str(caught.value).startswith(f"model.path={tmp_path / 'model'}: ")
    assert "\n" not in str(caught.value)
