"""When the engine's log-probs stop being the trainer's: the alarm, and the end of the run."""

import dataclasses
import math

import pytest
from compose import composed

from pods.method.prompts import Uniform
from pods.policy.update import UpdateStats
from pods.proof import NotThePolicy, Proof, make_proof
from pods.runs.files import append
from pods.runs.history import gaps
from pods.runs.store import RunStore
from pods.step import Step

FIELDS = [field.name for field in dataclasses.fields(UpdateStats)]


def proof(min_kept=0.9):
    return Proof(bound=0.01, limit=3, min_kept=min_kept)


def step(number, gap, kept=None):
    stats = UpdateStats(**{**dict.fromkeys(FIELDS, 0.0), "logprob_gap_mean": gap})
    nothing = None if gap is None else stats
    return Step(number, 0.0, {}, [], Uniform(), 0, 1, 0, 0, 1, nothing, kept)


def test_one_bad_step_is_an_alarm_and_three_in_a_row_are_the_end():
    watch = proof()
    for number, gap in enumerate([0.0, 0.02, 0.02, 0.01, 0.02, 0.02], start=1):
        assert (watch.judge(step(number, gap)) is not None) == (gap > 0.01)
    with pytest.raises(NotThePolicy, match="step 7, like 2 before it: the engine's log-probs are"):
        watch.judge(step(7, 0.5))


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_step_that_was_not_measured_neither_alarms_nor_clears_the_alarm(gap):
    watch = proof()
    for number in range(1, 3):
        assert watch.judge(step(number, 0.5)) is not None
    assert watch.judge(step(3, gap)) is None
    with pytest.raises(NotThePolicy):
        watch.judge(step(4, 0.5))


@pytest.mark.parametrize("kept", [0.0, 0.89, 1.11, 8.65])
def test_a_merge_that_loses_or_enlarges_the_change_is_the_end(kept):
    with pytest.raises(NotThePolicy, match=r"of the policy's change"):
        proof().judge(step(1, 0.0, kept))
    proof().judge(step(1, 0.0, 0.9))
    proof().judge(step(1, 0.0, 1.1))
    proof(min_kept=0.0).judge(step(1, 0.0, kept))


def test_a_resumed_run_remembers_its_alarms(tmp_path):
    store = RunStore(tmp_path)
    append(store.metrics_path, [{"logprob_gap_mean": g} for g in (0.5, 0.0, 0.5, None, 0.011)])
    watch = proof()
    watch.recall(gaps(store))
    assert watch.row == 2


def test_the_bound_is_that_of_the_coarser_dtype_and_of_engines_with_weights_of_their_own():
    def bound(*words):
        return make_proof(composed("dry_run=true", *words)).bound

    assert bound("engine=vllm") == 1e-4
    assert bound("engine=vllm", "engine.dtype=bfloat16") == 0.05
    assert bound("engine=vllm", "model.tuning=lora", "model.dtype=bfloat16") == 0.05
    assert bound("engine=vllm", "engine.gap_bound=0.3") == 0.3
    assert bound("engine=transformers") == math.inf
