"""`pods audit`: the time of other trainers' runs is training time, or is not used, by name."""

import numpy as np
import pytest
from foreign_runs import audited, ends, rows_of, run_log, study

from pods_lab.audit.axes import axes
from pods_lab.audit.clocks import unit_in_name

START = 1_760_000_000  # a time of day


def clock(seconds_a_step=30.0, pause=0.0, after=50, of="grpo", start=START):
    """A time of day at which every run of one method stands still once."""

    def at(method, seed, step):
        late = pause if method == of and step > after else 0.0
        return start + seconds_a_step * step + late

    return at


def noted(found, text):
    """The notes that have a text."""
    return [note for note in found.notes if text in note]


def seconds_of(found, run):
    rows = found.study.evaluations
    return rows[rows.run == run].train_seconds.to_numpy()


@pytest.mark.parametrize("start", [START, 0], ids=["time of day", "elapsed"])
@pytest.mark.parametrize("pause", [3 * 3600, 1800])
def test_a_pause_is_no_training_and_is_named(start, pause):
    found = audited(study(seconds=clock(pause=pause, start=start)))
    assert seconds_of(found, "grpo-seed0") == pytest.approx(30.0 * np.arange(10, 101, 10))
    [note] = noted(found, "pauses of more than 5 times")
    shown = {10800: "3 h 00 min", 1800: "30 min 00 s"}[pause]
    assert f"grpo-seed0 ({shown} after step 50)" in note and "and 2 more" in note
    assert "pods" not in note


def test_a_pause_within_a_step_is_no_training():
    step_time = lambda method, seed, step: 30.0 + 1e4 * (seed == 2 and step == 70)  # noqa: E731
    found = audited(study(step_time=step_time), seconds="sum:step_time")
    assert {*ends(found).values()} == {3000.0}
    assert "grpo-seed2 (27 h 46 min after step 60)" in noted(found, "pauses")[0]


def test_a_pause_between_the_only_two_intervals_and_before_the_first_record():
    rows = [{"step": 10 * i, "accuracy": 0.1 * i, "seconds": s} for i, s in
            enumerate((300, 600, 9000), 1)]  # fmt: skip
    late = [{"step": 10 * i, "accuracy": 0.1 * i, "seconds": 9000 + 300 * i} for i in range(1, 4)]
    found = audited([run_log("a-seed0", rows), run_log("b-seed0", late)])
    assert ends(found) == {"a-seed0": 900.0, "b-seed0": 900.0}
    assert "b-seed0 (2 h 30 min until step 10)" in noted(found, "pauses")[0]


def test_the_only_interval_of_a_run_is_judged_by_other_runs():
    logs = study(2, seconds=clock(start=0))
    logs[0].rows[:] = [logs[0].rows[0], logs[0].rows[-1] | {"seconds": 50_000}]
    assert ends(audited(logs))["grpo-seed0"] == pytest.approx(3000.0)
    logs[0].rows[0] |= {"seconds": 100}  # of 10 steps, which is no interval between two records
    assert ends(audited(logs))["grpo-seed0"] == pytest.approx(100 + 90 * 30.0)


