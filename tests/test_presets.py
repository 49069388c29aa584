"""Every preset has valid jobs, arms that train, and a folder that documents it."""

import csv
import re
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest
import yaml
from compose import PARSER, ROOT, composed
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from running import SHORT, run_here

from pods.analysis.loading.series_names import series_names
from pods.config.plan import question
from pods.config.schema import Config
from pods.launch import job
from pods.runs import attempts
from pods.runs.files import read_lines
from pods.runs.identity import fingerprint, identity, identity_keys

PRESETS = sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml"))
PUBLISHED = sorted(path.parent.name for path in (ROOT / "experiments").glob("*/published.csv"))


def jobs(preset: str) -> list[tuple[str, ...]]:
    """Return the overrides of each job of a preset's sweep, as Hydra's own sweeper has them."""
    text = (ROOT / f"conf/experiment/{preset}.yaml").read_text()
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    swept = PARSER.parse_overrides([f"{key}={values}" for key, values in params.items()])
    [all_jobs] = BasicSweeper.split_arguments(swept, max_batch_size=None)
    return list(map(tuple, all_jobs))


def table(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file, header first, without the comments on its source."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.reader(lines))


def published(preset: str) -> list[list[str]]:
    """Return the published numbers of a preset."""
    return table(ROOT / "experiments" / preset / "published.csv")


CELLS_HEADER, *PUBLISHED_CELLS = table(ROOT / "tests/tables/published_presets.csv")
SIZED = [preset for preset in PUBLISHED if {"arm", "m"} & {*published(preset)[0]}]
PARTLY = ("rules", "gsm8k_h100x8", "gsm8k_a100x8")  # some of their arms are unpublished


@pytest.fixture(autouse=True, scope="module")
def prompts(tmp_path_factory):
    """Put files where `pods reproduce gsm8k` leaves the authors' system messages."""
    home = tmp_path_factory.mktemp("home")
    (home / "published/prompts").mkdir(parents=True)
    for name in ("instruct.txt", "open_r1.txt"):
        (home / "published/prompts" / name).write_text(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODS_HOME", str(home))
        yield


@cache
def first_seed(preset: str) -> dict[tuple[str, ...], Config]:
    """Return the configs of the jobs with the preset's first seed, by their overrides."""
    seeds = [word for overrides in jobs(preset) for word in overrides if word.startswith("seed=")]
    first = min(seeds, key=lambda word: int(word.removeprefix("seed=")))
    return {
        overrides: composed(f"experiment={preset}", *overrides, "dry_run=true")
        for overrides in jobs(preset)
        if first in overrides
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_job_of_a_preset_is_valid(preset):
    series = first_seed(preset)
    assert len({fingerprint(identity(config)) for config in series.values()}) == len(series)
    seeds = [word for overrides in jobs(preset) for word in overrides if word.startswith("seed=")]
    assert len(seeds) % len(series) == 0 and len(set(seeds)) >= 2
    for config in series.values():
        assert config.study == preset
        assert config.budget.train_seconds or config.budget.max_steps


def test_every_arm_trains(tmp_path, monkeypatch):
    """On the embedded task; presets take the arms for their own."""
    monkeypatch.setattr(job, "set_threads", lambda threads: None)  # the tests have their own
    for slow in ("environment", "git"):  # the same in every run
        monkeypatch.setattr(attempts, slow, cache(getattr(attempts, slow)))
    arms = {path.stem for path in (ROOT / "conf/arm").glob("*.yaml")}
    used = {config.arm for preset in PRESETS for config in first_seed(preset).values()}
    assert used <= arms | {None}
    for arm in sorted(arms):
        store = run_here(f"arm={arm}", "nm=n16_m4", *SHORT, "budget.max_steps=2",
                         "checkpoint.every_steps=null", "evaluation.questions=4",
                         "evaluation.repeats=1", f"runs_dir={tmp_path}")  # fmt: skip
        assert [line["step"] for line in read_lines(store.metrics_path)] == [1, 2], arm


def sizes(preset: str, *names: str) -> set[tuple[object, ...]]:
    """Return the named sizes of each arm of a preset."""
    arms = [
        {"arm": config.arm, "prompts": config.prompts_per_step, **vars(config.nm)}
        for config in first_seed(preset).values()
    ]
    return {tuple(str(arm[name]) for name in names) for arm in arms}


@pytest.mark.parametrize("preset", SIZED)
def test_a_preset_has_the_sizes_of_its_published_runs(preset):
    header, *rows = published(preset)
    names = [name for name in ("arm", "n", "m") if name in header]
    theirs = {tuple(row[header.index(name)] for name in names) for row in rows}
    ours = sizes(preset, *names)
    assert theirs < ours if preset in PARTLY else theirs == ours


def test_on_one_gpu_a_step_is_one_group_of_one_prompt():
    """The authors' trainer takes a step after each prompt."""
    for preset in PRESETS:
        if preset.endswith(("_l40s", "_l40s_v1", "_scaling", "rules")):
            wide = {("grpo_wide", "4", "1")} if preset == "rules" else set()
            found = sizes(preset, "arm", "prompts", "groups")
            assert {size[1:] for size in found - wide} == {("1", "1")} and wide <= found, preset


def test_where_a_folder_states_the_number_of_runs_of_its_command_it_is_right():
    stated = {}
    for preset in PRESETS:
        text = (ROOT / "experiments" / preset / "README.md").read_text()
        found = re.findall(rf"^python src/run.py experiment={preset}\b.* # (\d+) runs", text, re.M)
        stated |= dict.fromkeys([preset] * len(found), int(found[0]) if found else 0)
    assert len(stated) >= 5
    assert stated == {preset: len(jobs(preset)) for preset in stated}


def test_the_runs_that_ablations_share_are_the_same_runs():
    """So `study=` can collect them, and no run is trained twice."""
    pods = {
        preset: {fingerprint(identity(config)) for config in first_seed(preset).values()
                 if (config.arm, config.nm.n, config.nm.m) == ("pods", 64, 16)}
        for preset in ("gsm8k_l40s", "n_scaling", "m_scaling", "rules")}  # fmt: skip
    assert len(set.union(*pods.values())) == 1 and all(pods.values())
    grpo = {
        fingerprint(identity(config))
        for preset in ("gsm8k_l40s", "n_scaling")
        for config in first_seed(preset).values()
        if (config.nm.n, config.nm.m) == (16, 16)
    }
    assert len(grpo) == 1  # 16→16 is GRPO, whatever rule keeps all


FAITHFULLY = ("reproduction=faithful", "dry_run=true")
CELLS = [dict(zip(CELLS_HEADER, cell, strict=True)) for cell in PUBLISHED_CELLS]


@pytest.mark.parametrize("preset", sorted({cell["preset"] for cell in CELLS}))
def test_a_preset_has_the_values_of_the_authors_files(preset):
    """published_presets.csv names file and line of each value."""
    differing, compared = [], 0
    for cell in (cell for cell in CELLS if cell["preset"] == preset):
        configs = first_seed(preset)
        if cell["arm"] == "faithful":
            configs = {
                words: composed(f"experiment={preset}", *words, *FAITHFULLY) for words in configs
            }
        for config in configs.values():
            if cell["arm"] in ("", "faithful", config.arm):
                ours, theirs = attrgetter(cell["key"])(config), yaml.safe_load(cell["value"])
                differing += [] if ours == theirs else [(cell, ours)]
                compared += 1
    assert differing == [] and compared >= 8


UNTEMPERED = {"update.logprob_temperature": "one"}
LENIENT = {"task.grader": "lenient", **UNTEMPERED}
LATEX = {"task.grader": "latex", "update.aggregation": "group_token_mean",
         "update.warmup_from_zero": True, "sampling.top_k": 50}  # fmt: skip
FAITHFUL = {  # what differs from reproduction=ours, besides the system message
    "gsm8k_l40s": LENIENT, "gsm8k_l40s_v1": LENIENT, "rules": LENIENT, "n_scaling": LENIENT,
    "m_scaling": LENIENT, "llama_l40s": LENIENT, "math_l40s": UNTEMPERED,
    "gsm8k_h100x8": LATEX, "gsm8k_a100x8": LATEX}  # fmt: skip


@pytest.mark.parametrize("preset", FAITHFUL)
def test_faithful_presets_differ_from_ours_as_the_authors_code_does(preset):
    [job, *_] = first_seed(preset)
    ours, faithful = (
        composed(f"experiment={preset}", *job, f"reproduction={mode}", "dry_run=true")
        for mode in ("ours", "faithful")
    )
    file = "open_r1.txt" if preset.endswith("x8") else "instruct.txt"
    assert faithful.task.system.endswith(f"/published/prompts/{file}")
    before, after = identity_keys(ours), identity_keys(faithful)
    assert {key: after[key] for key in after if after[key] != before[key]} == FAITHFUL[preset]
    assert faithful.reproduction == "faithful" and ours == first_seed(preset)[job]


def names(*runs):
    configs = [composed(*words, "dry_run=true") for words in runs]
    return series_names([(config, identity(config)) for config in configs])


def test_curves_of_the_two_modes_have_short_names_and_other_differences_are_named():
    job = ("experiment=gsm8k_l40s", "arm=pods")
    modes = ((*job, "reproduction=ours"), (*job, "reproduction=faithful"))
    assert names(*modes) == ["pods 64→16", "pods faithful 64→16"]
    words = ("task.grader=exact", "task.grader=lenient")
    expected = [f"pods{mode} 64→16, {word}" for mode in ("", " faithful") for word in words]
    assert names(*((*mode, word) for mode in modes for word in words)) == expected
    expected = ["pods faithful 64→16, update.lr=5e-06", "pods 64→16, update.lr=1e-05"]
    assert names(modes[1], (*job, "update.lr=1e-5")) == expected


def test_every_preset_has_a_folder_that_names_its_command_and_is_linked():
    for preset in PRESETS:
        command = f"python src/run.py experiment={preset}"
        text = (ROOT / "experiments" / preset / "README.md").read_text()
        assert re.search(rf"^{command}\b", text, re.M), preset
        second = (ROOT / f"conf/experiment/{preset}.yaml").read_text().splitlines()[1]
        assert second.startswith(f"# {command} ")
    links = set(re.findall(r"\]\((\w+)\)", (ROOT / "experiments/README.md").read_text()))
    assert links == {path.parent.name for path in (ROOT / "experiments").glob("*/README.md")}


def test_the_plan_of_the_language_model_study_expects_what_was_predicted():
    predicted = {}
    for arm, over, card, *_, expected in table(ROOT / "experiments/llm/predictions.csv")[1:]:
        arms = arm.replace("→", "->"), over.replace("→", "->")
        predicted[*arms, card] = "equal" if expected == "even" else expected
    asked = {}
    for text in yaml.safe_load((ROOT / "conf/plan/llm.yaml").read_text())["contrasts"]:
        one = question(text.replace("->", "→"))
        if one.expected is not None:
            asked[one.arm, one.baseline, Path(one.prices).stem] = one.expected
    assert asked == predicted and len(asked) == 8


def test_published_numbers_name_their_source():
    for preset in PUBLISHED:
        source = (ROOT / "experiments" / preset / "published.csv").read_text().partition("\n")[0]
        assert re.match(r"# (github\.com/\w+/\w+|arXiv:\d{4}\.\d{5})", source), preset
        header, *rows = published(preset)
        assert rows and all(len(row) == len(header) for row in rows)


def test_published_seconds_agree_with_those_of_the_cost_model():
    """The files were written separately: the cost model's by task, rule, n and m."""
    rows = table(ROOT / "src/pods_lab/price/authors_step_times.csv")[1:]
    theirs, compared = {tuple(row[:4]): row[4] for row in rows}, 0
    for preset in SIZED:
        header, *rows = published(preset)
        for row in (dict(zip(header, row, strict=True)) for row in rows):
            if "seconds_a_step" not in row or preset.endswith("x8"):
                continue
            arm = row.get("arm", "grpo" if row["n"] == row["m"] else "pods")
            rule = {"grpo": "all", "pods": "max_variance"}.get(arm, arm)
            task = "MATH" if preset.startswith("math") else "GSM8K"
            assert row["seconds_a_step"] == theirs[task, rule, row["n"], row["m"]], (preset, row)
            compared += 1
    assert compared == 16  # 2 + 5 + 4 + 3 + 2
