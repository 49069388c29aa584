"""When the engine's log-probs stop being the trainer's: the alarm, and the end of the run."""

import dataclasses

import pytest
from compose import composed

from pods.policy.update import UpdateStats
from pods.proof import NotThePolicy, Proof
from pods.runs.files import append
from pods.runs.history import alarmed_steps
from pods.runs.store import RunStore
from pods.train import Step

SETTINGS = dataclasses.replace(composed().engine, gap_bound=0.01, gap_limit=3, min_kept=0.9)
FIELDS = [field.name for field in dataclasses.fields(UpdateStats)]


def step(number, gap, kept=None):
    stats = UpdateStats(**{**dict.fromkeys(FIELDS, 0.0), "logprob_gap_mean": gap})
    return Step(number, 0.0, {}, [], None if gap is None else stats, kept)


def test_one_bad_step_is_an_alarm_and_three_in_a_row_are_the_end():
    proof = Proof(SETTINGS)
    for number, gap in enumerate([0.0, 0.02, 0.02, 0.01, 0.02, 0.02], start=1):
        assert (proof.alarm(step(number, gap)) is not None) == (gap > 0.01)
        proof.judge(step(number, gap))
    assert "step 7: the engine's log-probs are 0.5 from" in proof.alarm(step(7, 0.5))
    with pytest.raises(NotThePolicy, match="in 3 steps in a row"):
        proof.judge(step(7, 0.5))


def test_a_step_that_trained_on_nothing_says_nothing():
    proof = Proof(SETTINGS)
    assert proof.alarm(step(1, None)) is None
    proof.judge(step(1, None))


def test_a_gap_that_is_not_a_number_is_an_alarm():
    assert Proof(SETTINGS).alarm(step(1, float("nan"))) is not None


@pytest.mark.parametrize("kept", [0.0, 0.89])
def test_a_lossy_merge_is_the_end(kept):
    with pytest.raises(NotThePolicy, match=r"survives the merge in engine\.dtype=float32"):
        Proof(SETTINGS).judge(step(1, 0.0, kept))
    Proof(SETTINGS).judge(step(1, 0.0, 0.9))
    Proof(dataclasses.replace(SETTINGS, min_kept=0.0)).judge(step(1, 0.0, kept))


def test_a_resumed_run_remembers_its_alarms(tmp_path):
    store = RunStore(tmp_path)
    append(store.metrics_path, [{"step": s, "logprob_gap_mean": g}
                                for s, g in enumerate([0.0, 0.5, None, 0.01, 0.011])])  # fmt: skip
    assert alarmed_steps(store, 0.01) == {1, 4}
