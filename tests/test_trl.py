"""PODS in the real TRL: its gradient is the harness's, and with n = m it is TRL's own trainer."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import needs
import numpy as np
import pandas as pd
import pytest
import torch
from compose import ROOT, composed
from policies import disturb, flat, sgd_step
from rows import table
from running import BY_HAND, wait_for
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from pods.method.grpo import advantages
from pods.method.rules import max_variance
from pods.policy.policy import load
from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.datasets import chainsum
from pods.types import Rollout

TINY = str(SHIPPED_MODELS / "tiny")
EXAMPLE = str(ROOT / "experiments" / "trl" / "chainsum.py")
HELPERS, SRC = ROOT / "tests" / "helpers", ROOT / "src"
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # TRL's and its libraries'
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture
def one_thread():
    needs.module("trl")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PROMPTS, N = ["7+8-4?", "1-3+1+7?"], 8


def completion(prompt, i):
    """The i-th completion of a prompt: of unequal length, and some are right."""
    return chainsum.solve(prompt, 0.5, np.random.default_rng(i)) + "#" * (i % 3)


def reward_of(prompt, i):
    return [0.0, 1.0, 0.25, 1.0, 0.0, 0.5, 1.25, 0.0][i] + (prompt == PROMPTS[1]) * (i == 2)


def model_away_from_its_start():
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    disturb(model.parameters())
    return model


class Gradient(TrainerCallback):
    """Keeps the gradient of the last step, and what was logged."""

    def __init__(self):
        self.gradient, self.logs = None, []

    def on_pre_optimizer_step(self, args, state, control, model, **rest):
        self.gradient = flat(p.grad for p in model.parameters())

    def on_log(self, args, state, control, logs, **rest):
        self.logs.append(dict(logs))


def config(folder, **options):
    from trl import GRPOConfig

    return GRPOConfig(**{
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "seed": 0, "max_steps": 1,
        "per_device_train_batch_size": 2 * N, "num_generations": N, "max_completion_length": 32,
        "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no",
        "logging_steps": 1, "max_grad_norm": 0.0, "learning_rate": 1e-3, "disable_tqdm": True,
        "loss_type": "grpo", "shuffle_dataset": False, **options})  # fmt: skip


def given(prompts, trainer):
    """Return the same completions whatever the policy, as TRL's `rollout_func`."""
    tokenizer, first = trainer.processing_class, trainer.accelerator.process_index * len(prompts)
    index = [(first + i) % N for i in range(len(prompts))]
    texts = [completion(prompt, i) for i, prompt in zip(index, prompts, strict=True)]
    return {
        "prompt_ids": [tokenizer.encode(p, add_special_tokens=False) for p in prompts],
        "completion_ids": [tokenizer.encode(t, add_special_tokens=False) for t in texts],
        "logprobs": [[0.0] * len(t) for t in texts], "index": index}  # fmt: skip


def rewards(prompts, index, **_):
    return [reward_of(p, i) for p, i in zip(prompts, index, strict=True)]


def dataset(prompts=PROMPTS, **columns):
    from datasets import Dataset

    return Dataset.from_dict({"prompt": prompts, **columns})


def pods_trainer(*arguments, **options):
    from pods.integrations.trl import PODSTrainer

    return PODSTrainer(*arguments, **options)


def theirs(folder, keep, reward_funcs=rewards, rule="max_variance", **options):
    callback = Gradient()
    trainer = pods_trainer(
        model_away_from_its_start(), reward_funcs, config(folder, **options), dataset(),
        keep=keep, rule=rule, rollout_func=given, callbacks=[callback],
        processing_class=AutoTokenizer.from_pretrained(TINY))  # fmt: skip
    trainer.train()
    return callback


def ours(m, aggregation, kl_beta):
    """The gradient of one step of the harness, from an SGD step of size 1."""
    settings = composed(f"update.aggregation={aggregation}", f"update.kl_beta={kl_beta}",
                        "sampling.max_completion_tokens=32")  # fmt: skip
    policy = load(settings)
    disturb(policy.model.parameters())
    kept_rollouts, values = [], []
    for prompt in PROMPTS:
        group = np.array([reward_of(prompt, i) for i in range(N)])
        kept = max_variance(group, m)
        values.append(advantages(group, kept, baseline="selected", scale="std", eps=1e-4))
        for i in kept:
            ids = [tuple(policy.tokenizer.encode(text, add_special_tokens=False))
                   for text in (prompt, completion(prompt, i))]  # fmt: skip
            zeros = np.zeros(len(ids[1]), np.float32)
            kept_rollouts.append(Rollout(*ids, zeros, completion(prompt, i), True))
    settings = replace(settings, update=replace(settings.update, lr=1.0))
    values = np.concatenate(values)
    change, _ = sgd_step(settings, policy, kept_rollouts, advantages=values, sizes=[m, m])
    return -change


