"""The launcher on paper: schedules by hand, what must hold of any, and what failures cost."""

import importlib.util
import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from rows import every

from pods.analysis.cost.cluster import Failures, Job, forecast, lower_bound, simulate


def one(*hours: float) -> list[Job]:
    return [Job(f"job {i}", h, 1) for i, h in enumerate(hours)]


def starts(schedule) -> list[tuple[int, float, float]]:
    return [(t.job, t.start, t.end) for t in schedule.tries]


def test_three_jobs_on_two_gpus_by_hand():
    found = simulate(one(4, 2, 2), gpus=2)
    assert starts(found) == [(0, 0, 4), (1, 0, 2), (2, 2, 4)]
    assert [t.devices for t in found.tries] == [(0,), (1,), (1,)]
    assert (found.wall, found.idle, found.tail, found.lost) == (4, 0, 2, 0)
    assert lower_bound(one(4, 2, 2), 2) == 4


def test_the_order_decides_and_idle_is_counted():
    found = simulate(one(2, 2, 4), gpus=2)
    assert starts(found) == [(0, 0, 2), (1, 0, 2), (2, 2, 6)]
    assert found.wall == 6 and found.idle == pytest.approx(1 - 8 / 12)
    assert lower_bound(one(2, 2, 4), 2) == 4


def test_a_large_job_waits_and_nobody_overtakes_it():
    jobs = [Job("small", 3, 1), Job("large", 1, 2), Job("small", 1, 1)]
    found = simulate(jobs, gpus=2)
    # one GPU is free from the start, but the large job is the next
    assert starts(found) == [(0, 0, 3), (1, 3, 4), (2, 4, 5)]
    assert found.idle == pytest.approx(1 - (3 + 2 + 1) / 10)


def test_no_job_is_no_time_and_one_that_is_too_large_is_refused():
    assert simulate([], gpus=8).wall == simulate([], gpus=8).idle == lower_bound([], 8) == 0
    with pytest.raises(ValueError, match=r"^gpus=4: a job of h100 takes 8$"):
        simulate([Job("h100", 1, 8)], gpus=4)


def test_a_job_stays_within_a_machine_by_hand():
    """Two machines of two: small jobs fill one, so that the large one finds the other whole."""
    jobs = [Job("small", 3, 1), Job("small", 2, 1), Job("large", 1, 2), Job("large", 1, 2)]
    found = simulate(jobs, 4, machine=2)
    assert [t.devices for t in found.tries] == [(0,), (1,), (2, 3), (2, 3)]
    assert found.wall == 3
    apart = simulate([Job("small", 1, 1)] * 3 + [Job("large", 1, 2)], 4, machine=2)
    assert starts(apart)[-1] == (
        3,
        1,
        2,
    )  # from 0 on one GPU is free, and half a machine is no room
    with pytest.raises(ValueError, match=r"^gpus=2: a job of large takes 3$"):
        simulate([Job("large", 1, 3)], 4, machine=2)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_what_holds_of_any_schedule(rate):
    every(((seed, rate) for seed in range(30)), check_schedule)


def check_schedule(seed, rate):
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(1, 9))
    machine = int(rng.integers(1, gpus + 1))
    jobs = [
        Job("any", float(rng.uniform(0.5, 6)), int(rng.integers(1, machine + 1)),
            float(rng.choice([0.5, 1.0, math.inf])))
        for _ in range(int(rng.integers(1, 25)))
    ]  # fmt: skip
    found = simulate(jobs, gpus, Failures(rate, 0.25), rng, machine)
    used: dict[int, list] = {}
    for tried in found.tries:
        assert len(set(tried.devices)) == jobs[tried.job].gpus
        for device in tried.devices:
            assert 0 <= device < gpus and device // machine == tried.devices[0] // machine
            used.setdefault(device, []).append(tried)
    for tries in used.values():  # in order of their starts: a GPU has one job, and its restart
        for before, after in pairwise(tries):
            assert before.end + (0.25 if before.failed else 0) <= after.start + 1e-9
    worked = [0.0] * len(jobs)
    for tried in found.tries:
        worked[tried.job] += tried.end - tried.start - tried.lost
    assert worked == pytest.approx([job.hours for job in jobs])
    assert sum(not t.failed for t in found.tries) == len(jobs)
    assert found.wall >= lower_bound(jobs, gpus) - 1e-9 and 0 <= found.idle < 1
    assert found.lost <= sum((t.end - t.start) * len(t.devices) for t in found.tries)
    if rate == 0:
        assert (found.lost, found.restarts) == (0, 0)
        assert [t.job for t in found.tries] == list(range(len(jobs)))  # nobody overtakes


