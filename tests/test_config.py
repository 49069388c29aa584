"""Every file of conf/ gives a valid config, and bad input gets one helpful line."""

import ast
import csv
import dataclasses
import os
import shutil
from operator import attrgetter
from pathlib import Path

import needs
import pytest
import yaml
from compose import ROOT, compose_once, composed
from rows import table

from pods.config import compose
from pods.config.checks import PATHS, validate
from pods.config.parse import OTHER_NAMES, ConfigError, all_keys, unknown_key
from pods.config.schema import Config
from pods.method.rules import RULES
from pods.runs import identity


def fingerprint(config: Config) -> str:
    return identity.fingerprint(identity.identity(config))


TEXT_TASKS = ("task=gsm8k", "task=math")  # not for model=tiny
GROUPS = {
    f"{path.parent.name}={path.stem}"
    for path in (ROOT / "conf").glob("*/*.yaml")
    if path.parent.name not in ("experiment", "sampler", "prices")  # a run has no prices
}

EXTRAS = {"launch=slurm": "submitit", "launch=ray": "ray"}  # beyond the desk, which has none


@pytest.mark.parametrize(
    "choice", [pytest.param(choice, marks=pytest.mark.slow) if choice in EXTRAS else choice
               for choice in sorted(GROUPS)])  # fmt: skip
def test_every_option_of_every_group_composes(choice):
    if choice in EXTRAS:
        needs.module(EXTRAS[choice])
    extra = ["model=smollm2_135m"] if choice.startswith(TEXT_TASKS) else []
    extra += ["model=qwen2_5_3b", "task=gsm8k_release"] if "faithful" in choice else []
    own = {"task=jsonl": ["task.path=a.jsonl"], "task=own": ["task.make=json:loads"],
           "task=gym": ["task.gym=gcd"]}  # fmt: skip
    extra += ["model=smollm2_135m", *own[choice]] if choice in own else []
    extra += ["model.hub=some/one", "task=gsm8k"] if choice == "model=hub" else []
    extra.append("dry_run=true")  # vLLM may be missing
    extra += ["prompts_per_step=8"] if choice.endswith("x8") else []  # at least one per GPU
    assert isinstance(composed(choice, *extra), Config)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_sampler_composes(rule):
    files = {path.stem for path in (ROOT / "conf/sampler").glob("*.yaml")}
    assert files == set(RULES)
    m = 16 if rule == "all" else 4
    assert composed(f"sampler={rule}", "nm.n=16", f"nm.m={m}").sampler.rule == rule
    assert composed(f"sampler={rule}", "nm.n=16", "nm.m=16").sampler.rule == "all"  # it then is


def test_every_file_of_conf_says_what_it_is():
    for path in (ROOT / "conf").rglob("*.yaml"):
        comments = [line for line in path.read_text().splitlines() if line.startswith("# ")]
        assert any(not line.startswith("# @package") for line in comments), path


ARMS: dict[str, tuple[str, dict[str, object]]] = {}
"""The baseline of each arm and what the arm changes."""
for row in csv.DictReader((ROOT / "tests/tables/arms.csv").read_text().splitlines()[1:]):
    changes = ARMS.setdefault(row["arm"], (row["baseline"], {}))[1]
    changes[row["key"]] = yaml.safe_load(row["value"])


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_differs_from_its_baseline_only_in_what_its_paper_changes(arm):
    baseline, changes = ARMS[arm]
    # as dry runs, since an extra that an arm needs may not be installed
    both = [composed(f"arm={name}", "dry_run=true") for name in (arm, baseline)]
    keys = all_keys().keys() - {"label_settings"}  # the record of these very differences
    values = {key: [attrgetter(key)(each) for each in both] for key in keys}
    expected = {"arm": arm, **changes}
    assert {key: ours for key, (ours, other) in values.items() if ours != other} == expected


def test_every_arm_has_a_baseline():
    assert {path.stem for path in (ROOT / "conf/arm").glob("*.yaml")} == set(ARMS)
    pods = composed("arm=pods", "task=gsm8k", "model=qwen2_5_3b")  # the rest: test_presets.py
    assert (pods.nm.n, pods.nm.m, pods.model.lora.alpha) == (64, 16, 64)  # on one GPU
    how = pods.advantage
    assert (how.baseline, how.scale, how.eps) == ("selected", "std", 1e-4)


def test_arms_take_their_sizes_from_nm_in_any_order():
    for overrides in (("arm=grpo", "nm=n32_m16"), ("nm=n32_m16", "arm=grpo")):
        nm = composed(*overrides).nm
        assert (nm.n, nm.m, nm.groups) == (16, 16, 1)
    nm = composed("arm=grpo_ga", "nm=n32_m16").nm
    assert (nm.n, nm.m, nm.groups) == (32, 32, 1)


