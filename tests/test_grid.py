"""Every unit of a study is deleted, doubled and cut off in turn: named, and never averaged."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from compose import composed
from studies import A, B, draw_in_one_format, write_evaluation, write_run

from pods.analysis.completeness import problems, questions_of
from pods.analysis.consistency import machine_of
from pods.analysis.run_reader import open_run
from pods.analysis.series_names import series_names
from pods.analysis.study import IncompleteStudy, MixedStudy, load
from pods.cli.main import main
from pods.runs.evaluations import FIELDS, answered_questions, record_columns, record_error
from pods.runs.store import RunStore, run_folders

SEEDS, ARMS, POINTS, REPEATS, QUESTIONS = 3, ("pods", "grpo"), 4, 5, 4
ENDS = (0, POINTS - 1)
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


def named(run: Path, questions: list[str]) -> str:
    """Everything that is wrong with one run."""
    return "\n".join(map(str, problems(open_run(run), "run", {"": questions})))


def test_a_complete_study_has_no_problem(study):
    loaded = load(study, run_folders(study))
    assert len(loaded.evaluations) == SEEDS * len(ARMS) * POINTS and not loaded.missing
    assert loaded.complete == {folder.name for folder in run_folders(study)}


def test_every_record_repeat_and_evaluation_is_named_whatever_befalls_it(study):
    """All of the first and last evaluation of a run; of others one, at both ends of each run."""
    [first, *_] = folders = run_folders(study)
    questions = questions_of([open_run(first)])
    for folder in folders:
        store = RunStore(folder)
        for step in range(POINTS) if folder == first else ENDS:
            path = store.evaluation_path(step)
            lines = path.read_text().splitlines(keepends=True)
            every = folder == first and step in ENDS
            for number, line in enumerate(lines) if every else [(7, lines[7])]:
                repeat, question = divmod(number, QUESTIONS)
                without = lines[:number] + lines[number + 1 :]
                damages = {
                    "gone": without,
                    "twice": [*lines, line],
                    "cut": [*lines[:number], line[:-9]],
                    "garbled": [*lines[:number], line[9:], *lines[number + 1 :]],
                }
                for damage, content in damages.items():  # fmt: skip
                    path.write_text("".join(content))
                    said = named(folder, questions)
                    assert f"run step {step}: " in said, damage
                    place = f"line {number + 1} " if damage == "garbled" else f"repeat {repeat}"
                    assert place in said
                    if damage == "gone":
                        assert said.endswith(f"lacks 1 of {QUESTIONS} questions: q{question}")
            for repeat in range(REPEATS) if every else [step % REPEATS]:
                part = slice(repeat * QUESTIONS, (repeat + 1) * QUESTIONS)
                path.write_text("".join(lines[: part.start] + lines[part.stop :]))
                assert f"step {step}: repeat {repeat} is missing" in named(folder, questions)
                path.write_text("".join(lines + lines[part]))
                assert f"repeat {repeat} has duplicates: q0 to q3" in named(folder, questions)
                other = lines[((repeat + 1) % REPEATS) * QUESTIONS :][:QUESTIONS]
                relabelled = [json.dumps({**json.loads(x), "repeat": repeat}) + "\n" for x in other]
                path.write_text("".join(lines[: part.start] + relabelled + lines[part.stop :]))
                said = named(folder, questions)
                assert f"repeat {repeat} has {QUESTIONS} answers of another run" in said
            path.unlink()
            assert f"run step {step}: no evaluation" in named(folder, questions)
            path.write_text("")
            assert f"run step {step}: repeat 0 is missing" in named(folder, questions)
            path.write_text("".join(lines))
    assert not named(first, questions)


def test_every_checkpoint_is_named(study):
    [first, *_] = folders = run_folders(study)
    questions = questions_of([open_run(first)])
    for folder in folders:
        store = RunStore(folder)
        for step in range(POINTS) if folder == first else ENDS:
            place = store.checkpoint(step)
            aside = place.rename(store.folder / "aside")
            assert f"run step {step}: no checkpoint" in named(folder, questions)
            shutil.copytree(store.checkpoint((step + 1) % POINTS), place)
            assert f"run step {step}: checkpoint is step" in named(folder, questions)
            shutil.rmtree(place)
            aside.rename(place)
            copy = store.checkpoint(step + 500)
            shutil.copytree(place, copy)
            assert f"checkpoint {copy.name} belongs to no evaluation point" in named(
                folder, questions
            )
            shutil.rmtree(copy)
            clock = (place / "clock.json").read_text()
            (place / "clock.json").write_text(clock[:-7])
            assert f"run step {step}: checkpoint: clock.json is damaged" in named(folder, questions)
            (place / "clock.json").write_text(clock)


def test_every_step_of_the_log_is_named(study):
    folder = run_folders(study)[0]
    store, questions = RunStore(folder), questions_of([open_run(folder)])
    lines = store.metrics_path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        store.metrics_path.write_text("".join(lines[:number] + lines[number + 1 :]))
        assert f"lacks step {number + 1}" in named(folder, questions)
        store.metrics_path.write_text("".join(lines[: number + 1] + lines[number:]))
        assert f"has step {number + 1} 2 times" in named(folder, questions)
        store.metrics_path.write_text("".join(lines[:number]) + line[:-9])
        assert f"lacks step {number + 1}" in named(folder, questions)
    store.metrics_path.write_text("".join(lines))


def test_every_run_is_named_and_nothing_is_averaged_without_it(study, capsys, tmp_path):
    command = ["aggregate", "grid", "--runs-dir", str(study.parent)]
    for folder in run_folders(study):
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


def test_missing_evaluations_are_left_out_and_counted_if_allowed(tmp_path, capsys, monkeypatch):
    stores = [write_run(tmp_path, A, f"seed={seed}") for seed in range(2)]
    late = stores[1]
    late.evaluation_path(2).unlink()
    folders = [store.folder for store in stores]
    with pytest.raises(IncompleteStudy, match="seed 1 step 2: no evaluation"):
        load(tmp_path / "default", folders)
    study = load(tmp_path / "default", folders, allow_missing=True)
    assert study.missing == ["max_variance 64→16 seed 1 step 2: no evaluation"]
    assert study.runs.complete.tolist() == [True, False]
    assert study.evaluations.step.tolist() == [0, 1, 2, 0, 1]
    assert set(study.questions.seed) == {0}
    draw_in_one_format(monkeypatch)
    assert main(["plot", "--runs-dir", str(tmp_path), "--allow-missing"]) == 0
    said = capsys.readouterr().out
    assert "n of max_variance 64→16: 2 until 4 s, 1 until 12 s" in said
    assert "complete runs: 1; missing: 1" in said


def test_an_unfinished_run_counts_up_to_its_last_evaluation(tmp_path):
    store = write_run(tmp_path, A)
    store.set_status(state="preempted")
    with pytest.raises(IncompleteStudy, match="run is preempted"):
        load(tmp_path / "default", [store.folder])
    study = load(tmp_path / "default", [store.folder], allow_missing=True)
    assert len(study.evaluations) == 3 and not study.complete


CHANGES = {  # of a record's fields, none of which JSON minds
    "correct": ["yes", 1, None], "format": [0.5], "repeat": ["0", 0.0, True], "question": [7],
    "length": [5.5, None, True], "seed": [1.5], "lenient": [1, "yes"], "finished": [0],
    "verdict": [None, ["right"], 1, "great", ""],
}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_of_another_type_is_named(tmp_path, field):
    store = write_run(tmp_path, A)
    path = store.evaluation_path(1)
    lines = path.read_text().splitlines(keepends=True)
    for value in CHANGES[field]:
        changed = json.dumps({**json.loads(lines[3]), field: value}) + "\n"
        path.write_text("".join([*lines[:3], changed, *lines[4:]]))
        assert answered_questions(store.config(), 1, path.read_bytes()) is None
        with pytest.raises(IncompleteStudy, match=f"step 1: step-000001.jsonl line 4: {field}="):
            load(tmp_path / "default", [store.folder])
    path.write_text("".join([*lines[:3], *lines[4:], lines[3][:20]]))
    with pytest.raises(IncompleteStudy, match="step 1: repeat 0 lacks 1 of 4 questions: q3"):
        load(tmp_path / "default", [store.folder])
    path.write_text("".join([*lines, lines[3][:20]]))
    with pytest.raises(IncompleteStudy, match="step 1: a line after the last record is cut off"):
        load(tmp_path / "default", [store.folder])


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


CONTRADICTIONS = {  # to a record that is right and that the authors' grader takes
    "right, but not correct": (lambda record: {**record, "correct": False},
                               "line 4: correct=False, but verdict=right"),
    "correct, but wrong": (lambda record: {**record, "verdict": "wrong"},
                           "line 4: correct=True, but verdict=wrong"),
    "correct, but timed out": (lambda record: {**record, "verdict": "timeout"},
                               "line 4: correct=True, but verdict=timeout"),
    "below 0": (lambda record: {**record, "length": -5}, "line 4: length=-5 is below 0"),
    "another kind": (lambda record: {**record, "lenient": None},
                     "line 4: lenient=None, but True in line 1"),
    "a field gone": (lambda record: without(record, "seed"), "line 4 has no seed"),
    "one new field gone": (lambda record: without(record, "lenient"), "line 4 has no lenient"),
    "an older version": (lambda record: without(record, "lenient", "verdict"),
                         "line 4 has no lenient, verdict: the run was made by an older version"),
    "a list": (lambda record: [*record], "line 4 is not a record"),
    "a number": (lambda record: 17, "line 4 is not a record"),
}  # fmt: skip


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_a_record_that_contradicts_itself_or_the_others_is_named(tmp_path, change):
    edit, said = CONTRADICTIONS[change]
    store = write_run(tmp_path, A, lenient=1)
    path = store.evaluation_path(1)
    lines = path.read_text().splitlines(keepends=True)
    changed = json.dumps(edit(json.loads(lines[3]))) + "\n"
    path.write_text("".join([*lines[:3], changed, *lines[4:]]))
    with pytest.raises(IncompleteStudy) as found:
        load(tmp_path / "default", [store.folder])
    assert f"step 1: step-000001.jsonl {said}" in str(found.value).splitlines()[-1]
    assert answered_questions(store.config(), 1, path.read_bytes()) is None
    path.write_text("".join(lines))
    assert answered_questions(store.config(), 1, path.read_bytes()) == ("q0", "q1", "q2", "q3")


def test_a_line_has_a_fault_if_and_only_if_it_is_no_record(tmp_path):
    """The quick check and the one that explains agree on random values in random fields."""
    rng = np.random.default_rng(0)
    text = write_run(tmp_path, A, lenient=1).evaluation_path(1).read_text()
    record = json.loads(text.splitlines()[0])
    values = [True, False, None, 0, 1, -1, 2.5, "", "right", "wrong", "timeout", [], {}]
    count = {True: 0, False: 0}
    for _ in range(5000):
        fields = rng.choice(FIELDS, rng.integers(0, 3))
        changed = {**record, **{name: values[rng.integers(len(values))] for name in fields}}
        valid = record_error(changed) is None
        count[valid] += 1
        with nullcontext() if valid else pytest.raises(ValueError, match="line 1"):
            record_columns([changed])
    assert min(count.values()) > 1000


def test_an_answer_of_another_run_is_named_and_nobody_else_is_blamed(tmp_path):
    stores = [write_run(tmp_path, A, f"seed={seed}") for seed in range(3)]
    path, other = (store.evaluation_path(1) for store in stores[:2])
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = other.read_text().splitlines(keepends=True)[2]
    path.write_text("".join(lines))
    folders = [store.folder for store in stores]
    with pytest.raises(IncompleteStudy, match="seed 0 step 1: repeat 0 has 1 answers of another"):
        load(tmp_path / "default", folders)
    lines[2] = lines[2].replace('"q2"', '"elsewhere"')
    path.write_text("".join(lines))
    with pytest.raises(IncompleteStudy) as found:
        load(tmp_path / "default", folders)
    assert "repeat 0 lacks 1 of 4 questions: q2" in str(found.value)
    assert "unexpected questions, which other evaluations lack: elsewhere" in str(found.value)
    assert str(found.value).count("seed 0") == len(str(found.value).splitlines()) - 1


def test_a_run_whose_parts_contradict_each_other_is_named(tmp_path):
    stores = [write_run(tmp_path, A, f"arm={arm}") for arm in ("pods", "grpo")]
    folders = [store.folder for store in stores]
    for name in ("config.yaml", "identity.json"):  # swapped between two arms
        one, other = (folder / name for folder in folders)
        texts = one.read_text(), other.read_text()
        one.write_text(texts[1])
        other.write_text(texts[0])
        with pytest.raises(IncompleteStudy, match=r"differ in nm.n|not the hash of identity.json"):
            load(tmp_path / "default", folders)
        one.write_text(texts[0])
        other.write_text(texts[1])
    config = folders[0] / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.0001", "lr: 0.001"))
    with pytest.raises(IncompleteStudy, match=r"config.yaml and identity.json differ in update.lr"):
        load(tmp_path / "default", folders)


def test_a_log_whose_clock_goes_back_is_named(tmp_path):
    store = write_run(tmp_path, A)
    lines = [json.loads(line) for line in store.metrics_path.read_text().splitlines()]
    lines[1]["train_seconds"] = 3.0  # after 4 s
    store.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(IncompleteStudy, match=r"the clock of metrics\.jsonl goes backwards"):
        load(tmp_path / "default", [store.folder])


def test_answers_in_another_order_are_named(tmp_path):
    store = write_run(tmp_path, A)
    path = store.evaluation_path(1)
    first, second, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *others]))
    with pytest.raises(IncompleteStudy, match="step 1: records are not in the order of the"):
        load(tmp_path / "default", [store.folder])


def test_questions_are_those_that_half_of_the_evaluations_answer():
    def run(*evaluations):
        return SimpleNamespace(records={
            step: SimpleNamespace(question=names) for step, names in enumerate(evaluations)
        })  # fmt: skip

    assert questions_of([run(["a", "b"], ["a", "b"]), run(["a", "c"], ["a"])]) == ["a", "b"]
    assert questions_of([run(["a", "b"]), run(["a"], ["a"])]) == ["a"]


def test_a_run_that_ends_before_its_budget_is_named(tmp_path):
    store = write_run(tmp_path, A[:2])
    with pytest.raises(IncompleteStudy, match="ends before its budget, at step 1 and 4 s"):
        load(tmp_path / "default", [store.folder])


@pytest.mark.parametrize("name", ["config.yaml", "identity.json", "metrics.jsonl", "status.json"])
@pytest.mark.parametrize("content", ["", "17\n", '["x"]\n', "{}\n", "{{{\n"])
def test_a_run_that_cannot_be_read_is_named_and_can_be_left_out(tmp_path, name, content):
    stores = [write_run(tmp_path, A, f"seed={seed}") for seed in range(2)]
    (stores[1].folder / name).write_text(content)
    folders = [store.folder for store in stores]
    with pytest.raises(IncompleteStudy, match=f"{stores[1].folder.name}|seed 1"):
        load(tmp_path / "default", folders)
    study = load(tmp_path / "default", folders, allow_missing=True)
    assert study.complete == {stores[0].folder.name}


def test_a_log_that_is_not_what_the_checkpoint_has_seen_is_named(tmp_path):
    store = write_run(tmp_path, A)
    log = store.metrics_path.read_text()
    store.metrics_path.write_text(log.replace('"reward": 0.1', '"reward": 0.9'))
    with pytest.raises(IncompleteStudy, match=r"step 2: metrics.jsonl is not the log that the"):
        load(tmp_path / "default", [store.folder])


def test_long_values_that_differ_late_have_two_names(tmp_path):
    weights = [["a" * 64, "b" * 64], ["a" * 64, "c" * 64]]
    config = open_run(write_run(tmp_path, A).folder).config
    found = series_names([(config, {"weights": of}) for of in weights])
    assert len(set(found)) == 2 and all(len(name) < 100 for name in found)


def test_a_clock_that_is_not_the_logs_is_named(tmp_path):
    store = write_run(tmp_path, A)
    shutil.rmtree(store.checkpoint(1))
    write_evaluation(store, 1, 3.0, 0, 2, 0)
    with pytest.raises(IncompleteStudy, match="checkpoint was made at 3 s, but the log says 4 s"):
        load(tmp_path / "default", [store.folder])


def environment(store: RunStore, **changes: object) -> None:
    path = store.folder / "attempts/001/environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("overrides", "changes", "said"),
    [
        ((), {"cpu": "Another CPU"}, "machine: A CPU (most) | Another CPU (pods 64→16 seed 2)"),
        ((), {"packages": {"torch": "2.12.1"}}, "torch: 2.13.0 (most) | 2.12.1 (pods 64→16 seed"),
        (("hardware=l40s",), {"gpus": ["NVIDIA L40S"]}, "machine: A CPU (most) | NVIDIA L40S ("),
        (("budget.train_seconds=11",), {}, "budget: 10 s of training clock (most) | 11 s of"),
        (("budget.max_steps=9",), {}, "budget: 10 s of training clock (most) | 10 s of training "),
        (("evaluation.temperature=0.5",), {}, "evaluation: 2 passes over all questions at "),
        (("update.lr=1e-3",), {}, "config within pods 64→16: update.lr=0.0001 (seeds 0, 1) | "
                                  "update.lr=0.001 (seeds 2)"),
    ],
)  # fmt: skip
def test_inconsistent_runs_are_named(tmp_path, overrides, changes, said):
    stores = [write_run(tmp_path, A, "arm=pods", f"seed={seed}", *(overrides if seed == 2 else ()))
              for seed in range(3)]  # fmt: skip
    environment(stores[2], **changes)
    folders = [store.folder for store in stores]
    with pytest.raises(MixedStudy) as found:
        load(tmp_path / "default", folders, allow_missing=True)
    assert said in str(found.value)
    study = load(tmp_path / "default", folders, allow_missing=True, allow_mixed=True)
    assert any(said in line for line in study.inconsistencies)


def test_a_swept_key_is_no_inconsistency(tmp_path):
    folders = [write_run(tmp_path, B, f"seed={seed}", f"update.lr={lr}").folder
               for seed in range(2) for lr in ("1e-3", "1e-4")]  # fmt: skip
    assert load(tmp_path / "default", folders).runs.series.nunique() == 2


def test_a_run_that_changed_on_the_way_has_to_be_allowed(tmp_path):
    store = write_run(tmp_path, A)
    (store.folder / "changes.json").write_text(json.dumps(["torch: 2.11.0 -> 2.13.0"]))
    with pytest.raises(MixedStudy, match=r"changed during the run: torch: 2.11.0 -> 2.13.0"):
        load(tmp_path / "default", [store.folder])


def test_the_machine_is_that_of_all_processes():
    on_cpu, on_gpu = composed(), composed("hardware=l40s")
    assert machine_of({"cpu": "A CPU"}, on_cpu) == machine_of(
        {"cpu": "A CPU", "processes": 1}, on_cpu
    )
    assert machine_of({"cpu": "A CPU", "processes": 2}, on_cpu) == "2 processes on A CPU"
    eight = {"gpus": ["H100"] * 8}
    for processes, said in ((1, "H100"), (8, "8 x H100"), (16, "16 x H100"), (None, "8 x H100")):
        assert machine_of({**eight, "processes": processes}, on_gpu) == said


def test_prompts_count_every_group_of_a_step(tmp_path):
    keys = ("prompts_per_step=3", "nm.groups=4", "nm=n16_m16")
    [row] = load(tmp_path / "default", [write_run(tmp_path, A, *keys).folder]).runs.itertuples()
    assert row.prompts == 12


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
            record = {"problems": 1, "sha256": file.stem * 20, "too_long": []}
            store.write_data({"train": record, "test": record})
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    assert study.runs.series.nunique() == 2 and study.inconsistencies == []
