"""Every unit of a study is deleted, doubled and cut off in turn: named, and never averaged."""

import json
import os
import re
import shlex
import shutil
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from compose import composed
from rows import every, table
from studies import BASE, A, B, start_policy, write_evaluation, write_run

from pods.analysis.loading.consistency import machine_of
from pods.analysis.loading.faults import faults
from pods.analysis.loading.load import load
from pods.analysis.loading.run_reader import open_run
from pods.analysis.loading.series_names import series_names
from pods.cli.main import main
from pods.runs.evaluations import read_evaluation
from pods.runs.files import write_json
from pods.runs.freeze import freeze
from pods.runs.store import RunStore, run_folders

SEEDS, ARMS, POINTS, REPEATS, QUESTIONS = 3, ("pods", "grpo"), 4, 5, 4
EVERY = tuple((step, float(4 * step), step) for step in range(POINTS))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """3 seeds x 2 arms x 4 checkpoints x 5 repeats."""
    runs_dir = tmp_path_factory.mktemp("grid")
    for seed in range(SEEDS):
        for arm in ARMS:
            write_run(runs_dir, EVERY, f"seed={seed}", f"arm={arm}", "evaluation.repeats=5",
                      "study=grid", repeats=REPEATS, questions=QUESTIONS)  # fmt: skip
    return runs_dir / "grid"


def named(run: Path) -> str:
    """Everything that is wrong with one run."""
    return "\n".join(map(str, faults(open_run(run), "run")))


def test_every_damaged_or_missing_evaluation_is_named(study):
    """test_evaluate.py and RECORDS below have what damages one."""
    for folder in run_folders(study):
        store = RunStore(folder)
        for step in range(POINTS):
            path = store.evaluation_path(step)
            lines = path.read_text().splitlines(keepends=True)
            record = 5 * step  # another one in each
            rest = lines[record + 1 :]
            for content, said in (
                ([*lines[:record], *rest], f"{path.name} is damaged: some records are missing"),
                ([*lines[:record], lines[record][9:], *rest], f"line {record + 1} is no record"),
                (None, "no evaluation"),
            ):
                path.unlink() if content is None else path.write_text("".join(content))
                assert f"run step {step}: " in named(folder) and said in named(folder)
            os.mkfifo(path.with_name("pipe"))
            path.with_name("pipe").replace(path)
            assert f"run step {step}: {path} is damaged: it is no file" == named(folder)
            path.unlink()
            path.write_text("".join(lines))
        assert not named(folder)


def test_every_checkpoint_is_named(study):
    for folder in run_folders(study)[:: SEEDS * len(ARMS) - 1]:  # the first and the last
        store = RunStore(folder)
        for step in range(POINTS):
            place = store.checkpoint(step)
            aside = place.rename(store.folder / "aside")
            assert f"run step {step}: no checkpoint" in named(folder)
            shutil.copytree(store.checkpoint((step + 1) % POINTS), place)
            assert f"run step {step}: checkpoint: it is step" in named(folder)
            shutil.rmtree(place)
            aside.rename(place)
            copy = store.checkpoint(step + 500)
            shutil.copytree(place, copy)
            assert f"checkpoint {copy.name} belongs to no evaluation point" in named(folder)
            shutil.rmtree(copy)
            clock = (place / "clock.json").read_text()
            (place / "clock.json").write_text(clock[:-7])
            assert f"run step {step}: checkpoint: clock.json is damaged" in named(folder)
            (place / "clock.json").write_text(clock)


def test_every_step_of_the_log_is_named(study):
    folder = run_folders(study)[0]
    store = RunStore(folder)
    lines = store.metrics_path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        store.metrics_path.write_text("".join(lines[:number] + lines[number + 1 :]))
        assert f"lacks step {number + 1}" in named(folder)
        store.metrics_path.write_text("".join(lines[: number + 1] + lines[number:]))
        assert f"has step {number + 1} 2 times" in named(folder)
        store.metrics_path.write_text("".join(lines[:number]) + line[:-9])
        assert f"lacks step {number + 1}" in named(folder)
    store.metrics_path.write_text("".join(lines))


