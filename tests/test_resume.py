"""What a stopped run brings back: what was sampled ahead, what is known of prompts, the alarms."""

import errno
import sys
from unittest.mock import Mock

import pytest
from compose import composed
from running import SHORT, contents, science_of

from pods.launch import job
from pods.method.prompt_selection import Uniform
from pods.policy.process_group import SINGLE_PROCESS
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.system.errors import AGAIN, DONE
from pods.training.mismatch import MismatchMonitor
from pods.training.resume import restore_newest
from pods.training.step import RunState

RULE = """
import os, signal
from pathlib import Path
def rule(group, m, rng):
    stop, logs = Path("stop_after"), list(Path("runs").rglob("metrics.jsonl"))
    if stop.exists() and logs and logs[0].read_bytes().count(b"\\n") == int(stop.read_text()):
        stop.unlink()
        os.kill(os.getpid(), signal.SIGTERM)
    return range(m)
"""
KINDS = {
    "uniform": (),
    "with a lag": ("engine.lag=2",),
    "selection with a lag": ("engine.lag=2", "prompts=greso"),
    "selection by beliefs": ("arm=arcus", "task.train_size=6"),
    "selection by price": ("prompts=cero", "task.train_size=6", "engine.lag=1"),
    "several groups of a prompt": ("nm.groups=2", "prompts=mopps"),
    "an adapter": ("model.tuning=lora", "update.lr=1e-2", "nm.m=4"),
    "off policy": ("update.epochs=2", "update.minibatches=2"),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run one config in a folder; its rule asks it to stop when the log has so many steps."""
    (tmp_path / "stopping.py").write_text(RULE)
    monkeypatch.syspath_prepend(tmp_path)

    def run(name, *words, stop_after=None):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        if stop_after is not None:
            (folder / "stop_after").write_text(str(stop_after))
        sys.modules.pop("stopping", None)
        store = freeze(composed("sampler.rule=stopping:rule", *SHORT, "evaluation.questions=4",
                                "evaluation.repeats=1", "checkpoint.every_steps=null",
                                "prompts_per_step=2", "nm.n=4", "nm.m=2",
                                "budget.train_seconds=null", *words))  # fmt: skip
        code = job.execute(store.folder)
        return code, RunStore(store.folder.resolve()), capfd.readouterr()

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_stopped_in_its_third_step_ends_as_if_it_had_not_been(kind, run):
    words = KINDS[kind]
    code, whole, printed = run("whole", *words)
    assert code == DONE, printed

    code, stopped, printed = run("stopped", *words, stop_after=2)
    assert code == AGAIN, printed
    assert len(read_lines(stopped.metrics_path)) == 2
    code, stopped, printed = run("stopped", *words)
    assert code == DONE, printed
    assert "resuming from step 2" in printed.out

    lines, files = science_of(stopped.folder)
    expected_lines, expected_files = science_of(whole.folder)
    assert lines == expected_lines
    assert files == expected_files


def test_a_resumed_run_counts_the_alarms_of_its_log(run, monkeypatch):
    seen = []
    observe = MismatchMonitor.observe

    def noted(monitor, line):
        seen.append(line["step"])
        return observe(monitor, line)

    monkeypatch.setattr(MismatchMonitor, "observe", noted)
    assert run("stopped", stop_after=2)[0] == AGAIN
    assert seen == [1, 2]
    seen.clear()
    assert run("stopped")[0] == DONE
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"),
                                   RuntimeError("size mismatch for lm_head.weight")])  # fmt: skip
def test_a_whole_checkpoint_that_cannot_be_loaded_ends_the_run_and_stays_as_it_is(run, error):
    code, store, _ = run("stopped", stop_after=2)
    assert code == AGAIN
    before = contents(store.folder)
    worker = Mock(process_group=SINGLE_PROCESS)
    worker.restore.side_effect = error
    reported = []
    with pytest.raises(type(error)):
        restore_newest(store, worker, RunState(Uniform()), reported.append)
    assert reported == []
    assert contents(store.folder) == before