@pytest.mark.parametrize(("count", "gpus"), [(20, 8), (140, 64), (5, 8), (64, 64)])
def test_jobs_of_one_length_take_rounds(count, gpus):
    found = simulate(one(*[1.5] * count), gpus)
    assert found.wall == pytest.approx(1.5 * math.ceil(count / gpus))


def test_one_gpu_jobs_stay_below_the_bound_of_list_scheduling():
    def check(seed):
        rng = np.random.default_rng(seed)
        jobs = one(*rng.uniform(0.1, 5, size=30))
        gpus = int(rng.integers(2, 10))
        best = lower_bound(jobs, gpus)
        assert best <= simulate(jobs, gpus).wall <= (2 - 1 / gpus) * best + 1e-9

    every(((seed,) for seed in range(20)), check)


class Given:
    """Failures after so many hours, in turn."""

    def __init__(self, *hours: float) -> None:
        self.hours = list(hours)

    def exponential(self, mean: float) -> float:
        return self.hours.pop(0)


def test_a_failure_by_hand():
    """Of 6 h with a checkpoint each hour it fails after 2.5, then after 0.25, then runs through."""
    job, other = Job("a", 6, 2, every=1), Job("b", 1, 2, every=1)
    found = simulate([job, other], 2, Failures(0.01, restart=0.5), Given(2.5, 0.25, 99, 99))
    # 2 h are kept; nothing of the second try is; the first keeps its place before the other
    assert starts(found) == [(0, 0, 2.5), (0, 3.0, 3.25), (0, 3.75, 7.75), (1, 7.75, 8.75)]
    assert [t.lost for t in found.tries] == [0.5, 0.25, 0, 0]
    assert (found.lost, found.restarts, found.wall, found.tail) == (1.5, 2, 8.75, 1.0)
    assert found.idle == pytest.approx(1 - (2.5 + 0.25 + 4 + 1) / 8.75)


def test_failures_that_no_job_gets_past_are_refused():
    often = Job("often", 40, 8, every=0.25)  # 2 GPU-hours at a time
    assert simulate([often], 8, Failures(0.5), np.random.default_rng(0)).wall > 40
    line = r"^failures=2\.6: must be at most 2\.5 a GPU-hour: a job of often takes 2 to"
    with pytest.raises(ValueError, match=line):
        simulate([*one(1), often], 8, Failures(2.6), np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"at most 1\.25 a GPU-hour: a job of job 0 takes 4 to"):
        forecast(one(4), 1, Failures(1.3))  # it has no checkpoint


def test_a_job_that_failed_goes_on_where_gpus_are_free_at_once():
    found = simulate(one(4), 2, Failures(0.1, restart=9), Given(1, 99))
    assert starts(found) == [(0, 0, 1), (0, 1, 5)]  # it has no checkpoint
    assert [t.devices for t in found.tries] == [(0,), (1,)]


def test_failures_come_as_often_as_they_should():
    """With a checkpoint at every moment T GPU-hours fail rate x T times, and lose nothing."""
    jobs = [Job("a", 10, 4, every=1e-9)]
    rng = np.random.default_rng(0)
    many = [simulate(jobs, 4, Failures(0.05), rng) for _ in range(2000)]
    mean = np.mean([found.restarts for found in many])
    assert mean == pytest.approx(0.05 * 40, abs=4 * math.sqrt(2 / 2000))  # Poisson, four errors
    assert max(found.lost for found in many) < 1e-6


