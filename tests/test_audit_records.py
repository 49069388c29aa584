"""`pods audit`: of several records of a step one is chosen aloud, and never silently the last."""

import itertools

import numpy as np
import pytest
from foreign_runs import LIFT, audited, ends, rows_of, run_log, study

DAY = 1_760_000_000


def noted(found, text):
    """The notes that have a text."""
    return [note for note in found.notes if text in note]


def scores_of(found, run):
    rows = found.study.evaluations
    return rows[rows.run == run].accuracy.to_numpy()


def doubled(column, values, blocks=False, shift=-0.25):
    """A study in which each step has a record per value of a column, of other scores."""
    logs = study(2)
    for log in logs:
        parts = [[row | {column: value, "accuracy": row["accuracy"] + shift * number}
                  for row in log.rows] for number, value in enumerate(values)]  # fmt: skip
        log.rows[:] = itertools.chain(*(parts if blocks else zip(*parts, strict=True)))
    return logs


def first(found):
    return scores_of(found, "grpo-seed0")


PLAIN = np.array([row["accuracy"] for row in rows_of("grpo", 0)])


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("column", ["rank", "local_rank", "process_index"])
def test_of_several_ranks_the_first_counts_and_that_is_said(column, blocks):
    found = audited(doubled(column, [10, 9, 0], blocks))
    assert first(found) == pytest.approx(PLAIN - 0.5)
    [note] = noted(found, "several records of a step")
    assert note == (
        f"several records of a step, of which those with {column}=0 count (several: "
        f"{column}=VALUE or mean chooses others): grpo-seed0 (10 steps), grpo-seed1 (10 steps), "
        "pods-seed0 (10 steps), pods-seed1 (10 steps)"
    )
    assert not noted(found, "resumed") and not noted(found, "anew")
    assert first(audited(doubled(column, [10, 9, 0], blocks), several=f"{column}=9")) == (
        pytest.approx(PLAIN - 0.25)
    )
    average = audited(doubled(column, [10, 9, 0], blocks), several="mean")
    assert first(average) == pytest.approx(PLAIN - 0.25) and not average.notes


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("column", ["dataset", "split", "eval_name", "repeat"])
def test_of_several_test_sets_or_repeats_none_is_chosen(column, blocks):
    values = ["gsm8k", "math"] if column != "repeat" else [0, 1]
    logs = doubled(column, values, blocks)
    with pytest.raises(ValueError, match="no run can be used") as caught:
        audited(logs)
    line = str(caught.value).splitlines()[1]
    assert line.startswith("grpo-seed0: 10 steps have several scores (")
    assert f"which differ in {column} ({values[0]}, {values[1]})" in line
    assert line.endswith(f"several: {column}={values[0]} or mean in the mapping chooses")
    assert first(audited(logs, several=f"{column}={values[0]}")) == pytest.approx(PLAIN)
    assert first(audited(logs, several="mean")) == pytest.approx(PLAIN - 0.125)


def test_records_that_nothing_tells_apart_are_refused_and_equal_ones_are_not():
    logs = study(2)
    logs[0].rows[3:3] = [logs[0].rows[3] | {"accuracy": 0.9}]
    logs[1].rows[3:3] = [dict(logs[1].rows[3])]
    logs[2].rows[3:3] = [logs[2].rows[3] | {"loss": 3.0}]
    found = audited(logs)
    said = "1 steps have several scores (0.9 and 0.4192 at step 40), which no text or rank tells"
    assert [line for line in found.study.missing if said in line] == found.study.missing != []
    assert len(found.study.complete) == 3


def test_two_processes_that_write_at_a_time_are_no_resumed_run():
    """Two event files of one folder, one after the other: their times of day overlap."""

    def rows(shift):
        return [row | {"wall_time": DAY + row["step"], "accuracy": row["accuracy"] + shift}
                for row in rows_of("grpo", 0)]  # fmt: skip

    logs = [run_log("a-seed0", [*rows(0), *rows(-0.25)])]
    with pytest.raises(ValueError, match="10 steps have several scores"):
        audited(logs)
    later = [row | {"wall_time": row["wall_time"] + 1e5} for row in rows(-0.25)]
    found = audited([run_log("a-seed0", [*rows(0), *later])])
    assert noted(found, "begun anew") and scores_of(found, "a-seed0") == pytest.approx(PLAIN - 0.25)


def test_a_resumed_run_abandons_what_it_had_of_later_steps():
    """Killed after step 80, resumed at 50, and killed again after 60."""
    logs = study(3)
    rows = logs[0].rows
    logs[0].rows[:] = [*rows[:8], rows[4] | {"accuracy": 0.1}, rows[5] | {"accuracy": 0.2}]
    found = audited(logs)
    assert ends(found, "last_step")["grpo-seed0"] == 60
    assert "resumed runs, whose later records count: grpo-seed0 (from step 80 back to 50)" in (
        found.notes
    )
    run = found.table.set_index("run").loc["grpo-seed0"]
    assert run.left_out == "is cut off before other runs of its method end (60 of 100 steps)"


def test_a_line_that_a_resumed_run_wrote_twice_is_no_second_resume():
    logs = study(2)
    rows = logs[0].rows
    logs[0].rows[:] = [*rows[:8], *rows[4:6], rows[5], *rows[6:]]
    found = audited(logs)
    assert found.notes == [
        "resumed runs, whose later records count: grpo-seed0 (from step 80 back to 50)"
    ]
    assert first(found) == pytest.approx(PLAIN)


