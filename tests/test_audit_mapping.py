"""`pods audit`: what the columns mean is proposed or given, typed, and refused with the reason."""

import re
import time

import pytest
import yaml
from foreign_runs import LIFT, audited, ends, rows_of, run_log, study

from pods import audit
from pods_lab.audit import labels
from pods_lab.audit.mapping import (
    ABOUT,
    Mapping,
    check,
    count_columns,
    find_column,
    read_map,
    typed,
    write_map,
)
from pods_lab.audit.propose import mapping_lines, propose

BOMB = "step: " + "".join(f"&a{i} [" for i in range(3)) + "x" + "]" * 3


def refused(text, tmp_path):
    """The message for a mapping file with a text."""
    path = tmp_path / "map.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="map=") as caught:
        read_map(path)
    message = str(caught.value)
    assert message.startswith(f"map={path}: ") and "\n" not in message and len(message) < 400
    return message.removeprefix(f"map={path}: ")


@pytest.mark.parametrize(("text", "message"), [
    ("score: 5", "score=5: must be a text (in quotes if it looks like a number) or null"),
    ("score: [a]", "score=a list: must be a text"),
    ("method: [1]", "method=a list: must be a text"),
    ("method: null", "method=None: must be a text"),
    ("questions: abc", "questions=abc: must be a whole number or null"),
    ("questions: 1.5", "questions=1.5: must be a whole number or null"),
    ("repeats: null", "repeats=None: must be a whole number"),
    ("step: 5", "step=5: must be a text or a list of texts"),
    ("step: {a: b}", "step=keys and values: must be a text or a list of texts"),
    (BOMB, "step=a list: must be a text or a list of texts"),
    ("baseline: [a]", "baseline=a list: must be a text"),
    ("baseline: 16", "baseline=16: must be a text (in quotes if it looks like a number)"),
    ("unit: percentage", "unit=percentage: must be share, percent or score"),
    ("seconds: yes", "seconds=True: must be a text"),
    ("colour: red", "colour: must be one of score, unit, step"),
    ("? [a, b]\n: red", "must be a file of keys and values"),
    ("5: red", "5: must be one of score"),
    ("- score", "must be a file of keys and values"),
    ("a: " + "[" * 5000, "must be a file of keys and values"),
    ("score: !!python/object/apply:os.system [ls]", "must be a file of keys and values: could not"),
])  # fmt: skip
def test_values_of_a_mapping_have_types(tmp_path, text, message):
    assert refused(text, tmp_path).startswith(message)


def test_aliases_of_aliases_and_files_that_are_none_end_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 13)]
    begin = time.process_time()  # which other processes do not lengthen
    assert refused("\n".join(lines), tmp_path).startswith("a0: must be one of")
    nested = ["step:", "- &a0 [x, x, x]", *(f"- &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]"
              for i in range(1, 30))]  # fmt: skip
    assert refused("\n".join(nested), tmp_path).startswith("step=a list")
    (tmp_path / "big.yaml").write_text("# " + "x" * 2**20)
    for name in (".", "big.yaml", "none.yaml"):
        with pytest.raises(ValueError, match="must be a file of keys and values: no file of at"):
            read_map(tmp_path / name)
    assert time.process_time() - begin < 20


def test_the_same_types_hold_in_a_script(tmp_path):
    with pytest.raises(ValueError, match=r"^questions=many: must be a whole number or null$"):
        audit(tmp_path, questions="many")
    assert typed({"step": "update"}) == {"step": ["update"]}


def test_a_mapping_that_is_written_is_read_again(tmp_path):
    logs = study(2, **{"Zeit [h]": lambda method, seed, step: step, "é: #": lambda *_: 1})
    mapping = propose(logs, {"seconds": "Zeit [h]", "baseline": "grpo"})
    path = tmp_path / "map.yaml"
    write_map(mapping, count_columns(logs), path)
    assert Mapping(**read_map(path)) == mapping and [*yaml.safe_load(path.read_text())] == [*ABOUT]
    comments = [line for line in path.read_text().splitlines() if line.startswith("#   ")]
    assert comments == ['#   "Zeit [h]"', '#   "accuracy"', '#   "step"', '#   "é: #"']
    with pytest.raises(ValueError, match=r"map\.yaml: exists already"):
        write_map(mapping, [], path)


