"""Every preset: its jobs pass the door, its arms train, and its folder says what it is."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache

import pytest
import yaml
from compose import ROOT, composed
from running import SHORT

from pods import job
from pods.checks import build
from pods.config import Config
from pods.method.downsample import RULES
from pods.runs.files import read_lines
from pods.runs.frozen import freeze
from pods.runs.identity import fingerprint, identity

PRESETS = sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml"))
FOLDERS = {path.name for path in (ROOT / "experiments").iterdir() if path.is_dir()}
LOSS = ("aggregation", "clip_low", "clip_high", "kl_beta", "schedule", "warmup_steps",
        "schedule_steps")  # fmt: skip


def jobs(preset: str) -> Iterator[tuple[str, ...]]:
    """The words of each job of a preset's sweep."""
    text = (ROOT / f"conf/experiment/{preset}.yaml").read_text()
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    for values in itertools.product(*(swept(str(value)) for value in params.values())):
        yield tuple(f"{key}={value}" for key, value in zip(params, values, strict=True))


def swept(values: str) -> list[str]:
    """`range(3)` is 0, 1, 2; anything else a list with commas."""
    count = re.fullmatch(r"range\((\d+)\)", values)
    return [str(i) for i in range(int(count[1]))] if count else values.split(",")


@cache
def first_seed(preset: str) -> dict[tuple[str, ...], Config]:
    """The configs of the jobs with seed 0, by the words that tell them apart."""
    return {
        words: composed(f"experiment={preset}", *words, "dry_run=true")
        for words in jobs(preset)
        if "seed=0" in words
    }


def tiny(config: Config, embedded: Config) -> Config:
    """Two steps on the embedded task by a job's method: rule, problems, filter, groups, loss."""
    nm, loss, filters = config.nm, config.update, config.group_filter
    resampled = replace(filters, batch=filters.batch and 4, min_batch=min(2, filters.min_batch))
    alike = replace(embedded.group_filter, name=filters.name)  # its other keys are not read
    small = replace(
        embedded,
        nm=replace(nm, n=4 if nm.n == nm.m else 16, m=4),
        update=replace(
            embedded.update,
            minibatches=min(2, loss.minibatches),
            **{name: getattr(loss, name) for name in LOSS},
        ),
        group_filter=resampled if filters.name == "resample" else alike,
        **{name: getattr(config, name) for name in ("sampler", "prompts", "advantage")},
    )
    return build(asdict(small))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_job_of_a_preset_passes_the_door(preset):
    series = first_seed(preset)
    assert len({fingerprint(identity(config)) for config in series.values()}) == len(series)
    seeds = [word for words in jobs(preset) for word in words if word.startswith("seed=")]
    assert len(seeds) % len(series) == 0 and len(set(seeds)) >= 2
    for config in series.values():
        assert config.study == preset
        assert config.budget.train_seconds or config.budget.max_steps


def test_the_arms_of_every_preset_train(tmp_path, monkeypatch):
    """Arms of different presets that come to the same on the embedded task are one run."""
    monkeypatch.setattr(job, "set_threads", lambda threads: None)  # the tests have theirs
    for slow in ("environment", "working_tree_changes"):  # the same in every run
        monkeypatch.setattr(job, slow, cache(getattr(job, slow)))
    embedded = composed(*SHORT, "budget.max_steps=2", "checkpoint.every_steps=null",
                        "evaluation.questions=4", "evaluation.repeats=1",
                        f"runs_dir={tmp_path}")  # fmt: skip
    configs = [config for preset in PRESETS for config in first_seed(preset).values()]
    folders = {freeze(tiny(config, embedded)).folder for config in configs}
    assert {folder.parent.name.partition("-")[0] for folder in folders} == set(RULES)
    for folder in sorted(folders):
        assert job.execute(folder) == job.DONE, folder
        assert [line["step"] for line in read_lines(folder / "metrics.jsonl")] == [1, 2]


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"gsm8k_smollm2_cpu"}))
def test_a_preset_can_be_tried_on_the_embedded_task(preset):
    """By words alone; gsm8k_smollm2_cpu wants `sampling.max_completion_tokens=32` beside them."""
    words = ("model=tiny", "task=chainsum", "hardware=cpu", "engine=transformers")
    config = composed(f"experiment={preset}", *words, *next(jobs(preset)))
    assert (config.model.name, config.task.name, config.hardware.device) == (
        "tiny", "chainsum", "cpu",
    )  # fmt: skip
    assert config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens <= 128


@pytest.mark.parametrize(
    ("preset", "arms"),
    [
        ("gsm8k_l40s", {"grpo": (1, 16, 16, 1), "pods": (1, 64, 16, 1)}),
        ("gsm8k_l40s_v1", {"grpo": (1, 16, 16, 1), "pods": (1, 32, 16, 1)}),
        ("math_l40s", {"grpo": (1, 8, 8, 1), "pods": (1, 32, 8, 1)}),
        # of both 512 rollouts a prompt: 16 x 32, and 4 x 128
        ("gsm8k_h100x8", {"grpo_ga": (8, 32, 32, 16), "pods": (8, 128, 32, 4),
                          "aliased": (8, 128, 32, 4)}),
        ("greso_math", {"dapo": (256, 8, 8, 1), "greso": (256, 8, 8, 1)}),
        ("mopps_math", {"grpo": (256, 8, 8, 1), "mopps": (256, 8, 8, 1)}),
        ("dapo_math", {"grpo": (512, 16, 16, 1), "dapo": (512, 16, 16, 1)}),
    ],
)  # fmt: skip
def test_prompts_a_step_rollouts_kept_and_groups(preset, arms):
    found = {
        config.arm: (config.prompts_per_step, config.nm.n, config.nm.m, config.nm.groups)
        for config in first_seed(preset).values()
    }
    assert found == arms


def test_the_runs_that_ablations_share_are_the_same_runs():
    """So that `study=` can gather them, and none is made twice."""
    pods = {
        preset: {fingerprint(identity(config)) for config in first_seed(preset).values()
                 if (config.arm, config.nm.n, config.nm.m) == ("pods", 64, 16)}
        for preset in ("gsm8k_l40s", "n_scaling", "m_scaling", "rules")
    }  # fmt: skip
    assert len(set.union(*pods.values())) == 1 and all(pods.values())


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_folder_that_names_its_command(preset):
    command = f"python src/run.py experiment={preset}"
    assert re.search(
        rf"^{command}\b", (ROOT / "experiments" / preset / "README.md").read_text(), re.M
    )
    second = (ROOT / f"conf/experiment/{preset}.yaml").read_text().splitlines()[1]
    assert second.startswith(f"# {command} ")


def test_every_folder_is_linked():
    links = set(re.findall(r"\]\((\w+)\)", (ROOT / "experiments/README.md").read_text()))
    assert links == FOLDERS


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*/published.csv")), ids=str)
def test_published_numbers_name_their_source(path):
    source, header, *rows = path.read_text().splitlines()
    assert source.startswith("# ") and rows
    assert {row.count(",") for row in rows} == {header.count(",")}
