"""Kill it anywhere: the same command ends in the same bytes, and says when it was asked to stop."""

import json

import psutil
import pytest
from running import SHORT, busy, killing, run_folder, start, start_forked, wait_for

PHASES = {"generate", "update", "checkpoint", "evaluation"}
MANY = 40  # kills, from which on each signal is sent in each phase, too
pytestmark = pytest.mark.kill


@pytest.mark.xdist_group("kills")  # one on each of two workers
def test_runs_that_are_killed_anywhere_end_in_the_same_bytes(tmp_path, request, capsys):
    wanted, seed = (request.config.getoption(name) for name in ("--kills", "--kill-seed"))
    found = killing("kill", tmp_path, wanted, seed)
    with capsys.disabled():
        print(f"\n{sum(found['kills'].values())} kills in {found['runs']} runs: {found['kills']}")
    assert found["differences"] == []
    assert sum(found["kills"].values()) >= wanted
    assert set(found["kills"]) == PHASES | {"aggregation"}
    assert min(found["kills"].values()) >= max(1, wanted // 6 - 1)


def test_a_signal_in_any_phase_ends_in_a_checkpoint_of_the_last_step(tmp_path, request):
    """With many kills each signal comes in each phase; else each comes, and in each phase one."""
    many = request.config.getoption("--kills") >= MANY
    found = killing("stop", tmp_path, int(many))
    stopped = {(stop["phase"], stop["signal"]) for stop in found["stops"]}
    assert len(stopped) == len(found["stops"]) == (20 if many else 8)
    assert {phase for phase, _ in stopped} == PHASES | {"start"}
    assert {signal for _, signal in stopped} == {"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"}
    for stop in found["stops"]:
        assert stop["reached"], stop
        assert (stop["exit code"], stop["state"]) == (75, "preempted"), stop
        assert stop["checkpoint"] == stop["steps"], stop
        assert stop["seconds"] < 30, stop
    assert found["stops"][-1]["steps"] > len(stopped)  # so many of the stops lost nothing
    assert found["differences"] == []


@pytest.mark.parametrize("moment", ["loading", "training"])
def test_no_process_is_left_behind(tmp_path, moment):
    """With W&B's own process beside it, stopped while torch loads and in the midst of training.

    "loading" starts the README's first command, without arguments, in a new Python; "training"
    forks it from a server that has imported its libraries.
    """
    if moment == "loading":
        process = start(tmp_path)
    else:
        short = [argument for argument in SHORT if not argument.startswith("tracking")]
        process = start_forked(tmp_path, *short, "budget.max_steps=100000")
    states = "runs/*/*/*/seed*/status.json"
    wait_for(lambda: any('"running"' in path.read_text() for path in tmp_path.glob(states)))
    if moment == "training":
        wait_for(lambda: busy(tmp_path) == 1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert moment == "loading" or family
    process.terminate()
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 75, output
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert json.loads((run_folder(tmp_path) / "status.json").read_text())["state"] == "preempted"