@pytest.mark.parametrize(("words", "said"), table("bad_config"))
def test_bad_input_is_named_with_its_value_and_what_is_allowed(words, said):
    with pytest.raises(ValueError) as caught:
        composed(*words.split())
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("override", "message"), table("bad_override"))
def test_an_override_that_hydra_refuses_is_one_line(override, message):
    with pytest.raises(ValueError) as caught:
        validate(compose.compose([override]))
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_what_hydra_itself_composes_is_checked_too():
    overrides = ("nm.n=32", "arm=grpo_ga", "update.lr=3e-7", "study=null", "budget.max_steps=9")
    assert compose_once(overrides) == compose.compose(overrides)  # what other tests compose
    for name, key in OTHER_NAMES.items():
        assert key in all_keys() and unknown_key(name) == f"no such key; did you mean {key}?"
    values = dataclasses.asdict(composed())
    del values["nm"]["n"]
    with pytest.raises(ConfigError, match=r"nm\.n=: missing"):
        validate(values)


def test_what_just_fits_is_accepted():
    """Each is at its bound; bad_config.jsonl has what is beyond."""
    for words in (
        "prompts_per_step=8 group_filter=resample group_filter.batch=4 group_filter.max_batches=2",
        "prompts_per_step=8 group_filter=resample group_filter.max_batches=1",
        "nm.n=16 nm.m=16",
        "nm.n=16 nm.m=8 sampler=max_variance_aliased",
        "prompts_per_step=2 nm.groups=2 update.minibatches=4",
        "prompts_per_step=2 nm.n=4 nm.m=4 hardware.processes=8",
        "update.schedule=cosine update.warmup_steps=3 update.schedule_steps=4",
        "prompts=mopps prompts_per_step=2 task.train_size=2",
        "nm.n=2 nm.m=2",
    ):
        assert isinstance(composed(*words.split()), Config), words


def test_a_gsm8k_folder_without_files_is_refused(tmp_path):
    overrides = ("task=gsm8k", "model=smollm2_135m", f"task.path={tmp_path}")
    with pytest.raises(ConfigError, match=r"must be a folder with train\.jsonl and test\.jsonl$"):
        composed(*overrides)
    with pytest.raises(ConfigError, match=r"task.path=.*: must be a folder with train\.jsonl$"):
        composed(*overrides, "task.test_set=math500")
    (tmp_path / "train.jsonl").touch()
    assert composed(*overrides, "task.test_set=math500").task.evaluated_on() == "math500"


@pytest.mark.parametrize(("overrides", "message"), table("no_math_verify"))
def test_math_verify_is_required_wherever_its_grader_is_needed(monkeypatch, overrides, message):
    monkeypatch.setattr("pods.config.inputs.find_spec", lambda name: name != "math_verify" or None)
    with pytest.raises(ConfigError, match=message):
        composed("model=qwen2_5_3b", *overrides)
    composed("model=qwen2_5_3b", "task=gsm8k")


@pytest.mark.parametrize(
    ("model", "answer_format"),
    [("qwen2_5_1_5b_math", "boxed"), ("qwen2_5_7b_math", "boxed"), ("llama3_2_3b", "tag"),
     ("r1_distill_qwen_1_5b", "boxed"), ("qwen2_5_7b", "tag"), ("qwen2_5_3b", "tag")])  # fmt: skip
def test_a_model_is_asked_for_the_format_that_it_was_trained_on(model, answer_format):
    for order in ((f"model={model}", "task=math"), ("task=gsm8k", f"model={model}")):
        assert composed(*order).task.answer_format == answer_format
    assert composed(f"model={model}").task.answer_format == "chain"  # chainsum has its own
    overridden = composed("task=gsm8k", f"model={model}", "task.answer_format=hash")
    assert overridden.task.answer_format == "hash"
    sampling = composed(f"model={model}", "task=math").sampling
    positions = sampling.max_prompt_tokens + sampling.max_completion_tokens
    assert not model.endswith("_math") or positions == 4096  # all that Qwen's have


def reference() -> str:
    """The table of all keys; ° marks the operational ones."""
    rows = ["|key|allowed|meaning|", "|---|---|---|"]
    for name, key in all_keys().items():
        values, meaning = key.allowed(), key.meaning
        mark = " °" if key.operational else ""
        rows.append(f"|`{name}`{mark}|{values}|{meaning.replace('|', chr(92) + '|')}|")
    return "\n".join(rows)


def test_the_config_reference_is_current():
    text = (ROOT / "conf" / "README.md").read_text()
    assert reference() in text, "copy the table that `python tests/test_config.py` prints"


