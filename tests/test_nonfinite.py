"""NaN and infinity never reach the weights: the step is void, counted and kept for replay."""

import dataclasses
import json
import math

import numpy as np
import pytest
from compose import composed
from running import SHORT, run_here
from safetensors.numpy import load_file
from test_metrics import LINE

from pods.launch import job
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.system.errors import FAILED
from pods.training import loop as train
from pods.training import step as records
from pods.training.mismatch import MismatchMonitor
from pods.types import Parts, Rollout

SPOILED = (*SHORT, "budget.max_steps=9", "rollouts_every_steps=null", "evaluation.questions=4",
           "evaluation.repeats=1")  # fmt: skip


@pytest.fixture
def poison(tmp_path, monkeypatch):
    """Rewards of some steps are NaN, advantages of others are infinite."""
    monkeypatch.chdir(tmp_path)
    at, grade, plain = [0], train.grade_rollouts, records.advantages
    step = train.TrainingLoop.collect

    def spoil(rewards: tuple[int, ...], gradients: tuple[int, ...] = ()) -> None:
        def spoiled_grades(*words):
            found = grade(*words)
            if at[0] not in rewards:
                return found
            return [dataclasses.replace(each, parts=Parts(math.nan)) for each in found]

        def counted_step(self, number, *states):
            at[0] = number
            return step(self, number, *states)

        def spoiled_advantages(*args, **kwargs):
            found = plain(*args, **kwargs)
            return found * math.inf if at[0] in gradients else found

        monkeypatch.setattr(train, "grade_rollouts", spoiled_grades)
        monkeypatch.setattr(train.TrainingLoop, "collect", counted_step)
        monkeypatch.setattr(records, "advantages", spoiled_advantages)

    return spoil


def test_skipped_steps_are_counted_kept_and_change_nothing(poison):
    poison(rewards=(3, 4), gradients=(6,))
    folder = run_here(*SPOILED).folder
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 10))
    assert list(lines[0]) == [key for key in LINE if not key.startswith("selector/")]
    assert {line["step"]: line["nonfinite"] for line in lines if line["nonfinite"]} == {
        3: "a reward is NaN or infinite", 4: "a reward is NaN or infinite", 6: "the loss is nan",
    }  # fmt: skip
    assert json.loads((folder / "status.json").read_text())["skipped_steps"] == 3
    seconds = [sum(v for k, v in line.items() if k.startswith("seconds/")) for line in lines]
    assert min(seconds) > 0  # they are charged all the same
    checkpoints = folder / "checkpoints"
    weights = {
        step: load_file(checkpoints / f"step-{step:06d}" / "policy" / "model.safetensors")
        for step in (0, 2, 4, 6, 8, 9)
    }
    assert all(np.isfinite(x).all() for tensors in weights.values() for x in tensors.values())
    equal = {
        (a, b): all((weights[a][name] == weights[b][name]).all() for name in weights[a])
        for a, b in ((0, 2), (2, 4), (4, 6))
    }
    assert equal == {(0, 2): False, (2, 4): True, (4, 6): False}  # step 5 was applied
    kept = sorted(path.name for path in (folder / "rollouts").iterdir())
    assert kept == [f"step-00000{step}.jsonl.gz" for step in (3, 4, 6)]
    # the weights after a step that was not applied are those before it
    said = replayed(folder / "rollouts" / kept[-1], checkpoints / "step-000006")
    assert said == "the loss is nan"


def replayed(rollouts_path, checkpoint) -> str:
    """Return what the update of a step says, made again from its rollouts and a checkpoint."""
    config = composed(*SHORT)
    policy = load(config)
    policy.restore(checkpoint / "policy")
    rows = [row for row in read_lines(rollouts_path) if row["trained"]]
    rollouts = [
        Rollout(tuple(row["prompt_ids"]), tuple(row["completion_ids"]),
                np.array(row["logprobs"], np.float32), row["completion"], row["finished"])
        for row in rows]  # fmt: skip
    advantages = np.array([float(row["advantage"]) for row in rows])
    assert not np.isfinite(advantages).all()
    optimizer = make_optimizer(policy, config.update)
    with pytest.raises(FloatingPointError) as caught:
        update(UpdateContext(policy, config), optimizer, rollouts, advantages, [len(rollouts)], 6)
    return str(caught.value)


def test_too_many_in_a_row_end_the_run_which_can_go_on(run_py, poison, monkeypatch):
    poison(rewards=(2, 4, 5, 6))
    folder = freeze(composed(*SPOILED)).folder
    assert job.execute(folder) == FAILED
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed" and status["skipped_steps"] == 4
    assert "3 consecutive steps were skipped: a reward is NaN or infinite" in status["error"]
    assert "failed" in run_py(*SPOILED).stderr  # it waits
    recalled = []
    monkeypatch.setattr(MismatchMonitor, "observe", lambda self, line: recalled.append(line))
    monkeypatch.setattr("pods.training.trainer.NONFINITE_LIMIT", 4)
    assert run_here(*SPOILED, "retry=failed").folder == folder
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines if line["nonfinite"]] == [2, 4, 5, 6]
    # it went on from step 4 and knew what had been until then
    assert json.loads((folder / "status.json").read_text())["skipped_steps"] == 4
    assert recalled[:4] == lines[:4]
