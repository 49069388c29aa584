"""What a user does with a checkpoint outside of its run: export, ask, evaluate, start from it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from compose import composed
from data_files import write_rows
from peft import AutoPeftModelForCausalLM, PeftModel
from policies import untrained
from running import ONE_STEP, contents, run_here
from studies import pods, refused
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.config.parse import ConfigError
from pods.config.schema import LORA_TARGETS
from pods.policy.policy import load as load_weights
from pods.policy.policy import load_policy
from pods.runs.identity import identity
from pods.runs.paths import SHIPPED_MODELS, weights_source
from pods.runs.store import RunStore
from pods.tasks.load import load, load_opening

IDS = torch.arange(60)[None] % 19
SMALL = (*ONE_STEP, "budget.max_steps=2", "checkpoint.every_steps=1", "nm.n=8", "nm.m=4",
         "evaluation.repeats=3", "evaluation.temperature=0.5", "update.lr=0.01")  # fmt: skip


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def full(runs_dir) -> RunStore:
    return run_here(f"runs_dir={runs_dir}", "study=whole", *SMALL)


@pytest.fixture(scope="module")
def lora(runs_dir) -> RunStore:
    return run_here(f"runs_dir={runs_dir}", "study=low", "arm=pods", "model.tuning=lora", *SMALL)


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def policy_logits(store: RunStore, step: int) -> torch.Tensor:
    policy = load_policy(store.config(), store.checkpoint(step), "cpu")
    with torch.no_grad():
        return policy.causal_lm(IDS).logits


def plain_logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_whole_weights_are_exported_with_card_and_config(full, runs_dir, tmp_path, capsys):
    before, out = files(full.folder), tmp_path / "deep" / "out"
    assert pods("export", full.folder, out, "--runs-dir", runs_dir) == 0
    assert capsys.readouterr().out == f"weights of {full.checkpoint(2)}: {out}\n"
    assert files(full.folder) == before
    logits = plain_logits(AutoModelForCausalLM.from_pretrained(out))
    assert torch.allclose(logits, policy_logits(full, 2), atol=1e-4)
    assert not torch.allclose(logits, plain_logits(untrained(composed())), atol=0.1)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "1+2?"}], tokenize=False)
    assert (out / "config.yaml").read_bytes() == full.config_path.read_bytes()
    card = (out / "README.md").read_text()
    right = sum(json.loads(line)["correct"] for line in full.evaluation_path(2).open())
    answers = f"{right} of 24 answers are right (8 questions × 3, temperature 0.5)"
    assert f"Accuracy on chainsum: {right / 24:.4f}: {answers}" in card
    assert "# chainsum: max_variance 8→4, step 2\n" in card
    about = yaml.safe_load(card.split("---")[1])
    assert about == {"library_name": "transformers", "base_model": "tiny"}
    assert str(tmp_path) not in card
    name = f"whole max_variance {full.folder.name}"
    assert f"`pods export '{name}' FOLDER --step 2`" in card
    assert pods("export", name, tmp_path / "again", "--step", 2, "--runs-dir", runs_dir) == 0
    assert list(tmp_path.glob("deep/*")) == [out]  # no temporary folder is left


def test_merged_weights_are_those_of_the_policy_and_of_peft(lora, runs_dir, tmp_path):
    out, before = tmp_path / "out", files(lora.folder)
    words = ("--merge", "--step", 1, "--runs-dir", runs_dir)
    assert pods("export", "pods 8->4 seed 0", out, *words) == 0
    assert files(lora.folder) == before
    model = AutoModelForCausalLM.from_pretrained(out)
    adapted = PeftModel.from_pretrained(untrained(composed()), lora.checkpoint(1) / "policy")
    assert torch.allclose(plain_logits(model), policy_logits(lora, 1), atol=1e-4)
    merged = adapted.merge_and_unload()
    assert torch.allclose(plain_logits(model), plain_logits(merged), atol=1e-4)
    assert not torch.allclose(plain_logits(model), plain_logits(untrained(composed())), atol=0.01)
    names = {name for name, _ in model.named_parameters()}
    assert names == {name for name, _ in untrained(composed()).named_parameters()}
    assert model.generation_config.eos_token_id == 1
    assert "LoRA adapters of rank 8 merged into them" in (out / "README.md").read_text()
    assert AutoTokenizer.from_pretrained(out).chat_template


def test_an_adapter_has_the_same_bytes_wherever_and_in_whatever_process_it_is_made(lora):
    policy = lora.checkpoint(2) / "policy"
    settings = json.loads((policy / "adapter_config.json").read_text())
    assert settings["target_modules"] == sorted(LORA_TARGETS)  # a set's order is of its process
    assert settings["base_model_name_or_path"] == "tiny"
    for path in policy.iterdir():
        assert str(SHIPPED_MODELS).encode() not in path.read_bytes(), path.name


def test_an_adapter_is_exported_under_the_hubs_name(lora, runs_dir, tmp_path):
    out = tmp_path / "out"
    values = yaml.safe_load(lora.config_path.read_text())
    assert pods("export", "low", out, "--runs-dir", runs_dir) == 0
    adapted = PeftModel.from_pretrained(untrained(composed()), out)
    assert torch.allclose(plain_logits(adapted), policy_logits(lora, 2), atol=1e-4)
    alone = AutoPeftModelForCausalLM.from_pretrained(out)  # finds its base, which is on no hub
    assert torch.equal(plain_logits(alone), plain_logits(adapted))
    assert AutoTokenizer.from_pretrained(out).chat_template
    card = (out / "README.md").read_text()
    assert "AutoPeftModelForCausalLM" in card and "LoRA adapters of rank 8" in card
    copy = shutil.copytree(lora.folder, tmp_path / lora.folder.name)
    values["model"] |= {"hub": "someone/model", "path": weights_source(lora.config().model)}
    values["task"] |= {"name": "gsm8k", "answer_format": "tag"}
    (copy / "config.yaml").write_text(yaml.safe_dump(values))
    (copy / "evaluations" / "step-000002.jsonl").unlink()
    assert pods("export", copy, tmp_path / "hub", "--runs-dir", runs_dir) == 0
    settings = json.loads((tmp_path / "hub" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "someone/model"
    card = (tmp_path / "hub" / "README.md").read_text()
    about = yaml.safe_load(card.split("---")[1])
    assert about == {"library_name": "peft", "base_model": "someone/model"}
    assert "Accuracy on gsm8k: not evaluated." in card


def test_merged_bfloat16_weights_are_rounded_once():
    """As W + s B A in float32, rounded."""
    words = ("model.tuning=lora", "model.dtype=bfloat16", "model.lora.alpha=24")
    policy = load_weights(composed(*words))
    layer = policy.causal_lm.model.layers[1].mlp.up_proj
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        b.normal_(generator=torch.Generator().manual_seed(0))
        expected = (layer.base_layer.weight.float() + 3 * (b @ a)).bfloat16()
    model = policy.model.merge_and_unload()  # as `pods export` does
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, expected)


def test_what_cannot_be_exported_is_one_line(full, lora, runs_dir, tmp_path, capsys):
    out = tmp_path / "out"
    damaged = shutil.copytree(full.folder, tmp_path / full.folder.name)
    weights = damaged / "checkpoints" / "step-000002" / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    for arguments, message in (
        (["nobody", out], "run=nobody: must be a run's folder or name; studies in"),
        ([f"seed0 {full.config().update.lr}", out], "must name one run, not"),
        (["whole", out, "--step", 9], "--step=9: must be last or a step with a checkpoint: 0, 1"),
        (["whole", out, "--step", "first"], "--step=first: must be last or a step"),
        (["whole", tmp_path], "must not exist; nothing is overwritten"),
        (["whole", full.folder / "out"], "must not be in the run's folder"),
        ([damaged, out, "--step", 2], "--step=2: that checkpoint cannot be used: policy/model"),
    ):
        assert message in refused(capsys, "export", *arguments, "--runs-dir", runs_dir)
        assert not out.exists()
    assert pods("export", damaged, out, "--runs-dir", runs_dir) == 0  # the one before
    told = capsys.readouterr()
    assert "step-000002 cannot be used: policy" in told.err and "step-000001" in told.out


def greedy(policy, question: str) -> str:
    """Answer by transformers' own loop."""
    tokenizer = policy.tokenizer
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt",
        return_dict=True)  # fmt: skip
    out = policy.model.generate(**ids, do_sample=False, max_new_tokens=32)
    return tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_greedy_answers_are_those_of_transformers_own_loop(kind, runs_dir, request, capsys):
    store = request.getfixturevalue(kind)
    before = files(store.folder)
    policy = load_policy(store.config(), store.checkpoint(2), "cpu")
    for typed in ("7+8-4+1", "3 - 5 + 9?"):
        expected = greedy(policy, typed.replace(" ", "").removesuffix("?") + "?")
        asked = ("--temperature", 0, "-n", 2)
        assert pods("generate", store.folder, typed, *asked, "--runs-dir", runs_dir) == 0
        [first, answer, second, again] = capsys.readouterr().out.splitlines()
        assert (answer, again) == (expected, expected)
        assert first.startswith("[1/2] ") and second.startswith("[2/2] ")
    assert files(store.folder) == before