def test_without_checkpoints_the_work_is_what_theory_expects():
    """Of a job that starts anew until it gets through: (e^(rate T) - 1) / rate hours, worked."""
    jobs, rate = one(3.0), 0.2
    rng = np.random.default_rng(1)
    walls = np.array([simulate(jobs, 1, Failures(rate), rng).wall for _ in range(4000)])
    expected = (math.exp(rate * 3) - 1) / rate
    assert walls.mean() == pytest.approx(expected, abs=4 * walls.std() / math.sqrt(4000))


def test_the_tail_begins_with_the_last_new_job():
    found = simulate(one(4, 2), 1, Failures(0.1, restart=1), Given(99, 1, 99))
    assert starts(found) == [(0, 0, 4), (1, 4, 5), (1, 6, 8)]
    assert found.tail == 4  # and not 2, from the last start


def test_a_forecast_is_the_same_each_time_and_failures_cost():
    jobs = [Job("a", 6, 1, 0.5), Job("b", 2, 8, 0.25)] * 10
    calm, rough = (forecast(jobs, 16, Failures(rate, 0.1)) for rate in (0.0, 0.05))
    assert forecast(jobs, 16, Failures(0.05, 0.1)) == rough
    assert calm["lost"] == calm["restarts"] == 0 and calm["wall"] == calm["worst"]
    assert rough["wall"] > calm["wall"] and rough["lost"] > 0 and rough["worst"] >= rough["wall"]


PLAN = ROOT / "experiments" / "cluster_plan"


def test_the_tables_of_the_papers_settings_hold_what_can_be_told_without_the_code():
    """14 settings x 10 seeds: 10 runs of 6 h, 2 of 2 h and 2 of 40 min on 8 GPUs, a seed."""
    runs = pd.read_csv(PLAN / "settings.csv")
    assert runs.hours.value_counts().to_dict() == {6: 10, 2: 2, 0.6667: 2}
    assert runs.gpus.tolist() == [1] * 12 + [8] * 2
    assert runs.checkpoint_hours.tolist() == [0.5] * 10 + [0.1667] * 2 + [0.03333] * 2
    work = 10 * (10 * 6 + 2 * 2 + 2 * 8 * 2 / 3)  # GPU-hours
    table = pd.read_csv(PLAN / "schedule.csv")
    assert len(table) == 2 * 3 * 4 and table.failures.tolist() == [0, 0.001, 0.01, 0.05] * 6
    bound = np.maximum(work / table.gpus, 6)
    assert table.bound.tolist() == pytest.approx(bound.tolist(), rel=1e-3)
    assert (table.wall >= 0.999 * bound).all() and (table.worst >= table.wall).all()
    calm, rough = table[table.failures == 0], table[table.failures > 0]
    assert (calm[["restarts", "lost"]] == 0).all(None) and (calm.wall == calm.worst).all()
    idle = 1 - work / (calm.gpus * calm.wall)
    assert calm.idle.tolist() == pytest.approx(idle.tolist(), abs=1e-3)
    # 280 GPUs are asked for at once: of 512 all have theirs at once, and the longest run is last
    assert calm.wall[calm.gpus == 512].tolist() == calm["tail"][calm.gpus == 512].tolist() == [6, 6]
    # seed by seed on 8 GPUs: 8 of 6 h, then 2 of 6 h beside 2 of 2 h, then 2 of 40 min on all 8
    first = calm[(calm.gpus == 8) & (calm.order == "seed by seed")].iloc[0]
    assert first.wall == pytest.approx(10 * (6 + 6 + 2 * 2 / 3), rel=1e-3)
    # failures come at their rate, in the mean of 20 draws; at most a checkpoint's work is lost
    expected = rough.failures * (work + rough.lost)
    assert (abs(rough.restarts - expected) < 4 * np.sqrt(expected / 20)).all()
    assert (rough.lost < 0.5 * rough.restarts).all()


@pytest.mark.slow
def test_the_tables_of_the_papers_settings_are_what_the_code_gives(tmp_path):
    """From the presets as they are."""
    folder = PLAN
    found = importlib.util.spec_from_file_location("cluster", folder / "cluster.py")
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    assert len(script.SETTINGS) == 14 and script.SEEDS == 10
    assert script.main(tmp_path) == 0
    for name in ("settings.csv", "schedule.csv"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
    assert (tmp_path / "schedule.png").stat().st_size > 10_000
