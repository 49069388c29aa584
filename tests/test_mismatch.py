"""When the engine's log-probs stop being the trainer's: the alarm, and the end of the run."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from compose import composed
from running import SHORT, run_folder

from pods.runs.files import read_lines
from pods.training import mismatch
from pods.training.mismatch import EngineMismatch, MismatchMonitor, engine_gap, make_monitor
from pods.types import Rollout


def monitor(**settings):
    return MismatchMonitor(0.01, **settings)


def step(number, gap, kept=None):
    return {"step": number, "logprob_gap_mean": gap, "kept_projection": kept}


def test_one_bad_step_is_an_alarm_and_three_in_a_row_are_the_end():
    watch = monitor()
    # a step that was not measured neither alarms nor clears the alarm
    for number, gap in enumerate([0.0, 0.02, 0.02, 0.01, 0.02, 0.02, None], start=1):
        assert (watch.check(step(number, gap)) is not None) == (gap == 0.02)
    with pytest.raises(EngineMismatch, match="step 8, like the 2 steps before it: the log-probs"):
        watch.check(step(8, 0.5))
    watch.fails = False
    assert "past 0.01" in watch.check(step(9, 0.5))


@pytest.mark.parametrize("kept", [0.0, 0.89, 1.11, 8.65])
def test_a_merge_that_loses_or_enlarges_the_change_is_the_end(kept):
    with pytest.raises(EngineMismatch, match=r"of its update"):
        monitor().check(step(1, 0.0, kept))
    monitor().check(step(1, 0.0, 0.9))
    monitor().check(step(1, 0.0, 1.1))
    monitor(fails=False).check(step(1, 0.0, kept))


def test_a_resumed_run_remembers_its_alarms():
    watch = monitor()
    for gap in (0.5, 0.0, 0.5, None, 0.011, None):  # as logged
        watch.observe(step(1, gap))
    watch.observe({"step": 1, "nonfinite": "a reward"})
    assert watch.consecutive == 2


def test_the_bound_is_that_of_the_coarser_dtype_and_of_engines_with_weights_of_their_own():
    def bound(*words):
        return make_monitor(composed("dry_run=true", *words)).bound

    assert bound("engine=vllm") == 1e-4
    assert bound("engine=vllm", "engine.dtype=bfloat16") == 0.05
    assert bound("engine=vllm", "model.tuning=lora", "model.dtype=bfloat16") == 0.05
    assert bound("engine=vllm", "model.tuning=full", "model.compute_dtype=bfloat16") == 0.05
    assert bound("engine=vllm", "engine.lag=1") == 1e-4
    assert bound("engine=transformers") == bound("engine=transformers", "engine.lag=1") == math.inf
    assert make_monitor(composed("dry_run=true")).fails
    assert not make_monitor(composed("dry_run=true", "update.importance=token_mask")).fails


@pytest.mark.parametrize("compared", [True, False])
def test_a_lagging_engine_is_compared_with_the_weights_that_it_drew_from(
    run_py, tmp_path, compared
):
    other = ("update.logprob_temperature=one", "sampling.temperature=0.7", "update.importance=off")
    result = run_py("hardware.shard=true", "model.tuning=full", "engine.lag=1", "update.lr=1e-2",
                    "engine.dtype=bfloat16", *SHORT, *(() if compared else other))  # fmt: skip
    assert result.returncode == 0 and "alarm" not in result.stdout, result.stdout + result.stderr
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    gaps = [line.get("engine_gap") for line in lines]
    if compared:  # rounding alone, however much the trainer has learned since
        assert min(gaps) > 0 and max(gaps) < 0.02 < lines[-1]["logprob_gap_mean"]
    else:
        assert gaps == [None] * 4


def test_the_gap_of_an_engine_is_the_mean_distance_of_log_probs_whatever_their_sign(monkeypatch):
    scores = [torch.tensor([-1.0]), torch.tensor([-1.0, -2.0])]
    monkeypatch.setattr(mismatch, "score_all", lambda context, rollouts: scores)
    drawn = [
        Rollout((5,), (1,) * len(logprobs), np.array(logprobs, np.float32), "", True)
        for logprobs in ([-1.5], [-0.5, -2.0])
    ]
    worker = Mock(config=composed("dry_run=true"))
    assert engine_gap(worker, drawn) == pytest.approx((0.5 + 0.5 + 0.0) / 3)
