"""The budget is where a run ends: a larger one trains it on byte for byte, no other one does."""

from functools import partial
from itertools import count

import pytest
from compose import composed
from running import contents, run_here, science_of
from studies import A, write_run

from pods.analysis.compare.compare import compare
from pods.analysis.draw import summary_lines
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.numbers.tables import tables
from pods.cli.main import main
from pods.config.parse import ConfigError
from pods.launch import dry_run, job, sweep
from pods.launch.backend import Backend, has_work_left, prepare
from pods.runs import evaluations
from pods.runs.files import append
from pods.runs.freeze import check_budgets, freeze
from pods.runs.history import evaluation_points
from pods.runs.status import format_statuses, status_row
from pods.runs.store import run_folders
from pods.system.errors import DONE, FAILED

TICK = 1 / 64  # exact in binary, so that sums of it are
SMALL = ("budget.train_seconds=null", "checkpoint.every_steps=3",
         "checkpoint.every_train_seconds=null", "nm.n=4", "nm.m=2", "prompts_per_step=2",
         "rollouts_every_steps=2", "evaluation.questions=4",
         "evaluation.repeats=1", "tracking=none")  # fmt: skip
KINDS = {
    "all weights": ("prompts=greso", "task.train_size=12"),
    "adapters with a lag": ("model.tuning=lora", "engine.lag=1", "prompts=mopps",
                            "group_filter=resample", "group_filter.max_batches=3"),
}  # fmt: skip


def run(folder, *words):
    """Run to the end of a budget under a clock that ticks, as a process of the newest command."""
    return run_here(*SMALL, f"runs_dir={folder}", *words, now=count(0.0, TICK).__next__)


@pytest.mark.parametrize("kind", KINDS)
def test_a_larger_budget_trains_a_finished_run_on_as_if_it_had_never_stopped(kind, tmp_path):
    """Step 4 is no point of its own: its evaluation is one more."""
    whole = run(tmp_path / "whole", "budget.max_steps=9", *KINDS[kind])
    earlier = run(tmp_path / "on", "budget.max_steps=4", *KINDS[kind])
    assert [*evaluation_points(earlier)] == [0, 3, 4]
    on = run(tmp_path / "on", "budget.max_steps=9", *KINDS[kind])
    assert on.folder == earlier.folder and on.folder.name == whole.folder.name
    assert on.metrics_path.read_bytes() == whole.metrics_path.read_bytes()
    found, expected = science_of(on.folder)[1], science_of(whole.folder)[1]
    more = {name for name in found if name not in expected}
    assert "evaluations/step-000004.jsonl" in more
    assert all("step-000004" in name for name in more)
    assert {name: found[name] for name in expected} == expected
    study = load(on.folder.parents[2], run_folders(on.folder.parents[2]))  # nothing is unexpected
    assert study.complete == {on.folder.name} and [*study.evaluations.step] == [0, 3, 4, 6, 9]


def test_budgets_in_seconds_in_turn_and_their_ends_stay(tmp_path):
    words = ("checkpoint.every_steps=null", "checkpoint.every_train_seconds=1")
    for seconds, frozen in ((0.7, 0.7), (1.7, 1.7), (0.4, 1.7), (2.2, 2.2)):
        store = run(tmp_path / "on", *words, f"budget.train_seconds={seconds}")
        assert store.config().budget.train_seconds == frozen
    whole = run(tmp_path / "whole", *words, "budget.train_seconds=2.2")
    assert store.metrics_path.read_bytes() == whole.metrics_path.read_bytes()
    points, expected = evaluation_points(store), evaluation_points(whole)
    assert points.items() >= expected.items() and len(points) == len(expected) + 2
    ends = sorted(points[step] for step in points.keys() - expected.keys())
    assert 0.7 <= ends[0] < 1 and 1.7 <= ends[1] < 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("finished"), "budget.max_steps=4")


@pytest.fixture
def again(finished, tmp_path):
    """Return a function that makes the config of the finished run with other words."""
    study = finished.folder.parents[2]
    for name, content in contents(study).items():
        path = tmp_path / study.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return lambda *words: composed(*SMALL, f"runs_dir={tmp_path}", *words)


def executing(jobs):
    """Be a backend: execute the jobs in this process."""
    assert [job.execute(each.store.folder) for each in jobs] == [DONE] * len(jobs)
    return False


