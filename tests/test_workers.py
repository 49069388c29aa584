"""What one of several processes does with the results of the others, which are given by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from compose import composed

from pods.engines.base import EngineFailed
from pods.policy.joined import JoinedProcesses
from pods.policy.process_group import ProcessGroup
from pods.system.signals import PeerLost, Preempted
from pods.training.workers import Share, SharedEngine, Worker
from pods.types import GenerationRequest, Rollout, Sampling


class Two(ProcessGroup):
    """This process and another one, which says what it is told to."""

    size = 2

    def __init__(self, rank, others):
        self.rank = rank
        self.others = others

    def all_values(self, value):
        values = [self.others, self.others]
        values[self.rank] = value
        return values


def rollout(text):
    return Rollout((0,), (0,), np.zeros(1, np.float32), text, True)


def draw(request, on_completion):
    """Draw rollouts that are called by their places among the rows of these prompts."""
    groups = [[] for _ in request.prompts]
    for row in request.drawn():
        prompt = row // request.n
        groups[prompt].append(rollout(f"own {row}"))
        if on_completion is not None:
            on_completion(prompt, f"own {row}")
    return groups


def shared(rank, other, generate=draw):
    return SharedEngine(SimpleNamespace(generate=generate), Two(rank, other))


REQUEST = GenerationRequest([(1,), (2,)], 2, Sampling(1.0, 4), [7, 8])
OTHERS = Share([[rollout("theirs 0")], [rollout("theirs 1"), rollout("theirs 2")]])


@pytest.mark.parametrize(("rank", "graded", "texts"), [
    (0, ["own 0", "own 1", "theirs 0", "theirs 1", "theirs 2"],
     [["own 0", "own 1", "theirs 0"], ["theirs 1", "theirs 2"]]),
    (1, [], [["theirs 0"], ["theirs 1", "theirs 2", "own 0", "own 1"]]),
])  # fmt: skip
def test_the_main_process_alone_grades_each_completion_once(rank, graded, texts):
    seen = []
    groups = shared(rank, OTHERS).generate(REQUEST, lambda prompt, text: seen.append(text))
    assert seen == graded
    assert [[one.text for one in group] for group in groups] == texts


def test_a_request_to_stop_goes_before_a_failure_and_a_failure_names_its_process():
    def fail(request, on_completion):
        raise EngineFailed("out of memory")

    with pytest.raises(Preempted):
        shared(0, Share(stops=True), fail).generate(REQUEST)
    with pytest.raises(EngineFailed, match=r"^process 0: out of memory$"):
        shared(0, OTHERS, fail).generate(REQUEST)
    with pytest.raises(EngineFailed, match=r"^process 1: lost$"):
        shared(0, Share(failure="lost")).generate(REQUEST)


def test_weights_that_are_not_finite_on_another_process_are_a_fault_of_the_run():
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])
    worker = Worker(composed(), None, optimizer, None, Two(0, "weight a is NaN"), lambda: None)
    assert worker.nonfinite() == "weight a is NaN"


def test_a_note_tells_which_process_ended_and_how():
    group = object.__new__(JoinedProcesses)
    group.rank = 3
    group.store = dist.HashStore()
    assert group.read_note() is None
    group.leave_note("failed", 1, "ValueError: x")
    assert group.read_note() == ("failed", 1, "process 3: ValueError: x")


def test_the_end_of_another_process_is_known_by_its_error():
    lost = JoinedProcesses.lost_another
    assert lost(PeerLost("x")) and lost(dist.DistBackendError("x"))
    assert lost(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
    assert not lost(RuntimeError("shapes do not fit")) and not lost(ValueError("x"))