def test_sampled_answers_follow_the_temperature(full, runs_dir, capsys):
    said = []
    for more in ([], ["--temperature", 0.5], ["--temperature", 3]):
        assert pods("generate", "whole", "7+8-4+1", "--step", 0, *more, "--runs-dir", runs_dir) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and len({*said}) == 2  # evaluations have 0.5


@pytest.mark.parametrize("shots", [0, 1])
def test_a_typed_question_stands_behind_the_messages_of_training(shots, tmp_path):
    rows = [{"question": f"What is {i} and 1?", "answer": f"Add.\n#### {i + 1}"} for i in range(6)]
    for name, part in (("train", rows[:3]), ("test", rows[3:])):
        write_rows(tmp_path / f"{name}.jsonl", part)
    config = composed("task=gsm8k", "model=qwen2_5_3b", "hardware=cpu", f"task.few_shot={shots}",
                      f"task.path={tmp_path}", "dry_run=true").task  # fmt: skip
    problem = load(config).train[0]
    assert load_opening(config) == problem.messages[:-1]
    shutil.rmtree(tmp_path)
    if shots:
        with pytest.raises(ValueError, match=r"task\.few_shot=1: needs the data: task\.path="):
            load_opening(config)
    else:
        assert load_opening(config) == problem.messages[:-1]


