"""`pods audit`: runs of other trainers read from what their libraries write, and a verdict."""

import json
import re

import numpy as np
import pytest
from foreign_logs import AT_ONCE, RUN_BY_RUN, STEPS, records, write, write_lines
from scipy import stats

from pods.analysis.compare.compare import compare
from pods.cli.main import main
from pods_lab.audit.extras import decisions
from pods_lab.audit.foreign import axes, study_of
from pods_lab.audit.mapping import NAMES, propose
from pods_lab.audit.readers import read


@pytest.fixture
def audit(tmp_path, monkeypatch, capsys):
    """Run the verb in an empty folder: exit code, what it printed, what it printed as errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(["audit", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def outcomes(seconds):
    """Mean and final score of each run over steps, or over seconds (S, 2), by method."""
    found = {"grpo": [], "pods": []}
    for method, _, rows in records():
        x = np.cumsum([row["step_time"] * 10 for row in rows]) if seconds else np.array(STEPS)
        y, end = [row["eval_reward"] for row in rows], 150.0 if seconds else 100.0
        grid = np.unique([*x[x < end], end])
        values = np.interp(grid, x, y)
        found[method].append((np.trapezoid(values, grid) / end, values[-1]))
    return found


def read_study(*paths, **given):
    logs, left_out, _ = read(paths, NAMES["step"])
    mapping, _ = propose(logs, given)
    return study_of(logs, mapping, left_out)


@pytest.mark.parametrize("name", [*RUN_BY_RUN, *AT_ONCE])
def test_the_same_runs_give_the_same_numbers_in_every_format(tmp_path, name):
    if name == "trackio":
        pytest.importorskip("trackio")
    write(name, tmp_path)
    study = read_study(tmp_path)
    others = {"trl": "24 .json", "trackio": "1 .lock", "wandb": "2 .log"}
    lines = (
        [f"{others[name].split()[0]} files are no logs: {others[name]}"] if name in others else []
    )
    assert (study.missing, study.note, study.inconsistencies) == (lines, "", [])
    over = {one.x: compare(one, draws=100) for one in axes(study)}
    # a chart has no other column
    assert [*over] == ["steps"] if name == "chart" else ["train_seconds", "steps", "tokens"]
    for x, found in over.items():
        expected = outcomes(seconds=x == "train_seconds")
        for index, row in enumerate(found.contrasts.itertuples()):
            assert (row.series, row.baseline, row.runs) == ("pods", "grpo", 6)
            pods, grpo = (np.array(expected[method])[:, index] for method in ("pods", "grpo"))
            assert row.estimate == pytest.approx((pods - grpo).mean(), rel=1e-6)
            assert row.p == pytest.approx(stats.ttest_rel(pods, grpo).pvalue, rel=1e-6)
        said = "Settled (paired t test, 6 pairs; the exact test agrees). "
        assert [line.startswith(said) for line in decisions(found)] == [True, True]


def lines_of():
    return next(records())[2]


def edited(folder, edit):
    """JSON lines of all runs, of which the lines of grpo seed 0 are changed."""
    for method, seed, rows in records():
        write_lines(folder / f"{method}-seed{seed}.jsonl", rows)
    path = folder / "grpo-seed0.jsonl"
    path.write_text("".join(edit(path.read_text().splitlines(keepends=True))))
    return path


def one_nan(lines):
    return [*lines[:5], re.sub(r'("eval_reward": )[^,]+', r"\1NaN", lines[5]), *lines[6:]]


def with_seconds(lines, at):
    """The time of day of each line, which once is that of an earlier one."""
    times = [2e9 + step for step in STEPS]
    times[at] = times[at] if at == 0 else 2e9
    rows = zip(map(json.loads, lines), times, strict=True)
    return [json.dumps({**row, "wall_time": at}) + "\n" for row, at in rows]


EDITS = {
    "1 lines are cut off or no JSON objects, and left out": lambda lines: [*lines, lines[0][:20]],
    "1 scores are not finite (step 50)": one_nan,
    "1 scores have no step (step nan)": lambda lines: [*lines, '{"eval_reward": 0.5}\n'],
    "is cut off at step 50, before other runs of its method end": lambda lines: lines[:6],
    "has no score at a step": lambda lines: [line.replace("eval_", "old_") for line in lines],
    "1 times tokens run backwards, so they are not used (step 50)": lambda lines: [
        *lines[:5], lines[5].replace('"num_tokens": 3200.0', '"num_tokens": 1'), *lines[6:]],
}  # fmt: skip


@pytest.mark.parametrize("line", EDITS)
def test_what_is_wrong_with_a_run_is_one_line(tmp_path, line):
    edited(tmp_path, EDITS[line])
    study = read_study(tmp_path)
    assert study.missing == [f"grpo-seed0: {line}"]
    whole = not line.startswith(("is cut", "has no"))
    assert ("grpo-seed0" in study.complete) == whole
    lost = [of.missing[1:] for of in axes(study)]
    said = [["grpo-seed0: has no tokens to compare over"]] if "tokens" in line else [[]]
    assert lost == [[], [], *said] or not whole


def test_a_resumed_run_has_its_later_records_and_a_rotated_log_is_whole(tmp_path):
    before = [json.dumps({**row, "eval_reward": 0.0}) + "\n" for row in lines_of()[3:6]]
    path = edited(tmp_path, lambda lines: [*lines[:3], *before, *lines[3:]])
    study = read_study(tmp_path)
    note = "grpo-seed0: 1 times resumed: of steps twice the later record counts (step 30)"
    assert (study.missing, study.note) == ([], note)
    lines = path.read_text().splitlines(keepends=True)
    path.with_suffix(".jsonl.1").write_text("".join(lines[:4]))
    path.write_text("".join(lines[4:]))
    rotated = read_study(tmp_path)
    for one in (study, rotated):
        scores = one.evaluations[one.evaluations.run == "grpo-seed0"].accuracy.tolist()
        assert scores == [row["eval_reward"] for row in lines_of()]


def test_a_time_of_day_that_runs_backwards_is_no_clock(tmp_path):
    edited(tmp_path, lambda lines: with_seconds(lines, 4))
    study = read_study(tmp_path, seconds="wall_time")
    line = "grpo-seed0: 1 times seconds run backwards, so they are not used (step 40)"
    assert study.missing == [line] and [one.x for one in axes(study)] == ["steps", "tokens"]


def test_the_same_run_twice_a_second_run_of_a_seed_and_runs_without_seed(tmp_path):
    path = edited(tmp_path, list)
    (tmp_path / "grpo-seed9.jsonl").write_text(path.read_text())
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "grpo-seed1.jsonl").write_text(path.read_text().replace("0.2", "0.3"))
    found = read_study(tmp_path, method="path:(grpo|pods)")
    assert found.missing == [
        "grpo-seed9: is the same run as grpo-seed0: the scores of all steps are equal",
        "grpo-seed1: has method and seed of another run, which is as long",
    ] and len(found.complete) == 12  # fmt: skip
    path.rename(tmp_path / "grpo-x.jsonl")
    unpaired = read_study(tmp_path, method="path:(grpo|pods)")
    assert not unpaired.seeded and "1 of 14 runs have no seed" in unpaired.note
    assert {*compare(unpaired, draws=9).contrasts.design} == {"unpaired"}


def test_runs_on_two_test_sets_or_machines_are_named(tmp_path):
    for method, seed, rows in records():
        named = [{**row, "set": "aime" if seed else "math"} for row in rows]
        write_lines(tmp_path / f"{method}-seed{seed}.jsonl", named)
    found = read_study(tmp_path, test_set="column:set")
    assert found.inconsistencies == ["different test sets: aime (10 runs), math (2 runs)"]


def test_the_verb_writes_a_page_and_its_mapping_and_says_one_line_to_bad_input(audit, tmp_path):
    write("verl", tmp_path / "logs")
    code, out, _ = audit("logs", "--init")
    lines = (tmp_path / "pods-audit.yaml").read_text().splitlines()
    assert (code, len(lines)) == (0, 10) and lines[0].startswith('score: "eval_reward"  # column')
    (tmp_path / "pods-audit.yaml").write_text(
        "\n".join([*lines[:7], "questions: 30", "repeats: 32"])
    )
    code, out, err = audit("logs", "--target", "0.4")
    assert (
        (code, err) == (0, "")
        and "mapping: pods-audit.yaml" in out
        and "questions: 30 (given)" in out
    )
    assert "binomial standard error of 1.6 points" in out and "up to 9.1" in out
    assert "grpo: the best of 11 checkpoints is on average" in out and "40 %" in out
    made = {
        str(path.relative_to(tmp_path / "pods-audit")) for path in tmp_path.rglob("pods-audit/**/*")
    }
    tables = {"compare.csv", "compare.arms.csv", "compare.speedup.csv", "runs.csv", "curves.csv"}
    assert made > tables | {f"over_steps/{name}" for name in tables} | {
        *("report.html", "audit.json", "left_out.csv", "accuracy_vs_time.png"),
        "best_checkpoints.csv",
    }
    page = (tmp_path / "pods-audit" / "report.html").read_text()
    assert "Over seconds: Settled (paired t test, 6 pairs" in page and page.count("<figure>") == 3
    code, out, _ = audit("logs", "--json")
    assert [*json.loads(out)["over"]] == ["seconds", "steps", "tokens"]
    code, out, _ = audit("logs", "--by", "path:(logs)")
    assert code == 0 and "logs is the only method" in out  # twelve runs, of which six seeds remain
    for words, why in (
        (["nothing"], "nothing: no such file or folder"),
        (["logs", "--init"], "pods-audit.yaml: exists already"),
        (["logs", "--by", "seed"], "method=seed: must be name, config:KEY"),
        (["logs", "--map", "logs"], "map=logs: must be a file of keys and values"),
    ):
        code, out, err = audit(*words)
        assert (code, out) == (2, "") and why in err and err.count("\n") == 1
    for line, why in (("colour: red", "colour: must be one of score"),
                      ("score: nowhere", "score=nowhere: --map must name a column"),
                      ("baseline: ppo", "baseline=ppo: must be one of grpo | pods")):  # fmt: skip
        (tmp_path / "own.yaml").write_text(line)
        code, out, err = audit("logs", "--map", "own.yaml")
        assert (code, out) == (2, "") and why in err and err.count("\n") == 1


def test_damaged_files_are_named_and_what_is_no_log_is_counted(tmp_path):
    write("verl", tmp_path / "logs")
    for name in (
        "a.db",
        "b.wandb",
        "events.out.tfevents.1",
        "e.csv",
        "d/trainer_state.json",
        "f.bin",
    ):
        (tmp_path / "other" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "other" / name).write_bytes(b"x" * 40)
    found = [line.removeprefix(f"{tmp_path}/") for line in read_study(tmp_path).missing]
    print(found)
    assert len(found) == 6, found