def test_a_smaller_or_equal_budget_finds_the_run_done_and_changes_nothing(again, capsys):
    store = freeze(again("budget.max_steps=4"))
    before = contents(store.folder)
    for words in (("budget.max_steps=4",), ("budget.max_steps=2",), ("budget.train_seconds=1e-9",),
                  ("budget.max_steps=9", "budget.train_seconds=1e-9")):  # fmt: skip
        config = again("budget.max_steps=null", *words)
        assert not has_work_left(prepare(config), config)
        sweep.run([config], Backend(1, executing), figure=False)
        assert "1 job, 1 already done" in capsys.readouterr().out
        assert contents(store.folder) == before
    assert store.config().budget.max_steps == 4


def test_what_is_said_of_a_run_that_is_to_be_trained_on(again):
    larger = again("budget.max_steps=9")
    store = freeze(again("budget.max_steps=4"))
    shown = "\n".join(dry_run.show([larger]))
    assert "trains on from 4 steps to 9 steps" in shown and "1 of 1 jobs to run" in shown
    assert status_row(store.folder)["state"] == "done"
    assert has_work_left(prepare(larger), larger)
    row = status_row(store.folder)
    assert (row["state"], row["step"], row["budget"]) == ("preempted", 4, "9 steps")
    assert f"{row['train_seconds']:.1f} / 9 steps" in format_statuses([row])
    sweep.run([larger], Backend(1, executing), figure=False)
    row = status_row(store.folder)
    assert (row["state"], row["step"], row["budget"]) == ("done", 9, "9 steps")
    shown = "\n".join(dry_run.show([again("budget.max_steps=10", "retry=all")]))
    assert "trains on" not in shown  # it is removed and repeated


@pytest.mark.parametrize("words", [(), ("--weights",)])
def test_a_run_without_its_optimizer_or_weights_is_not_trained_on(words, again, tmp_path, capsys):
    smaller, larger = again("budget.max_steps=4"), again("budget.max_steps=9")
    store = freeze(smaller)
    assert main(["clean", "default", "--yes", *words, "--runs-dir", str(tmp_path)]) == DONE
    before = contents(tmp_path)
    why = f"^{store.folder} cannot be trained on: .* `pods clean {store.folder} --yes` removes"
    with pytest.raises(ValueError, match=why):
        sweep.run([larger], Backend(1, executing))
    assert any("refused:" in line and "trained on" in line for line in dry_run.show([larger]))
    assert contents(tmp_path) == before and store.status()["state"] == "done"
    check_budgets([smaller])
    check_budgets([again("budget.max_steps=9", "retry=all")])


def test_a_run_that_was_killed_with_a_larger_budget_follows_the_newest_command(again):
    """It had begun step 5, and step 4 is the last that a checkpoint has."""
    store = freeze(again("budget.max_steps=4"))
    log = store.metrics_path.read_bytes()
    freeze(again("budget.max_steps=9"))
    append(store.metrics_path, [{"step": 5, "train_seconds": 9.0, "nonfinite": None}])
    store.set_status(state="running", step=5)  # and no process runs it
    executing([job_of(again("budget.max_steps=4"))])
    assert store.metrics_path.read_bytes() == log
    assert (store.status()["state"], store.status()["step"]) == ("done", 4)
    executing([job_of(again("budget.max_steps=5"))])
    assert store.status()["step"] == 5 and store.metrics_path.read_bytes().startswith(log)


def test_an_evaluation_that_fails_while_a_run_is_trained_on_is_made_by_the_same_command(
    again, tmp_path, monkeypatch
):
    whole = run(tmp_path / "whole", "budget.max_steps=9")
    larger = again("budget.max_steps=9", "retry=failed")
    finish, failures = evaluations.Unfinished.finish, iter([KeyError("injected")])

    def failing(unfinished):
        for failure in failures:
            raise failure
        finish(unfinished)

    monkeypatch.setattr(evaluations.Unfinished, "finish", failing)
    store = prepare(larger)
    assert job.execute(store.folder) == FAILED
    assert (store.status()["state"], store.status()["step"]) == ("failed", 6)
    executing([job_of(larger)])
    found, expected = science_of(store.folder), science_of(whole.folder)
    assert found[0] == expected[0] and found[1].items() >= expected[1].items()


def job_of(config):
    return sweep.Job(prepare(config), config)