def test_every_run_is_named_and_nothing_is_averaged_without_it(study, capsys, tmp_path):
    command = ["plot", "--tables", "grid", "--runs-dir", str(study.parent)]
    for folder in run_folders(study)[:: SEEDS * len(ARMS) - 1]:  # the first and the last
        config = RunStore(folder).config()
        label = f"{config.arm} {config.nm.n}→{config.nm.m} seed {config.seed}"
        aside = folder.rename(tmp_path / folder.name)
        assert main(command) == 2
        assert f"{label}: never run" in capsys.readouterr().err
        aside.rename(folder)
        twin = folder.with_name(f"{folder.name}-copy")
        shutil.copytree(folder, twin)
        assert main(command) == 2
        assert f"{label}: duplicate runs" in capsys.readouterr().err
        shutil.rmtree(twin)
    assert not (study / "figures").exists()


CHANGES = {  # of a record's fields, none of which JSON minds
    "correct": ["yes", 1, None], "format": [0.5], "repeat": ["0", 0.0, True], "question": [7],
    "length": [5.5, None, True, -5], "seed": [1.5], "lenient": [1, "yes"], "finished": [0],
    "verdict": [None, ["right"], 1, "great", ""]}  # fmt: skip
RECORDS = [  # in place of one that is right and that the authors' grader takes
    *((lambda row, new={field: value}: row | new, "line 4 is no record: ")
      for field, values in CHANGES.items() for value in values),
    (lambda row: row | {"correct": False}, "correct=False, but verdict=right"),
    (lambda row: row | {"verdict": "wrong"}, "correct=True, but verdict=wrong"),
    (lambda row: row | {"verdict": "timeout"}, "correct=True, but verdict=timeout"),
    (lambda row: row | {"more": 1}, "field `more`"),
    (lambda row: [*row], "line 4 is no record: Expected `object`"),
    (lambda row: 17, "line 4 is no record: Expected `object`"),
    *((lambda row, gone=field: {name: row[name] for name in row if name != gone},
       f"field `{field}`") for field in CHANGES)]  # fmt: skip


def test_a_record_that_contradicts_its_types_or_itself_is_named(tmp_path):
    store = write_run(tmp_path, A, lenient=1)
    path = store.evaluation_path(1)
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    assert len(read_evaluation(store, store.config(), 1)) == 8

    def check(edit, said):
        changed = json.dumps(edit(json.loads(lines[3]))) + "\n"
        path.write_text("".join([*lines[:3], changed, *lines[4:]]))
        with pytest.raises(ValueError) as found:
            load(tmp_path / "default", [store.folder])
        last = str(found.value).splitlines()[-1]
        assert "step-000001.jsonl is damaged: line 4 is no record: " in last and said in last

    every(RECORDS, check)


def test_an_answer_of_another_run_is_named_and_nobody_else_is_blamed(tmp_path):
    stores = [write_run(tmp_path, A, f"seed={seed}") for seed in range(3)]
    path, other = (store.evaluation_path(1) for store in stores[:2])
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = other.read_text().splitlines(keepends=True)[2]
    path.write_text("".join(lines))
    folders = [store.folder for store in stores]
    with pytest.raises(ValueError, match=r"seed 0 step 1: .*step-000001.jsonl is damaged: some"):
        load(tmp_path / "default", folders)
    lines[2] = lines[2].replace('"q2"', '"elsewhere"')
    path.write_text("".join(lines))
    with pytest.raises(ValueError) as found:
        load(tmp_path / "default", folders)
    assert str(found.value).count("seed 0") == len(str(found.value).splitlines()) - 1