HALVES = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(("options", "m", "aggregation", "kl_beta"), [
    ({}, N, "sequence_mean", 0.0), (HALVES, N, "sequence_mean", 0.0),
    ({}, 4, "sequence_mean", 0.0), (HALVES, 4, "sequence_mean", 0.0),
    # the reference is the start, the policy is not; by default TRL weighs the KL by the ratio
    ({"beta": 0.3, "use_bias_correction_kl": False}, 4, "sequence_mean", 0.3),
    ({"loss_type": "dapo", **HALVES}, 4, "token_mean", 0.0),
], ids=["grpo", "grpo_ga", "pods", "pods_ga", "kl", "token_mean"])  # fmt: skip
def test_a_step_has_the_gradient_of_the_harness(options, m, aggregation, kl_beta, tmp_path):
    actual = theirs(tmp_path, m, **options).gradient
    expected = ours(m, aggregation, kl_beta)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_with_n_equal_to_m_it_is_trls_trainer_bit_for_bit(tmp_path):
    from trl import GRPOTrainer

    def right(completions, gold, **_):
        return [chainsum.grade(c, g).reward for c, g in zip(completions, gold, strict=True)]

    questions = chainsum.load(8, 1).train
    data = dataset([p.question for p in questions], gold=[p.gold for p in questions])
    timed, weights, logs = ("seconds", "step_time", "kept/", "train_"), [], []
    for trainer_class, options in ((GRPOTrainer, {}), (pods_trainer, {"keep": N})):
        callback = Gradient()
        settings = config(tmp_path, max_steps=3, beta=0.1, gradient_accumulation_steps=2)
        trainer = trainer_class(TINY, right, settings, data, callbacks=[callback], **options)
        trainer.train()
        weights.append(flat(trainer.model.parameters()))
        logs.append([{k: v for k, v in row.items() if not k.startswith(timed)}
                     for row in callback.logs])  # fmt: skip
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], flat(load(composed()).model.parameters()))
    for rows in zip(*logs, strict=True):  # TRL averages rewards in float32
        assert rows[0] == pytest.approx(rows[1], rel=1e-6)


def test_logs_tell_generated_from_kept_and_unscored_rollouts_are_left_out(tmp_path):
    def scored(prompts, index, **_):
        return [None if i == 6 else reward_of(PROMPTS[0], i) for i in index]

    def none(prompts, log_extra, index, **_):
        log_extra("index", index)
        return [None] * len(prompts)

    seen, rest = [], [i for i in range(N) if i != 6]

    def longest(group, m, rng):
        seen.append((group, rng.integers(2**62)))
        return np.argsort(-group.lengths, kind="stable")[:m]

    parts = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    callback = theirs(tmp_path, 2, rule=longest, reward_funcs=[scored, none], log_completions=True,
                      **parts)  # fmt: skip
    row = callback.logs[0]
    assert row["reward"] == pytest.approx((0 + 1 + 0.25 + 1 + 0 + 0.5 + 0) / 7)
    assert row["frac_reward_zero_std"] == 0
    (first, _), (second, _) = seen
    theirs(tmp_path, 2, rule=longest, max_steps=2, steps_per_generation=1, **parts)
    assert len({draw for _, draw in seen}) == 5  # the first group of both runs has the same
    assert (len(first.rewards), len(second.rewards)) == (7, 7)
    assert first.rewarded.tolist() == [False, True, False, True, False, False, False]
    assert first.rollouts[1].text == completion(PROMPTS[0], 1)
    assert first.lengths.tolist() == [len(completion(PROMPTS[0], i)) for i in rest]
    kept = sorted(np.array(rest)[np.argsort(-first.lengths, kind="stable")[:2]])
    table = pd.read_parquet(next((tmp_path / "completions").glob("*.parquet")))
    assert len(table) == 4 and sorted(table["index"][:2]) == kept


def test_a_rollout_is_right_by_the_first_function_and_each_table_has_a_generations_rows(tmp_path):
    """The second function gives 0.4 to all, so that by both together 0.25 and 0.5 were right."""
    groups = []

    def first(group, m, rng):
        groups.append(group)
        return np.arange(m)

    def more(prompts, **_):
        return [0.4] * len(prompts)

    theirs(tmp_path, 2, rule=first, reward_funcs=[rewards, more], log_completions=True, max_steps=2,
           per_device_train_batch_size=8, gradient_accumulation_steps=2)  # fmt: skip
    right = [False, True, False, True, False, False, True, False]
    assert [group.rewarded.tolist() for group in groups[::2]] == [right] * 2
    assert groups[0].rewards.tolist() == pytest.approx([reward_of("", i) + 0.4 for i in range(N)])
    tables = [pd.read_parquet(path) for path in sorted((tmp_path / "completions").iterdir())]
    assert [len(table) for table in tables] == [4, 4]  # 2 of each of 2 groups
    assert [set(table.step) for table in tables] == [{1}, {2}]