def test_a_run_is_asked_for_with_one_budget(again):
    configs = [again("budget.max_steps=9"), again("budget.max_steps=8")]
    with pytest.raises(ConfigError, match=r"^budget=9 steps \| 8 steps: must be one for each run"):
        sweep.run(configs, Backend(1, executing))
    check_budgets([*configs[:1], again("budget.max_steps=8", "seed=1")])


def test_a_run_that_another_command_ended_earlier_is_not_done(tmp_path):
    config = composed(f"runs_dir={tmp_path}")

    def elsewhere(jobs):
        for each in jobs:
            each.store.set_status(state="done", step=3, train_seconds=29.0)
        return False

    with pytest.raises(sweep.SweepFailed, match=r"preempted: .* not finished"):
        sweep.run([config], Backend(1, elsewhere), figure=False)


# of 8 answers: 0 at the start, 4 at 4 s, 8 from 12 s on
LONG = [(0, 0.0, 0), (1, 4.0, 4), (2, 12.0, 8), (3, 20.0, 8)]


def mixed(folder, *of_the_longer):
    """One seed with the budget of `BASE`, 10 s, and one with another."""
    write_run(folder, A, "study=s", "arm=grpo")
    write_run(folder, LONG, "study=s", "arm=grpo", "seed=1", *of_the_longer)
    return load(folder / "s", run_folders(folder / "s"))


def test_curves_of_different_budgets_are_cut_at_the_smallest_by_hand(tmp_path):
    """At 10 s of 12: 6/8 + 2/8 x 6/8 and 4/8 + 4/8 x 6/8. At 20 s only one run is left."""
    study = mixed(tmp_path, "budget.train_seconds=20")
    assert study.budget == "10 s | 20 s" and study.inconsistencies == []
    shown = apply_filter(study, StudyFilter())
    made = tables(shown)
    assert [*made.runs.final_accuracy] == [0.9375, 0.875] and made.curves.train_seconds.max() == 10
    line = "budgets differ: curves are cut at 10 s, where the first run ends; --until END shows"
    assert any(text.startswith(line) for text in summary_lines(shown, made))

    late = apply_filter(study, StudyFilter(until=16.0))
    assert [*tables(late).runs.final_accuracy] == [1.0]
    assert late.note.startswith("budgets differ: 1 run ends before 16 s, and the others alone")
    early = apply_filter(study, StudyFilter(until=4.0))
    assert [*tables(early).runs.final_accuracy] == [0.75, 0.5] and early.note == ""
    with pytest.raises(ValueError, match="until=21: must be at most 20, where the last run ends"):
        apply_filter(study, StudyFilter(until=21.0))

    by_step = apply_filter(study, StudyFilter(x="steps"))  # at step 2 all is right
    assert [*tables(by_step).runs.final_accuracy] == [1.0, 1.0] and by_step.until == 2


def test_budgets_in_steps_cut_curves_over_steps(tmp_path):
    both = ("budget.train_seconds=null", "checkpoint.every_train_seconds=4")
    write_run(tmp_path, LONG[:3], "study=s", "arm=grpo", "budget.max_steps=2", *both)
    write_run(tmp_path, LONG, "study=s", "arm=pods", "budget.max_steps=3", *both)
    study = load(tmp_path / "s", run_folders(tmp_path / "s"))
    assert apply_filter(study, StudyFilter(x="steps")).until == 2
    over_time = apply_filter(study, StudyFilter())
    assert over_time.until == 12
    rows = compare(over_time).contrasts.set_index("outcome")
    assert rows.loc["final_accuracy", "estimate"] == 0


def test_points_of_the_default_do_not_depend_on_the_budget():
    def points(*words):
        checkpoint = composed(*words).checkpoint
        return checkpoint.every_steps, checkpoint.every_train_seconds

    assert points() == points("budget.train_seconds=600") == (None, 3.0)
    assert points("budget.max_steps=7") == (None, 3.0)
    assert points("checkpoint.every_steps=7") == (7, None)
    by_steps = partial(points, "budget.train_seconds=null")
    assert by_steps("budget.max_steps=7") == by_steps("budget.max_steps=700") == (100, None)
    hub = ("model=hub", "model.hub=some/body", "task=gsm8k", "dry_run=true")
    assert points(*hub) == (None, 1800.0)
    assert points(*hub, "budget.train_seconds=null", "budget.max_steps=7") == (100, None)