def test_nothing_recognised_is_still_written_and_said():
    logs = [run_log("a-seed0", [{"update": 1, "quality": 0.5}])]
    mapping = propose(logs, {})
    assert (mapping.score, mapping.step, mapping.seconds) == (None, [], None)
    with pytest.raises(
        ValueError,
        match=r"^score: no column has the name of a score; --init "
        r"writes a file that can name one of quality, update$",
    ):
        check(logs, mapping)


@pytest.mark.parametrize("name", ["eval.gsm8k.accuracy", "eval/gsm8k/accuracy"])
@pytest.mark.parametrize("there", ["eval.gsm8k.accuracy", "eval/gsm8k/accuracy"])
def test_parts_of_a_name_are_joined_by_dots_or_slashes(name, there):
    logs = [run_log(f"{method}-seed0", [{"step": row["step"], there: row["accuracy"]}
                    for row in rows_of(method, 0)]) for method in LIFT]  # fmt: skip
    assert audited(logs, score=name).study.metric == there
    assert find_column("a.b", ["a/b", "a.b/c"]) == "a/b"
    assert find_column("a.b.c", ["a/b.c", "a.b/c"]) is None  # either may be meant


@pytest.mark.parametrize("header", ["Algorithm,rng_seed,update,GSM8K acc (%),wall clock [h]",
                                    "algo name,the seed,it,quality,t (h)"])  # fmt: skip
def test_columns_for_method_and_seed_split_a_table_into_its_runs(tmp_path, header):
    lines = [f"{method},{seed},{row['step']},{100 * row['accuracy']:.2f},{row['step'] / 360}"
             for method in LIFT for seed in range(4) for row in rows_of(method, seed)]  # fmt: skip
    (tmp_path / "results.csv").write_text("\n".join([header, *lines]))
    method, seed, step, score, seconds = header.split(",")
    found = audit(tmp_path, method=f"column:{method}", seed=f"column:{seed}", step=[step],
                  score=score, seconds=seconds, unit="percent")  # fmt: skip
    assert len(found.complete) == 8 and found.missing == [] and found.seeded
    assert found.runs.groupby("series").seed.apply(list).to_dict() == {
        "grpo": [0, 1, 2, 3], "pods": [0, 1, 2, 3]}  # fmt: skip
    assert found.evaluations.accuracy.between(0.3, 0.8).all()
    assert found.evaluations.train_seconds.max() == pytest.approx(1000.0)