def evaluated(store, capsys, *words):
    """Evaluate, and return what was printed, the records and the summary."""
    assert pods("evaluate", store.folder, *words) == 0
    said = capsys.readouterr().out
    [path] = [line.split()[1] for line in said.splitlines() if line.startswith("records: ")]
    assert str(store.folder) not in path
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return said, records, json.loads(Path(path).with_suffix(".json").read_text())


def test_a_sampled_evaluation_repeats_that_of_the_run(store, capsys):
    before = contents(store.folder)
    said, records, about = evaluated(store, capsys, "--step", "last")
    lines = store.evaluation_path(1).read_text().splitlines()
    answers = [dict(list(record.items())[:-3]) for record in records]  # but asked, gold, completion
    assert answers == [json.loads(line) for line in lines] and len(records) == 16
    right = sum(record["correct"] for record in records)
    assert about["accuracy"] == pytest.approx(right / 16)
    assert (about["questions"], about["repeats"]) == (8, 2)
    assert said.startswith(f"accuracy {right / 16:.3f} ± ")
    assert contents(store.folder) == before


def test_greedy_answers_to_a_file_are_kept_and_graded(store, capsys, tmp_path):
    rows = [{"question": "7+8-4", "answer": 1}, {"question": "2+3+4?", "answer": "8"}]
    file = write_rows(tmp_path / "chains.jsonl", rows)
    _, records, about = evaluated(store, capsys, "--step", 0, "--on", file, "--greedy")
    assert [record["asked"] for record in records] == ["7+8-4?", "2+3+4?"]
    assert [record["completion"] for record in records] == ["7+8=5;5-4=1;#1", "2+3=5;5+4=9;#9"]
    assert [record["verdict"] for record in records] == ["right", "wrong"]
    assert (about["accuracy"], about["temperature"], about["test_set"]) == (0.5, 0.0, "chains")
    # the shares are 1 and 0, their standard deviation is 0.5 ** 0.5
    assert about["stderr"] == pytest.approx(0.5)