def test_of_the_lines_of_a_step_the_earliest_time_and_the_most_tokens_count():
    """A line of training, and one of the evaluation after it."""
    rows = []
    for row in rows_of("grpo", 0):
        step = row["step"]
        rows.append({"step": step, "loss": 1.0, "seconds": 3.0 * step, "tokens": 7 * step})
        rows.append(row | {"seconds": 3.0 * step + 2, "tokens": 7 * step + 1})
    found = audited([run_log("a-seed0", rows)])
    assert found.study.evaluations.train_seconds.tolist() == [*range(30, 301, 30)]
    assert found.study.evaluations.tokens.tolist() == [*range(71, 702, 70)]


@pytest.mark.parametrize(("again", "kept"), [(4, 100), (9, 100), (10, 100)])
def test_of_two_runs_in_one_log_the_longer_counts(again, kept):
    logs = study(2)
    rows = logs[0].rows
    logs[0].rows[:] = [*rows, *(row | {"accuracy": 0.1} for row in rows[:again])]
    found = audited(logs)
    assert ends(found, "last_step")["grpo-seed0"] == kept
    assert (first(found) == 0.1).all() == (again == 10)  # of two as long the later
    assert noted(found, "begun anew")[0].endswith(f"grpo-seed0 (to step 100, then to {10 * again})")


def test_records_out_of_order_are_sorted_and_no_run_was_resumed():
    logs = study(2)
    for log in logs:
        train = [{"step": row["step"] + 3, "loss": 1.0} for row in log.rows]
        late = [*itertools.chain(*zip(train, log.rows, strict=True))]  # evaluated while training
        log.rows[:] = late if log.name < "p" else late[::-1]
    found = audited(logs)
    assert first(found) == pytest.approx(PLAIN) and found.notes == []
    assert np.diff(found.study.evaluations.step.to_numpy()[:10]).tolist() == [10] * 9


def test_a_row_has_the_first_step_column_that_it_has():
    """As verl writes: its validation before training has no `training/global_step`."""
    names = ("training/global_step", "step")
    rows = [{"step": 0, "accuracy": 0.2}]
    rows += [row | {names[0]: float(row["step"])} for row in rows_of("grpo", 0)]
    found = audited([run_log("a-seed0", rows)])
    assert found.study.evaluations.step.tolist() == [*range(0, 101, 10)]
    assert found.study.missing == []
    apart = [{"global_step": 1, "loss": 0.1}, {"step": 7, "accuracy": 0.2}]
    assert audited([run_log("a-seed0", apart)]).study.evaluations.step.tolist() == [7]


def test_a_column_that_counts_calls_is_no_step():
    """W&B counts calls of `log` in `_step`; an evaluation without the trainer's step has none."""
    rows = [{"train/global_step": 10 * i, "_step": i, "accuracy": 0.1 * i} for i in range(1, 5)]
    found = audited([run_log("a-seed0", [*rows, {"_step": 5, "accuracy": 0.9}])])
    assert found.study.evaluations.step.tolist() == [10, 20, 30, 40]
    assert found.study.missing == ["a-seed0: 1 scores have no step"]


def test_cells_that_are_no_numbers_are_said_with_an_example():
    logs = study(2)
    logs[0].rows[2]["accuracy"] = "n/a"
    logs[0].rows[5]["accuracy"] = "-"
    logs[1].rows[4]["accuracy"] = float("nan")
    logs[2].rows[4]["step"] = "warm-up"
    logs[3].rows[4]["accuracy"] = "Infinity"
    assert audited(logs).study.missing == [
        "grpo-seed0: 2 values of score cannot be read, such as 'n/a', at step 30",
        "grpo-seed1: 1 scores are not finite (step 50)",
        "pods-seed0: 1 values of step cannot be read, such as 'warm-up'",
        "pods-seed0: 1 scores have no step",
        "pods-seed1: 1 scores are not finite (step 50)",
    ]


def test_steps_with_several_amounts_of_time_have_no_clock():
    logs = doubled("host", ["a", "b"], shift=0.0)
    for log in logs:
        for number, row in enumerate(log.rows):
            row["step_time"] = 1.0 + number % 2
    found = audited(logs, seconds="sum:step_time")
    assert "grpo-seed0: steps have several seconds that differ, so they are not used" in (
        found.study.missing
    )
    assert np.isnan([*ends(found).values()]).all() and len(found.study.complete) == 4


def test_each_run_is_told_in_a_table():
    logs = study(2, seconds=lambda method, seed, step: 2.0 * step)
    logs.append(run_log("grpo-seed1b", rows_of("grpo", 1, range(10, 51, 10)), path="x/b.csv"))
    table = audited(logs, method="name:(grpo|pods)", seed="name:seed([0-9])").table
    assert [*table] == ["run", "file", "method", "seed", "score", "unit", "axes", "first_step",
                        "last_step", "seconds", "left_out"]  # fmt: skip
    rows = table.to_dict("records")
    assert rows[0] == {
        "run": "grpo-seed0", "file": "grpo-seed0.jsonl", "method": "grpo", "seed": 0,
        "score": "accuracy", "unit": "share", "axes": "seconds, steps", "first_step": 10.0,
        "last_step": 100.0, "seconds": 200.0, "left_out": "",
    }  # fmt: skip
    assert rows[-1]["file"] == "x/b.csv" and rows[-1]["axes"] == "steps"
    assert rows[-1]["left_out"].startswith("is cut off before") and {*LIFT} == {*table.method}