def test_every_key_is_read_somewhere():
    """A key that no code reads would be accepted and do nothing."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes}
    # names that other objects have, too: the group must precede them
    ends = {".".join(ast.unparse(node).split(".")[-2:]) for node in nodes}
    common = {"name", "path", "step", "seed", "n", "m"}
    unread = {
        name
        for name in all_keys()
        if (last := name.rpartition(".")[2]) not in read
        or (last in common and "." in name and name not in ends)
    }
    assert unread == set()


INPUTS = {  # the words that name them in folder {}, and their files with %s in their content
    "data": (("task=gsm8k", "model=smollm2_135m", "task.path={}"),
             dict.fromkeys(("train.jsonl", "test.jsonl"), '{"question": "q", "answer": "%s"}\n')),
    "test set": (("task=math", "model=smollm2_135m", "task.test_set=amc23", "task.test_path={}/x"),
                 {"x": '{"question": "q", "answer": "%s"}\n'}),
    "system message": (("task=gsm8k", "model=smollm2_135m", "task.system={}/x"), {"x": "%s"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", INPUTS)
def test_identity_depends_on_the_content_of_inputs_and_not_on_their_place(tmp_path, kind):
    words, files = INPUTS[kind]
    prints = [fingerprint(composed(*words[:-1]))]
    for place, text in (("one", "1"), ("same", "1"), ("other", "2")):
        (tmp_path / place).mkdir()
        for name, content in files.items():
            (tmp_path / place / name).write_text(content.replace("%s", text))
        prints.append(fingerprint(composed(*(word.format(tmp_path / place) for word in words))))
    assert prints[1] == prints[2] and len(set(prints)) == 3
    if kind == "test set":
        assert fingerprint(composed(*words[:2])) not in prints


@pytest.mark.parametrize("key", PATHS)
def test_the_home_is_meant_by_a_tilde_in_every_path(key, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    overrides = ("task=gsm8k", "model=smollm2_135m", "dry_run=true", f"{key}='~/a b'")
    assert attrgetter(key)(composed(*overrides)) == f"{tmp_path}/a b"


@pytest.mark.parametrize("content", [None, b"\xff", b" \n", b"Solve {question}"])
def test_a_system_message_that_cannot_be_one_is_refused(tmp_path, content):
    file = tmp_path / "x"
    if content is not None:
        file.write_bytes(content)
    overrides = ("task=gsm8k", "model=smollm2_135m", f"task.system={file}")
    with pytest.raises(ConfigError) as caught:
        composed(*overrides)
    start = f"task.system={file}: must be a text file in UTF-8 with some text and no {{question}}"
    assert str(caught.value).startswith(start)
    assert composed(*overrides, "dry_run=true").task.system == str(file)


@pytest.mark.parametrize("key", ["task.system", "task.path", "task.test_path"])
def test_a_pipe_is_refused_instead_of_waited_for(key, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    task = ("task=jsonl", "model=smollm2_135m", f"task.path={__file__}")
    with pytest.raises(ConfigError, match=f"^{key}={tmp_path}/pipe: must be "):
        composed(*task, f"{key}={tmp_path}/pipe")


def test_every_file_of_a_model_counts_in_the_order_of_names(tmp_path, monkeypatch):
    endings = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
    (tmp_path / "a").mkdir()
    for name, content in {"config.json": "{}", **{f"part{end}": end for end in endings}}.items():
        (tmp_path / "a" / name).write_text(content)
    other = Path(shutil.copytree(tmp_path / "a", tmp_path / "b"))
    (other / "own.py").write_text("1 / 0")  # never run
    glob, before = Path.glob, fingerprint(composed(f"model.path={tmp_path / 'a'}"))
    monkeypatch.setattr(Path, "glob", lambda path, pattern: reversed([*glob(path, pattern)]))
    assert fingerprint(composed(f"model.path={other}")) == before  # where a disk lists it otherwise
    for end in endings:
        (other / f"part{end}").write_text("x")
        changed = fingerprint(composed(f"model.path={other}"))
        assert changed != before, end
        before = changed


def test_vllm_swaps_adapters_in_bfloat16_on_a_gpu_and_merges_in_float32_on_a_cpu():
    composed("model.tuning=lora", "engine.sync=adapter", "model.lora.r=1024")
    for hardware, expected in (("cpu", ("float32", "merged")), ("l40s", ("bfloat16", "adapter")),
                               ("h200", ("bfloat16", "adapter"))):  # fmt: skip
        config = composed("engine=vllm", f"hardware={hardware}", "model=qwen2_5_3b", "task=gsm8k",
                          "dry_run=true")  # fmt: skip
        assert (config.engine.dtype, config.engine.sync) == expected


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_both_engines_sample_at_any_temperature(engine):
    config = composed(f"engine={engine}", "sampling.temperature=0.005",
                      "evaluation.temperature=0.005", "dry_run=true")  # fmt: skip
    assert config.sampling.temperature == config.evaluation.temperature == 0.005


if __name__ == "__main__":
    print(reference())