def test_long_intervals_that_come_regularly_count_as_training():
    """An evaluation after every third record, which takes long."""
    seconds = lambda method, seed, step: step + 900 * (step // 30)  # noqa: E731
    found = audited(study(2, seconds=seconds))
    assert {*ends(found).values()} == {100 + 900 * 3}
    assert noted(found, "so regular that they count as training") and not noted(found, "pauses")


def test_rollouts_that_serve_many_updates_are_training_and_no_pauses():
    """Every eighth step generates, for 160 s, and each updates for 4 s: three of 24 are long."""
    step_time = lambda method, seed, step: 164.0 if step % 8 == 1 else 4.0  # noqa: E731
    logs = [run_log(f"grpo-seed{seed}", rows_of("grpo", seed, range(1, 25))) for seed in range(2)]
    for log in logs:
        for row in log.rows:
            row["step_time"] = step_time("grpo", 0, row["step"])
    found = audited(logs)
    assert {*ends(found).values()} == {3 * 160 + 24 * 4} and not noted(found, "pauses")
    for log in logs:
        log.rows[8]["step_time"] = 400.0  # unlike the others, so that nothing says what they are
    assert noted(audited(logs), "pauses")


@pytest.mark.parametrize("date", [False, True])
def test_a_column_called_time_is_of_a_step_or_the_time_so_far(date):
    """Of steps it falls now and then; the time so far falls where a run was resumed alone."""
    wobble = np.random.default_rng(0).normal(0, 0.1, 11)
    of_steps = study(2, Time=lambda method, seed, step: 3.0 + wobble[step // 10])
    expected = 30 + 10 * wobble[1:].sum()
    assert ends(audited(of_steps))["pods-seed1"] == pytest.approx(270 + expected)
    so_far = study(2, Time=lambda method, seed, step: START * date + 3.0 * step)
    assert {*ends(audited(so_far)).values()} == {300.0}


def test_a_score_long_after_the_last_time_has_none():
    logs = study(2, seconds=clock(start=0))
    for row in logs[0].rows[6:]:
        del row["seconds"]  # after step 60
    times = audited(logs).study.evaluations.set_index(["run", "step"]).train_seconds
    of_run = times["grpo-seed0"]
    assert of_run[60] == of_run[70] == 1800.0  # an evaluation at the end
    assert np.isnan(of_run[80]) and times["grpo-seed1", 80] == 2400.0


def test_a_time_of_day_begins_with_the_run_and_not_with_its_first_record():
    logs = study(2, wall_time=lambda method, seed, step: START + (13 if method == "pods" else 10)
                 * step / 10)  # fmt: skip
    found = audited(logs)
    assert seconds_of(found, "grpo-seed0") == pytest.approx(np.arange(10, 101, 10))
    assert seconds_of(found, "pods-seed1") == pytest.approx(1.3 * np.arange(10, 101, 10))
    [note] = noted(found, "time before the first record")
    assert "grpo-seed0 (10 s)" in note and "pods-seed1 (13 s)" in note
    for log in logs:
        log.rows.insert(0, {"step": 0, "accuracy": 0.3, "wall_time": START - 60})
    found = audited(logs)
    assert seconds_of(found, "grpo-seed0")[0] == 0 and not noted(found, "before the first record")


def test_a_clock_that_runs_backwards_is_not_used_and_a_clock_that_restarts_goes_on():
    logs = study(seconds=clock(start=0))
    logs[0].rows[4]["seconds"] = 7.0  # runs backwards, though the steps do not
    again = [row | {"seconds": row["seconds"] - 1400} for row in logs[1].rows[4:]]
    logs[1].rows[:] = [*logs[1].rows[:6], *again]  # killed after step 60, resumed at 50
    found = audited(logs)
    assert noted(found, "seconds that run backwards") == [
        "seconds that run backwards, so they are not used: grpo-seed0 (step 50)"
    ]
    assert np.isnan(ends(found)["grpo-seed0"])
    assert seconds_of(found, "grpo-seed1") == pytest.approx(30.0 * np.arange(10, 101, 10))
    assert noted(found, "resumed runs") == [
        "resumed runs, whose later records count: grpo-seed1 (from step 60 back to 50)"
    ]
    assert [one.x for one in axes(found.study)] == ["steps", "train_seconds"]
    over = [one for one in axes(found.study) if one.x == "train_seconds"]
    assert over[0].missing == ["grpo-seed0: has no seconds to compare over"]


def test_a_resumed_run_keeps_an_interval_that_may_be_of_training():
    """Its clock goes on, and 50 steps after the start it is half as long again as usual."""
    logs = study(2, seconds=clock(start=0))
    rows = logs[0].rows
    again = [row | {"seconds": row["seconds"] + 150} for row in rows[4:]]
    logs[0].rows[:] = [*rows[:6], *again]
    expected = [*range(300, 1201, 300), *range(1650, 3151, 300)]
    assert seconds_of(audited(logs), "grpo-seed0") == pytest.approx(expected)


def test_steps_that_a_resumed_run_did_twice_count_once_by_a_time_of_day():
    logs = study(2, timestamp=clock())
    rows = logs[0].rows
    again = [row | {"timestamp": row["timestamp"] + 4000} for row in rows[4:]]
    logs[0].rows[:] = [*rows[:9], *again]
    assert seconds_of(audited(logs), "grpo-seed0") == pytest.approx(30.0 * np.arange(10, 101, 10))


@pytest.mark.parametrize(("first", "expected"), [(10, 20.0), (0, 0.0)])
def test_the_amount_of_a_step_counts_for_all_steps_since_the_record_before(first, expected):
    """Logs that begin late: every tenth step, 2 s each."""
    rows = [{"step": step, "accuracy": 0.5, "step_time": 2.0 if step else 0.0, "tok": 3.0}
            for step in range(first, 41, 10)]  # fmt: skip
    found = audited([run_log("a-seed0", rows)], seconds="sum:step_time", tokens="sum:tok")
    assert seconds_of(found, "a-seed0").tolist() == [*np.arange(expected, 81, 20)]
    assert found.study.evaluations.tokens.iloc[-1] == (120.0 if first else 123.0)


@pytest.mark.parametrize(("name", "unit", "cells"), [
    ("wall clock [h]", 3600.0, lambda step: step / 120),
    ("elapsed_min", 60.0, lambda step: step / 2),
    ("time (ms)", 1e-3, lambda step: 30_000 * step),
    ("timestamp", 1.0, lambda step: 1e3 * START + 30_000 * step),
    ("elapsed", 1.0, lambda step: f"0:{step // 2:02d}:00"),
])  # fmt: skip
def test_the_unit_of_a_clock_is_in_its_name_size_or_text(name, unit, cells):
    found = audited(study(2, **{name: lambda method, seed, step: cells(step)}), seconds=name)
    assert unit_in_name(name) == unit
    assert {round(value, 6) for value in ends(found).values()} == {3000.0}
    assert noted(found, "is read in units") == ([f"{name} is read in units of {unit:g} s"]
                                                if unit != 1 else [])  # fmt: skip


def test_the_amounts_of_steps_have_the_unit_in_the_name_of_their_column():
    """A step takes 30 s, written as half a minute; the last of the tenth steps is step 100."""
    found = audited(study(2, minutes=lambda method, seed, step: 0.5), seconds="sum:minutes")
    assert {*ends(found).values()} == {3000.0}
    assert noted(found, "is read in units") == ["sum:minutes is read in units of 60 s"]


def test_a_time_that_cannot_be_read_is_said_and_no_other_axis_takes_its_place():
    logs = study(2, seconds=lambda method, seed, step: "soon")
    line = "seconds=seconds: no value is a time, such as 30.5 or 00:05:00: 'soon' is none"
    with pytest.raises(ValueError, match=line):
        audited(logs, seconds="seconds")
    assert line in audited(logs).notes[0]
    for row in logs[0].rows[:3]:
        row["seconds"] = row["step"]
    found = audited(logs)
    assert "grpo-seed0: 7 values of seconds cannot be read, such as 'soon', at step 40" in (
        found.study.missing
    )
    with pytest.raises(ValueError, match="seconds=hours: no log has this column; there are acc"):
        audited(logs, seconds="hours")


def test_a_score_without_a_time_lies_between_its_neighbours():
    rows = [*rows_of("grpo", 0), {"step": 35, "accuracy": 0.5}]
    for row in rows[:-1]:
        row["seconds"] = 2.0 * row["step"]
    assert seconds_of(audited([run_log("a-seed0", rows)]), "a-seed0")[3] == 70.0
