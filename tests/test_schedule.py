"""The simulated scheduler: schedules by hand, invariants of all schedules, failures."""

import heapq
import importlib.util
import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from rows import every

from pods.analysis.cost.schedule import Failures, Job, forecast, lower_bound, simulate


def one_gpu_jobs(*hours: float) -> list[Job]:
    return [Job(f"job {i}", h) for i, h in enumerate(hours)]


def spans(schedule) -> list[tuple[int, float, float]]:
    return [(a.job, a.start, a.end) for a in schedule.attempts]


def test_three_jobs_on_two_gpus_by_hand():
    schedule = simulate(one_gpu_jobs(4, 2, 2), gpus=2)
    assert spans(schedule) == [(0, 0, 4), (1, 0, 2), (2, 2, 4)]
    assert [a.devices for a in schedule.attempts] == [(0,), (1,), (1,)]
    assert (schedule.wall, schedule.idle, schedule.tail, schedule.lost) == (4, 0, 2, 0)
    assert lower_bound(one_gpu_jobs(4, 2, 2), 2) == 4


def test_the_order_matters_and_idle_gpus_count():
    schedule = simulate(one_gpu_jobs(2, 2, 4), gpus=2)
    assert spans(schedule) == [(0, 0, 2), (1, 0, 2), (2, 2, 6)]
    assert schedule.wall == 6 and schedule.idle == pytest.approx(1 - 8 / 12)
    assert lower_bound(one_gpu_jobs(2, 2, 4), 2) == 4


def test_a_large_job_waits_and_is_not_overtaken():
    jobs = [Job("small", 3), Job("large", 1, 2), Job("small", 1)]
    schedule = simulate(jobs, gpus=2)
    # one GPU is free from the start, but the large job is next in the queue
    assert spans(schedule) == [(0, 0, 3), (1, 3, 4), (2, 4, 5)]
    assert schedule.idle == pytest.approx(1 - (3 + 2 + 1) / 10)


def test_an_empty_queue_takes_no_time_and_a_job_that_is_too_large_is_refused():
    assert simulate([], gpus=8).wall == simulate([], gpus=8).idle == lower_bound([], 8) == 0
    with pytest.raises(ValueError, match=r"^gpus=4: must be at least 8, for a job of h100$"):
        simulate([Job("h100", 1, 8)], gpus=4)


def test_a_job_stays_within_one_machine():
    """Small jobs fill one of two machines, so that the large one finds the other empty."""
    jobs = [Job("small", 3), Job("small", 2), Job("large", 1, 2), Job("large", 1, 2)]
    schedule = simulate(jobs, 4, machine=2)
    assert [a.devices for a in schedule.attempts] == [(0,), (1,), (2, 3), (2, 3)]
    assert schedule.wall == 3
    # from the start one GPU of each machine is free, which does not fit a job of two
    split = simulate([Job("small", 1)] * 3 + [Job("large", 1, 2)], 4, machine=2)
    assert spans(split)[-1] == (3, 1, 2)
    with pytest.raises(ValueError, match=r"^gpus=2: must be at least 3, for a job of large$"):
        simulate([Job("large", 1, 3)], 4, machine=2)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_invariants_of_every_schedule(rate):
    every(((seed, rate) for seed in range(30)), check_schedule)


def check_schedule(seed, rate):
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(1, 9))
    machine = int(rng.integers(1, gpus + 1))
    jobs = [
        Job(
            "any",
            float(rng.uniform(0.5, 6)),
            int(rng.integers(1, machine + 1)),
            float(rng.choice([0.5, 1.0, math.inf])),
        )
        for _ in range(int(rng.integers(1, 25)))
    ]
    schedule = simulate(jobs, gpus, Failures(rate, 0.25), rng, machine)
    by_device: dict[int, list] = {}
    for attempt in schedule.attempts:
        assert len(set(attempt.devices)) == jobs[attempt.job].gpus
        for device in attempt.devices:
            assert 0 <= device < gpus and device // machine == attempt.devices[0] // machine
            by_device.setdefault(device, []).append(attempt)
    for attempts in by_device.values():  # by start: a GPU has one job at a time, or restarts
        for before, after in pairwise(attempts):
            assert before.end + (0.25 if before.failed else 0) <= after.start + 1e-9
    worked = [0.0] * len(jobs)
    for attempt in schedule.attempts:
        worked[attempt.job] += attempt.end - attempt.start - attempt.lost
    assert worked == pytest.approx([job.hours for job in jobs])
    assert sum(not a.failed for a in schedule.attempts) == len(jobs)
    assert schedule.wall >= lower_bound(jobs, gpus) - 1e-9 and 0 <= schedule.idle < 1
    assert schedule.lost <= sum((a.end - a.start) * len(a.devices) for a in schedule.attempts)
    if rate == 0:
        assert (schedule.lost, schedule.restarts) == (0, 0)
        assert [a.job for a in schedule.attempts] == list(range(len(jobs)))  # nobody overtakes