def edited(name, old, new):
    """An edit of one of a run's files."""

    def edit(store: RunStore) -> None:
        text = (store.folder / name).read_text()
        assert old in text
        (store.folder / name).write_text(text.replace(old, new))

    return edit


def other_clock(store: RunStore) -> None:
    shutil.rmtree(store.checkpoint(1))
    write_evaluation(store, 1, 3.0, 0, 2, 0)


FAULTS = {  # of a run, and what is said of it
    "preempted": (lambda store: store.set_status(state="preempted"), "run is preempted"),
    "lost": (lambda store: store.set_status(state="lost"), "run is lost"),
    "its clock goes back": (edited("metrics.jsonl", '"train_seconds": 12.0', '"train_seconds": 3'),
                            "the clock of metrics.jsonl goes backwards"),
    "its log is edited": (edited("metrics.jsonl", '"reward": 0.1', '"reward": 0.9'),
                          "step 2: metrics.jsonl is not the log that the"),
    "its config is edited": (edited("config.yaml", "lr: 0.0001", "lr: 0.001"),
                             "config.yaml and identity.json differ in update.lr"),
    "another clock": (other_clock, "checkpoint was made at 3 s, but the log says 4 s"),
    "changed": (lambda store: write_json(store.folder / "changes.json", ["torch: 2.11 -> 2.13"]),
                "changed during the run: torch: 2.11 -> 2.13")}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_run_is_named(tmp_path, fault):
    damage, said = FAULTS[fault]
    store = write_run(tmp_path, A)
    damage(store)
    with pytest.raises(ValueError, match=re.escape(said)):
        load(tmp_path / "default", [store.folder])
    if fault == "preempted":  # it counts up to its last evaluation
        study = load(tmp_path / "default", [store.folder], allow=True)
        assert len(study.evaluations) == 3 and not study.complete


def test_a_run_that_failed_or_never_began_is_left_out_and_the_command_that_is_named_works(
    tmp_path, capsys
):
    tmp_path = tmp_path / "my runs"  # which a shell takes for two words
    for seed in (0, 1):
        for arm in ("pods", "grpo"):
            write_run(tmp_path, A, f"arm={arm}", f"seed={seed}")
    failed = write_run(tmp_path, A[:2], "arm=pods", "update.lr=0.5", "seed=2")
    failed.set_status(state="failed", error="late")
    begun = freeze(composed(f"runs_dir={tmp_path}", *BASE, "arm=pods", "seed=2"))
    lines = ["pods 64→16 seed 2 never began: ", "pods 64→16 seed 2 failed: "]
    study = tmp_path / "default"
    page = study / "figures/report.html"
    for words in (["plot", "--tables", study], ["compare", "--study", study], ["report", study]):
        assert main([str(word) for word in words]) == 0
        said = capsys.readouterr().out
        said = page.read_text() if words[0] == "report" else said
        assert all(line in said for line in lines) and "lr=0.5" not in said

    missing = load(study, run_folders(study)).missing
    for line, store in zip(missing, (begun, failed), strict=True):
        command = re.search("`pods (.*)` removes it$", line)[1]
        assert store.folder.is_dir() and main(shlex.split(command)) == 0
        assert not store.folder.exists()
    assert load(study, run_folders(study)).missing == []
    for folder in run_folders(study):
        RunStore(folder).set_status(state="failed", error="E")
    with pytest.raises(ValueError, match=r"default: no evaluation to read\n(.* failed: .*\n?){4}$"):
        load(study, run_folders(study), allow=True)