def test_a_column_can_name_the_run(tmp_path):
    lines = [f"{2 * seed + (method == 'pods')},{method},{row['step']},{row['accuracy']}"
             for method in LIFT for seed in range(3) for row in rows_of(method, seed)]  # fmt: skip
    (tmp_path / "results.csv").write_text("\n".join(["job,method,step,accuracy", *lines]))
    found = audit(tmp_path, run="column:job")
    assert len(found.complete) == 6 and {*found.runs.series} == {"grpo", "pods"}
    for run, message in (
        ("job", "run=job: must be column:NAME"),
        ("column:jobs", "run=column:jobs: no log has this column; there are acc"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(tmp_path, run=run)


def test_a_pattern_reads_the_method_from_names_of_runs_in_one_file():
    logs = [
        run_log(f"{method}-{seed}", rows_of(short, seed), path="exp-3/wandb_export.csv")
        for method, short in (("ppo", "grpo"), ("mine", "pods"))
        for seed in range(3)
    ]
    kinds = ("path", "name")
    for kind in kinds:
        found = audited(logs, method=rf"{kind}:([a-z]+)-\d", seed=rf"{kind}:-(\d+)$")
        assert ends(found, "method") == {log.name: log.name[:-2] for log in logs}
        assert [*ends(found, "seed").values()] == [0, 1, 2] * 2
    paths = [run_log(str(i), rows_of("grpo", i), path=f"lr{i % 2}/{i}.csv") for i in range(4)]
    found = audited(paths, method=r"path:(lr\d)", seed=None)
    assert [*ends(found, "method").values()] == ["lr0", "lr1"] * 2
    with pytest.raises(ValueError, match="no run has it"):
        audited(paths, method=r"name:(lr\d)")


def test_a_pattern_that_takes_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(labels, "PATIENCE", 1.0)
    logs = [run_log("a" * 60, rows_of("grpo", 0))]
    with pytest.raises(ValueError, match=re.escape(r"method=name:((a+)+)+$b: takes longer than")):
        audited(logs, method="name:((a+)+)+$b")


@pytest.mark.parametrize(("key", "source", "message"), [
    ("method", "seed", "method=seed: must be name, config:KEY, column:NAME, path:REGEX or name"),
    ("method", "config:", "method=config:: must be name"),
    ("method", "name:(", "is no regular expression"),
    ("seed", "config:rng", "seed=config:rng: no run has it"),
    ("test_set", "column:set", "test_set=column:set: no run has it"),
    ("score", "acc", "score=acc: no log has this column; there are accuracy, step"),
    ("tokens", "sum:tok", "tokens=tok: no log has this column"),
    ("baseline", "ppo", "baseline=ppo: must be one of grpo | pods"),
    ("several", "rank=0", "several=rank=0: must be COLUMN=VALUE or mean; no log has a column"),
    ("several", "step=7", "several=step=7: must be COLUMN=VALUE or mean; step has 10, 100, 20"),
])  # fmt: skip
def test_what_was_chosen_and_is_not_there_is_refused(key, source, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        audited(study(2), **{key: source})


@pytest.mark.parametrize("seed", ["b", 1.5, "1e400", "", None, 2**60])
def test_seeds_that_are_no_whole_numbers_pair_nothing(seed):
    logs = study(2)
    for index, log in enumerate(logs):
        log.config["rng"] = index % 2 if index else seed
    found = audited(logs, seed="config:rng")
    assert not found.study.seeded and "1 of 4 runs have no seed, so none is paired" in found.notes
    said = [note for note in found.notes if note.startswith("seed=config:rng: ")]
    assert len(said) == (seed is not None) and all("of grpo-seed0 is no" in note for note in said)


@pytest.mark.parametrize(("columns", "score"), [
    ({"accuracy": 8, "val_accuracy": 8}, "val_accuracy"),
    ({"reward": 8, "gsm8k_accuracy": 8}, "gsm8k_accuracy"),
    ({"reward": 8, "rewards/accuracy_reward": 8}, "reward"),
    ({"train/reward": 8, "eval/default_pass1": 8}, "eval/default_pass1"),
    ({"eval/aime24/acc": 1, "eval/gsm8k/acc": 8, "reward": 8}, "eval/gsm8k/acc"),
    ({"train/reward": 8, "train/accuracy": 8}, "train/reward"),
    ({"loss": 8}, None),
])  # fmt: skip
def test_the_evaluation_that_most_runs_have_is_compared(columns, score):
    logs = []
    for run in range(8):
        cells = {name: 0.5 for name, runs in columns.items() if run < runs}
        logs.append(run_log(f"grpo-seed{run}", [{"step": 1, **cells}]))
    assert propose(logs, {}).score == score


@pytest.mark.parametrize(("name", "method", "seed"), [
    ("pods-s16-seed3", "pods-s16", "3"), ("grpo_run2_seed0", "grpo_run2", "0"),
    ("pods-s3", "pods", "3"), ("grpo/run_7", "grpo", "7"), ("grpo", "grpo", None),
])  # fmt: skip
def test_a_seed_that_is_called_so_is_the_seed(name, method, seed):
    log = run_log(name, rows_of("grpo", 0))
    assert (labels.from_name(log, "method"), labels.from_name(log, "seed")) == (method, seed)


def test_a_key_with_one_value_is_the_method_if_the_names_tell_of_none():
    logs = study()
    for log in logs:
        log.config["algorithm"] = "grpo"
    assert propose(logs, {}).method == "name"
    logs[0].config["algorithm"] = "rloo"
    assert propose(logs, {}).method == "config:algorithm"
    alone = [run_log(name, rows_of("grpo", 0), config={"algorithm": "grpo"}) for name in "ab"]
    assert propose(alone, {}).method == "config:algorithm"


def test_steps_of_columns_that_may_not_count_the_same_are_named():
    assert audited(study()).warnings == []
    logs = study()
    for log in logs[:6]:
        log.rows[:] = [{"global_step": row.pop("step"), **row} for row in log.rows]
    [warning] = audited(logs).warnings
    assert "the same: global_step in 6 runs, step in 6 runs (step: COLUMN takes one)" in warning

    mixed = study(1)
    for log in mixed:
        log.rows += [{"iteration": row["step"] // 10, "loss": 1.0} for row in log.rows]
    [warning] = audited(mixed).warnings
    assert "of one run" in warning and "step, to 100, and iteration, to 10: grpo-seed0" in warning


def test_each_other_score_is_shown_once():
    logs = [run_log("a-seed0", [{"step": 1, "val_accuracy": 0.5, "test_acc": 0.4, "reward": 1.0}])]
    lines = mapping_lines(logs, check(logs, propose(logs, {})), {})
    assert "other scores: val_accuracy, reward" in lines