def test_every_file_has_records_of_its_own(store, capsys, tmp_path, monkeypatch):
    """Run and files are named from within a folder, and the two files have one long name."""
    monkeypatch.chdir(store.folder.parent)
    said = set()
    for folder, answer in (("a", "1"), ("b", "2")):
        file = tmp_path / folder / f"{'long' * 60}.jsonl"
        file.parent.mkdir()
        file.write_text(json.dumps({"question": "7+8-4", "answer": answer}) + "\n")
        assert pods("evaluate", store.folder.name, "--on", file, "--greedy") == 0
        said.add(Path(capsys.readouterr().out.split("records: ")[1].split()[0]))
    assert len(said) == 2 and {path.parents[1] for path in said} == {store.folder.parents[2]}
    shutil.copytree(store.folder, tmp_path / "x" / "y" / store.folder.name)
    monkeypatch.chdir(tmp_path / "x")
    assert pods("evaluate", f"y/{store.folder.name}", "--greedy") == 0
    [written] = (tmp_path / "x" / "evaluated").glob("*.jsonl")
    assert str(written) in capsys.readouterr().out


def test_an_adapter_is_merged_into_the_models_own_weights(lora):
    adapter = lora.checkpoint(2) / "policy"
    adapted = PeftModel.from_pretrained(untrained(composed()), adapter)
    expected = adapted.merge_and_unload().state_dict()
    start = load_weights(composed()).causal_lm.state_dict()
    changed = 0
    for tuning in ("full", "lora"):
        policy = load_weights(composed(f"model.path={adapter}", f"model.tuning={tuning}"))
        weights = {
            name.replace(".base_layer", "").removeprefix("base_model.model."): weight
            for name, weight in policy.model.state_dict().items()
            if "lora_" not in name
        }
        assert set(weights) == set(expected)
        for name, weight in weights.items():
            assert torch.allclose(weight, expected[name], atol=1e-6)
            changed += not torch.equal(weight, start[name])
    assert changed == 2 * 14  # seven targets in two layers
    assert all(
        p.requires_grad for p in load_weights(composed(f"model.path={adapter}")).model.parameters()
    )


def test_a_run_goes_from_an_adapter_and_is_exported_whole(lora, tmp_path, capsys):
    words = (*SMALL, f"model.path={lora.checkpoint(2) / 'policy'}", "model.tuning=lora")
    store = run_here(*words, f"runs_dir={tmp_path}")
    assert store.status()["state"] == "done" and len(store.identity()["adapter"]) == 2
    assert identity(composed(*SMALL))["weights"] == store.identity()["weights"]
    capsys.readouterr()
    refusal = refused(capsys, "export", store.folder, tmp_path / "out")
    assert "--merge=false: must be given" in refusal
    assert pods("export", store.folder, tmp_path / "out", "--merge") == 0
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    policy = load_weights(composed(*words))
    policy.restore(store.checkpoint(2) / "policy")
    for name, weight in policy.model.merge_and_unload().state_dict().items():
        assert torch.allclose(weight, exported[name], atol=1e-6)


def test_whole_weights_of_a_checkpoint_are_a_start_and_others_are_refused(full, lora, tmp_path):
    folder, adapter = (run.checkpoint(2) / "policy" for run in (full, lora))
    before = load_weights(composed()).causal_lm.state_dict()
    after = load_weights(composed(f"model.path={folder}")).causal_lm.state_dict()
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())
    config = (adapter / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)  # without its weights
    with pytest.raises(ValueError, match=r"^model.path=.*: cannot be merged into this model: "):
        load_weights(composed(f"model.path={tmp_path}"))
    with pytest.raises(ConfigError, match="must have whole weights: engine=vllm"):
        composed(f"model.path={adapter}", "engine=vllm", "dry_run=true")