def test_a_run_whose_parts_contradict_each_other_is_named(tmp_path):
    stores = [write_run(tmp_path, A, f"arm={arm}") for arm in ("pods", "grpo")]
    folders = [store.folder for store in stores]
    for name in ("config.yaml", "identity.json"):  # swapped between two arms
        one, other = (folder / name for folder in folders)
        texts = one.read_text(), other.read_text()
        one.write_text(texts[1])
        other.write_text(texts[0])
        with pytest.raises(ValueError, match=r"differ in nm.n|not the hash of identity.json"):
            load(tmp_path / "default", folders)
        one.write_text(texts[0])
        other.write_text(texts[1])
    store = write_run(tmp_path, A[:2], "study=early")
    with pytest.raises(ValueError, match="ends before its budget, at step 1 and 4 s"):
        load(tmp_path / "early", [store.folder])


def test_of_two_equal_runs_the_one_that_contradicts_itself_is_left_out(tmp_path):
    whole = write_run(tmp_path, A).folder
    copy = whole.with_name("seed0-0")  # whose name is no hash, and which comes first
    shutil.copytree(whole, copy)
    for folders in ((copy, whole), (whole, copy)):
        study = load(tmp_path / "default", folders, allow=True)
        assert study.runs.folder.tolist() == [str(whole)]
        assert study.complete == {whole.name} and "duplicate runs" in "".join(study.missing)


def test_a_run_that_cannot_be_read_is_named_and_can_be_left_out(tmp_path):
    folders = [write_run(tmp_path, A, f"seed={seed}").folder for seed in range(2)]

    def check(name, content):
        path = folders[1] / name
        before = path.read_text()
        path.write_text(content)
        try:
            with pytest.raises(ValueError, match=f"{folders[1].name}|seed 1"):
                load(tmp_path / "default", folders)
            study = load(tmp_path / "default", folders, allow=True)
            assert study.complete == {folders[0].name}
        finally:
            path.write_text(before)

    names = ("config.yaml", "identity.json", "metrics.jsonl", "status.json")
    every(product(names, ("", "17\n", '["x"]\n', "{}\n", "{{{\n")), check)


def test_long_values_that_differ_late_have_two_names(tmp_path):
    weights = [["a" * 64, "b" * 64], ["a" * 64, "c" * 64]]
    config = open_run(write_run(tmp_path, A).folder).config
    found = series_names([(config, {"weights": of}) for of in weights])
    assert len(set(found)) == 2 and all(len(name) < 100 for name in found)


def environment(store: RunStore, **changes: object) -> None:
    path = store.folder / "attempts/001/environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(("overrides", "changes", "said"), table("inconsistent"))
def test_inconsistent_runs_are_named(tmp_path, overrides, changes, said):
    stores = [write_run(tmp_path, A, "arm=pods", f"seed={seed}", *(overrides if seed == 2 else ()))
              for seed in range(3)]  # fmt: skip
    environment(stores[2], **changes)
    folders = [store.folder for store in stores]
    with pytest.raises(ValueError) as found:
        load(tmp_path / "default", folders)
    assert said in str(found.value)
    assert f"; `pods clean {folders[2]} --yes` removes it" in str(found.value)
    study = load(tmp_path / "default", folders, allow=True)
    assert any(said in line for line in study.inconsistencies)


def test_the_machine_is_that_of_all_processes():
    on_cpu, on_gpu = composed(), composed("hardware=l40s")
    for processes, said in ((None, "A CPU"), (1, "A CPU"), (2, "2 processes on A CPU")):
        assert machine_of({"cpu": "A CPU", "processes": processes}, on_cpu) == said
    eight = {"gpus": ["H100"] * 8}
    for processes, said in ((1, "H100"), (8, "8 x H100"), (16, "16 x H100"), (None, "8 x H100")):
        assert machine_of({**eight, "processes": processes}, on_gpu) == said


def test_prompts_count_every_group_of_a_step_and_the_machine_is_that_of_the_last_attempt(tmp_path):
    store = write_run(tmp_path, A, "prompts_per_step=3", "nm.groups=4", "nm=n16_m16")
    shutil.copytree(store.folder / "attempts/001", store.folder / "attempts/000")
    environment(store, cpu="B")
    [row] = load(tmp_path / "default", [store.folder], allow=True).runs.itertuples()
    assert (row.prompts, row.machine) == (12, "B")