@pytest.mark.parametrize(("count", "gpus"), [(20, 8), (140, 64), (5, 8), (64, 64)])
def test_jobs_of_equal_length_take_rounds(count, gpus):
    schedule = simulate(one_gpu_jobs(*[1.5] * count), gpus)
    assert schedule.wall == pytest.approx(1.5 * math.ceil(count / gpus))


def test_one_gpu_jobs_without_failures_are_list_scheduling():
    """The wall time is that of a heap of slots, within Graham's bound."""

    def check(seed):
        rng = np.random.default_rng(seed)
        jobs = one_gpu_jobs(*rng.uniform(0.1, 5, size=30))
        gpus = int(rng.integers(2, 10))
        wall = simulate(jobs, gpus).wall
        slots = [0.0] * gpus
        for job in jobs:
            heapq.heapreplace(slots, slots[0] + job.hours)
        assert wall == max(slots)
        best = lower_bound(jobs, gpus)
        assert best <= wall <= (2 - 1 / gpus) * best + 1e-9

    every(((seed,) for seed in range(20)), check)


def test_a_sweep_of_two_seeds_by_hand():
    """Three sizes of 12, 5 and 5 hours take 12 + 5 + 5 beside 5 + 5 + 12, or 5 + 12 on three."""
    jobs = one_gpu_jobs(12, 5, 5, 12, 5, 5)
    assert [simulate(jobs, gpus).wall for gpus in (2, 3)] == [22, 17]


class FixedLifetimes:
    """A generator whose failures come after the given hours."""

    def __init__(self, *hours: float) -> None:
        self.hours = list(hours)

    def exponential(self, mean: float) -> float:
        return self.hours.pop(0)


def test_a_failure_by_hand():
    """A job of 6 h with hourly checkpoints fails after 2.5 h, then after 0.25 h, then completes."""
    jobs = [Job("a", 6, 2, checkpoint_hours=1), Job("b", 1, 2, checkpoint_hours=1)]
    schedule = simulate(jobs, 2, Failures(0.01, restart=0.5), FixedLifetimes(2.5, 0.25, 99, 99))
    # 2 h are kept, none of the second attempt; the first job keeps its position before the other
    assert spans(schedule) == [(0, 0, 2.5), (0, 3.0, 3.25), (0, 3.75, 7.75), (1, 7.75, 8.75)]
    assert [a.lost for a in schedule.attempts] == [0.5, 0.25, 0, 0]
    assert (schedule.lost, schedule.restarts, schedule.wall, schedule.tail) == (1.5, 2, 8.75, 1.0)
    assert schedule.idle == pytest.approx(1 - (2.5 + 0.25 + 4 + 1) / 8.75)


def test_failures_that_no_job_gets_past_are_refused():
    often = Job("often", 40, 8, checkpoint_hours=0.25)  # 2 GPU-hours at a time
    assert simulate([often], 8, Failures(0.5), np.random.default_rng(0)).wall > 40
    line = r"^failures=2\.6: must be at most 2\.5 per GPU-hour, because a job of often takes 2 GPU-"
    with pytest.raises(ValueError, match=line):
        simulate([*one_gpu_jobs(1), often], 8, Failures(2.6), np.random.default_rng(0))
    with pytest.raises(
        ValueError, match=r"at most 1\.25 per GPU-hour, because a job of job 0 takes 4"
    ):
        forecast(one_gpu_jobs(4), 1, Failures(1.3))  # it has no checkpoint


def test_a_failed_job_restarts_at_once_on_other_free_gpus():
    schedule = simulate(one_gpu_jobs(4), 2, Failures(0.1, restart=9), FixedLifetimes(1, 99))
    assert spans(schedule) == [(0, 0, 1), (0, 1, 5)]  # it has no checkpoint
    assert [a.devices for a in schedule.attempts] == [(0,), (1,)]


def test_failures_come_at_their_rate():
    """With a checkpoint at every moment T GPU-hours fail rate x T times, and lose nothing."""
    jobs = [Job("a", 10, 4, checkpoint_hours=1e-9)]
    rng = np.random.default_rng(0)
    schedules = [simulate(jobs, 4, Failures(0.05), rng) for _ in range(2000)]
    mean = np.mean([schedule.restarts for schedule in schedules])
    assert mean == pytest.approx(0.05 * 40, abs=4 * math.sqrt(2 / 2000))  # Poisson, four errors
    assert max(schedule.lost for schedule in schedules) < 1e-6


