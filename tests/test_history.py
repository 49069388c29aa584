"""What a run's checkpoints and log say: where it goes on, whether it has ended, what is missing."""

from functools import partial

import pytest
from compose import composed

from pods.runs import checkpoint
from pods.runs.files import append
from pods.runs.freeze import freeze
from pods.runs.history import ended_at, missing_evaluations, newest_checkpoint
from pods.runs.records import Damaged


@pytest.fixture
def run(tmp_path):
    """A run with a line in its log for each of two steps, and checkpoints at 0, 1 and 2.

    The clock is at half a second after each step, and step 1 is no evaluation point.
    """
    store = freeze(composed(f"runs_dir={tmp_path}"))
    for step in range(3):
        if step > 0:
            append(store.metrics_path, [{"step": step, "train_seconds": step / 2}])
        commit(store, step, evaluation=step != 1)
    return store


def commit(store, step, evaluation):
    write = partial(store.write_clock, step=step, train_seconds=step / 2, evaluation=evaluation)
    checkpoint.commit(store.checkpoint(step), write)


def test_a_run_whose_log_was_altered_neither_goes_on_nor_starts_again(run):
    """Its first checkpoint is of an empty log, and to go on from there would lose all steps."""
    log = run.metrics_path.read_bytes()
    assert newest_checkpoint(run, "clock.json") == (run.checkpoint(2), {})
    run.metrics_path.write_bytes(log.replace(b"2", b"3"))  # of the second step alone
    newest, faults = newest_checkpoint(run, "clock.json")
    assert newest == run.checkpoint(1) and [*faults] == [run.checkpoint(2)]
    for content in (log.replace(b"1", b"3"), log[1:], b""):
        run.metrics_path.write_bytes(content)
        with pytest.raises(Damaged, match=r"metrics\.jsonl is damaged: it is not what was written"):
            newest_checkpoint(run, "clock.json")


def test_a_run_has_ended_if_its_last_checkpoint_is_at_the_end_of_its_budget(run):
    def end(*words):
        return ended_at(run, composed(*words))

    seconds, steps = "budget.train_seconds", "budget.max_steps"
    assert end(f"{seconds}=1", f"{steps}=null") == end(f"{seconds}=0.9") == 2
    assert end(f"{seconds}=null", f"{steps}=2") == end(f"{seconds}=9", f"{steps}=2") == 2
    assert end(f"{seconds}=1.1") is None and end(f"{seconds}=null", f"{steps}=3") is None
    log = run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(log.replace(b"1", b"3"))
    assert end(f"{seconds}=1") is None
    run.metrics_path.write_bytes(log)
    commit(run, 2, evaluation=False)  # it was stopped there, and has to evaluate
    assert end(f"{seconds}=1") is None


def test_evaluations_are_missing_at_evaluation_points_alone(run):
    """The log says which these are if a clock cannot be read: the first and the last step here."""
    assert missing_evaluations(run) == [0, 2]
    append(run.evaluation_path(0), [{}])
    assert missing_evaluations(run) == [2]
    for step in (1, 2):
        clock = run.checkpoint(step) / "clock.json"
        clock.write_text(clock.read_text().replace("true", "null"))
    assert missing_evaluations(run) == [2]