def test_runs_with_other_system_messages_have_other_prompts_and_are_comparable(tmp_path):
    """The hash of the data is of whole prompts, so it differs wherever the message does."""
    files = [tmp_path / name for name in ("one.txt", "other.txt")]
    for seed, file in enumerate(files):
        file.write_text(f"Message {seed}.")
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n')
    for seed in range(2):
        for file in files:
            keys = ("task=gsm8k", "model=smollm2_135m", f"task.path={data}", f"task.system={file}")
            store = write_run(tmp_path, A, *keys, "study=s", f"seed={seed}")
            record = {"problems": 4, "sha256": file.stem * 20, "too_long": []}
            write_json(store.data_path, {"train": record, "test": record})
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    assert study.runs.series.nunique() == 2 and study.inconsistencies == []


def test_what_is_said_of_many_curves_fits_on_screens_and_counts_the_rest(
    tmp_path, monkeypatch, capsys
):
    """Of 44 curves each has one of two seeds, and a processor of its own; the files have all."""
    monkeypatch.chdir(tmp_path)
    for number in range(44):
        store = write_run(Path("runs"), B, f"update.lr={1 + number}e-4", f"seed={number % 2}")
        attempt = store.folder / "attempts" / "001" / "environment.json"
        attempt.write_text(json.dumps({"cpu": f"CPU {number}"}))

    assert main(["plot"]) == 2
    refusal = capsys.readouterr().err.splitlines()
    assert "and 4 more" in refusal and len(refusal) < 50
    [machines] = [line for line in refusal if line.startswith("machine: ")]
    assert machines.endswith(" | and 36 more") and len(machines) < 1000

    assert main(["plot", "--tables", "--allow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"and 5 more in summary.csv", "and 4 more"} <= set(lines) and len(lines) < 100
    assert len(pd.read_csv("runs/default/figures/summary.csv")) == 44

    assert main(["compare", "--allow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "and 5 more in compare.arms.csv" in lines and len(lines) < 300
    found = json.loads(Path("runs/default/figures/compare.json").read_text())
    assert len([line for line in found["caveats"] if line.startswith("Missing")]) == 44


def test_a_report_names_the_first_faults_and_counts_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arm in ARMS:
        store = write_run(Path("runs"), A, f"arm={arm}")
    for step in range(100, 145):  # of another run
        store.checkpoint(step).mkdir()
    assert main(["report"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "and 5 more"
    assert main(["report", "--allow"]) == 0
    page = Path("runs/default/figures/report.html").read_text()
    assert page.count("belongs to no evaluation point</li>") == 40
    assert '<li class="alarm">and 5 more</li>' in page


def test_a_start_policy_of_each_seeds_own_tells_no_curves_apart(tmp_path):
    """Seed 3 begins where seed 0 did, so that then a start is a setting like others."""
    folder = tmp_path / "starts"
    for seed in range(3):
        start = start_policy(tmp_path / f"s{seed}")
        for arm in ARMS:
            write_run(tmp_path, A, f"seed={seed}", f"arm={arm}", *start, "study=starts")

    own = load(folder, run_folders(folder))
    assert own.order == ["grpo 16→16", "pods 64→16"] and own.own_starts
    assert own.runs.groupby("series").seed.agg(list).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert own.note == "Each seed has a start policy of its own."
    part = load(folder, [run for run in run_folders(folder) if "seed0" in run.name])
    assert (part.order, set(part.runs.series)) == (own.order, set(own.runs.series))

    for arm in ARMS:
        start = start_policy(tmp_path / "s0")
        write_run(tmp_path, A, "seed=3", f"arm={arm}", *start, "study=starts")
    shared = load(folder, run_folders(folder), allow=True)
    assert shared.runs.series.nunique() == 6 and shared.note == "" and not shared.own_starts