def test_without_checkpoints_the_work_is_what_theory_expects():
    """A job that always starts over works (e^(rate T) - 1) / rate hours until it completes."""
    jobs, rate = one_gpu_jobs(3.0), 0.2
    rng = np.random.default_rng(1)
    walls = np.array([simulate(jobs, 1, Failures(rate), rng).wall for _ in range(4000)])
    expected = (math.exp(rate * 3) - 1) / rate
    assert walls.mean() == pytest.approx(expected, abs=4 * walls.std() / math.sqrt(4000))


def test_the_tail_begins_with_the_first_start_of_the_last_job():
    schedule = simulate(one_gpu_jobs(4, 2), 1, Failures(0.1, restart=1), FixedLifetimes(99, 1, 99))
    assert spans(schedule) == [(0, 0, 4), (1, 4, 5), (1, 6, 8)]
    assert schedule.tail == 4  # and not 2, from the last start


def test_a_forecast_repeats_and_failures_cost_time():
    jobs = [Job("a", 6, 1, 0.5), Job("b", 2, 8, 0.25)] * 10
    calm, rough = (forecast(jobs, 16, Failures(rate, 0.1)) for rate in (0.0, 0.05))
    assert forecast(jobs, 16, Failures(0.05, 0.1)) == rough
    assert calm["lost"] == calm["restarts"] == 0 and calm["wall"] == calm["worst"]
    assert rough["wall"] > calm["wall"] and rough["lost"] > 0 and rough["worst"] >= rough["wall"]


CLUSTER_PLAN = ROOT / "experiments" / "cluster_plan"


def test_the_cluster_plan_agrees_with_sums_by_hand():
    """14 settings x 10 seeds: 10 runs of 6 h, 2 of 2 h and 2 of 40 min on 8 GPUs per seed."""
    runs = pd.read_csv(CLUSTER_PLAN / "settings.csv")
    assert runs.hours.value_counts().to_dict() == {6: 10, 2: 2, 0.6667: 2}
    assert runs.gpus.tolist() == [1] * 12 + [8] * 2
    assert runs.checkpoint_hours.tolist() == [0.5] * 10 + [0.1667] * 2 + [0.03333] * 2
    work = 10 * (10 * 6 + 2 * 2 + 2 * 8 * 2 / 3)  # GPU-hours
    table = pd.read_csv(CLUSTER_PLAN / "schedule.csv")
    assert len(table) == 2 * 3 * 4 and table.failures.tolist() == [0, 0.001, 0.01, 0.05] * 6
    bound = np.maximum(work / table.gpus, 6)
    assert table.bound.tolist() == pytest.approx(bound.tolist(), rel=1e-3)
    assert (table.wall >= 0.999 * bound).all() and (table.worst >= table.wall).all()
    calm, rough = table[table.failures == 0], table[table.failures > 0]
    assert (calm[["restarts", "lost"]] == 0).all(None) and (calm.wall == calm.worst).all()
    idle = 1 - work / (calm.gpus * calm.wall)
    assert calm.idle.tolist() == pytest.approx(idle.tolist(), abs=1e-3)
    # 280 GPUs are needed at once: on 512 all jobs start at once, and the longest run ends last
    assert calm.wall[calm.gpus == 512].tolist() == calm["tail"][calm.gpus == 512].tolist() == [6, 6]
    # seed by seed on 8 GPUs: 8 of 6 h, then 2 of 6 h beside 2 of 2 h, then 2 of 40 min on all 8
    first = calm[(calm.gpus == 8) & (calm.order == "seed by seed")].iloc[0]
    assert first.wall == pytest.approx(10 * (6 + 6 + 2 * 2 / 3), rel=1e-3)
    # failures come at their rate, in the mean of 20 draws; at most a checkpoint's work is lost
    expected = rough.failures * (work + rough.lost)
    assert (abs(rough.restarts - expected) < 4 * np.sqrt(expected / 20)).all()
    assert (rough.lost < 0.5 * rough.restarts).all()


@pytest.mark.slow
def test_the_cluster_plan_is_what_its_script_writes(tmp_path):
    spec = importlib.util.spec_from_file_location("cluster", CLUSTER_PLAN / "cluster.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert len(script.SETTINGS) == 14 and script.SEEDS == 10
    assert script.main(tmp_path) == 0
    for name in ("settings.csv", "schedule.csv"):
        assert (tmp_path / name).read_text() == (CLUSTER_PLAN / name).read_text()
    assert (tmp_path / "schedule.png").stat().st_size > 10_000