def test_each_process_trains_on_its_share_of_the_kept_rollouts():
    from pods.integrations.trl import PODSTrainer, _Row

    rows = [_Row(f"p{i}", [i], [i], None, f"c{i}", None, {"index": i}) for i in range(4)]
    for process, share in enumerate(([0, 1], [2, 3])):
        trainer = object.__new__(PODSTrainer)
        trainer.accelerator = SimpleNamespace(num_processes=2, process_index=process)
        trainer.num_generations, trainer.keep, trainer._kept = 8, 2, None
        trainer._pending_extra_logs, trainer._logs = {"index": [9] * 8}, {}
        with trainer._replaying(rows, torch.zeros(4, 1)) as inputs:
            assert inputs == [{"prompt": f"p{i}"} for i in share]
            assert trainer._generate([])[1] == [[i] for i in share]
            assert trainer._pending_extra_logs == {"index": share}
            assert trainer.num_generations == 2 and len(trainer._calculate_rewards()) == 4
        assert trainer.num_generations == 8 and trainer._kept is None


def test_an_evaluation_is_of_all_rollouts(tmp_path):
    settings = config(tmp_path, per_device_eval_batch_size=2 * N)
    trainer = pods_trainer(TINY, rewards, settings, dataset(), keep=4, rollout_func=given,
                           eval_dataset=dataset())  # fmt: skip
    found = trainer.evaluate()
    all_rewards = [reward_of(prompt, i) for prompt in PROMPTS for i in range(N)]
    assert found["eval_reward"] == pytest.approx(np.mean(all_rewards))
    assert not [name for name in found if "kept/" in name]


def test_dropped_rollouts_have_no_log_probs_and_adapters_train(tmp_path, monkeypatch):
    from peft import LoraConfig
    from trl import GRPOTrainer

    rows, original = [], GRPOTrainer._get_per_token_logps_and_entropies

    def counted(self, model, input_ids, *rest, **options):
        rows.append(len(input_ids))
        return original(self, model, input_ids, *rest, **options)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", counted)
    settings = config(tmp_path, beta=0.1, steps_per_generation=2, max_steps=2,
                      per_device_train_batch_size=8)  # fmt: skip
    trainer = pods_trainer(TINY, rewards, settings, dataset(), keep=4, rollout_func=given,
                          peft_config=LoraConfig(target_modules="all-linear"))  # fmt: skip
    trainer.train()
    assert rows == [8, 8, 4, 4]  # old, reference, two updates: of 16 generated rollouts


@pytest.mark.parametrize(("options", "words"), table("bad_trl"))
def test_bad_input_is_one_line_before_a_model_is_loaded(options, words, tmp_path):
    size = {k: options.pop(k) for k in [*options] if k not in ("keep", "rule")}
    with pytest.raises(ValueError, match=words) as caught:
        pods_trainer("no/model", rewards, config(tmp_path, **size), dataset(), **options)
    assert "\n" not in str(caught.value)


def test_a_dataset_without_rows_is_refused_in_one_line(tmp_path):
    from datasets import IterableDataset

    streamed = IterableDataset.from_generator(lambda: iter(()))
    for rows in (None, dataset([]), [], streamed):
        with pytest.raises(ValueError, match=r"^train_dataset: must have a row$"):
            pods_trainer("no/model", rewards, config(tmp_path), rows, keep=4)


def test_another_trl_or_none_is_refused_in_one_line(monkeypatch):
    source = compile((ROOT / "src/pods/integrations/trl.py").read_text(), "trl.py", "exec")
    for place, value in (("util.find_spec", None), ("metadata.version", "1.17.0")):
        with monkeypatch.context() as patch:
            patch.setattr(f"importlib.{place}", lambda name, value=value: value)
            with pytest.raises(ImportError, match=r"^needs TRL 1\.16, .*pods-rl\[trl\]'$"):
                exec(source, {"__name__": "again"})


def start(folder):
    command = [sys.executable, "-W", "ignore", EXAMPLE, "--n=8", "--keep=4", "--steps=20",
               f"--output={folder}"]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finished(process):
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_in_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished(start(whole))
    process = start(killed)
    wait_for((killed / "checkpoint-10" / "trainer_state.json").is_file)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (killed / "checkpoint-20").exists()
    finished(start(killed))
    files = (folder / "checkpoint-20" / "model.safetensors" for folder in (whole, killed))
    expected, actual = map(load_file, files)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_a_group_that_lies_on_two_processes_gives_the_gradient_of_one(tmp_path):
    expected = theirs(tmp_path, 4, per_device_train_batch_size=N).gradient
    code = (
        "import os, test_trl, torch, numpy as np\n"
        f"one = test_trl.theirs({str(tmp_path)!r}, 4, per_device_train_batch_size=4)\n"
        f"np.save({str(tmp_path)!r} + '/' + os.environ['RANK'], one.gradient.numpy())\n"
        "torch.distributed.destroy_process_group()\n"  # else its threads abort some exits
    )
    (tmp_path / "one.py").write_text(code)
    finished(subprocess.Popen(
        [sys.executable, "-W", "ignore", *BY_HAND, "--nproc-per-node=2", f"--log-dir={tmp_path}",
         tmp_path / "one.py"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HELPERS.parent, HELPERS, SRC)))},
    ))  # fmt: skip
    for rank in range(2):
        actual = torch.from_numpy(np.load(tmp_path / f"{rank}.npy"))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
