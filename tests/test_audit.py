"""`pods audit`: runs of other trainers read from what their libraries write, and a verdict."""

import csv
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from compose import ROOT
from data_files import write_rows
from foreign_runs import audited, run_log
from scipy import stats

from pods import audit, compare
from pods_lab.audit.axes import axes
from pods_lab.audit.extras import _luck, decisions, seeds_needed

STEPS = range(0, 101, 10)
Rows = list[dict[str, float]]


def records() -> Iterator[tuple[str, int, Rows]]:
    """Six seeds of two methods; numbers are exact in single precision, which TensorBoard keeps."""
    for seed in range(6):
        for method, dt, more in (("grpo", 2.0, 0.0), ("pods", 1.5, 0.125)):
            noise = np.random.default_rng([seed, len(more.hex())]).integers(-9, 10, len(STEPS))
            yield method, seed, [
                {"step": step, "eval_reward": 0.25 + (0.25 + more) * step / 128 + one / 1024,
                 "step_time": dt if step else 0.0, "num_tokens": 64.0 * step}
                for step, one in zip(STEPS, noise.tolist(), strict=True)]  # fmt: skip


def trl(folder: Path, method: str, seed: int, rows: Rows) -> None:
    """A run of transformers: each checkpoint has the log up to it, the last all of it."""
    from transformers import TrainerState

    for last in (len(rows) // 2, len(rows)):
        state = TrainerState()
        for row in rows[:last]:
            train = {key: row[key] for key in ("step_time", "num_tokens", "step")}
            state.log_history += [train, {"eval_reward": row["eval_reward"], "step": row["step"]}]
        state.global_step = rows[last - 1]["step"]
        at = folder / f"{method}-seed{seed}" / f"checkpoint-{state.global_step}"
        at.mkdir(parents=True)
        state.save_to_json(str(at / "trainer_state.json"))
        (at / "config.json").write_text('{"model_type": "llama"}')


def wandb(folder: Path) -> None:
    """Offline runs, each in a folder of its own; the service ends when all is written."""
    import wandb

    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
    at = {"project": "p", "mode": "offline", "dir": str(folder), "settings": settings}
    for method, seed, rows in records():
        config = {"trainer": {"seed": seed}, "method": method}
        run = wandb.init(reinit="create_new", config=config, **at)
        for row in rows:
            run.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])
        run.finish()
    wandb.teardown()


def tensorboard(folder: Path, method: str, seed: int, rows: Rows) -> None:
    from tensorboardX import SummaryWriter

    at = folder / f"{method}-seed{seed}" / "runs" / "Nov25_10-00-00_a"
    with SummaryWriter(str(at)) as writer:
        for row in rows:
            for key in ("eval_reward", "step_time", "num_tokens"):
                writer.add_scalar(key, row[key], row["step"])


TRACKIO_SCRIPT = """
import json, sys, trackio
for method, seed, rows in json.load(sys.stdin):
    trackio.init(project="p", name=f"{method}-seed{seed}", config={"seed": seed})
    for row in rows:
        trackio.log({key: row[key] for key in row if key != "step"}, step=row["step"])
    trackio.finish()
"""


def trackio(folder: Path) -> None:
    """All runs in one database; Trackio takes its folder from the environment as it is imported."""
    environment = os.environ | {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
    content, python = json.dumps(list(records())), [sys.executable, "-c", TRACKIO_SCRIPT]
    subprocess.run(python, input=content.encode(), env=environment, check=True, capture_output=True)


def verl(folder: Path, method: str, seed: int, rows: Rows) -> None:
    """As verl's file logger writes: the step, and the metrics in `data`."""
    lines = [{"step": row["step"], "data": {k: row[k] for k in row if k != "step"}} for row in rows]
    write_rows(folder / f"{method}-seed{seed}" / "metrics.jsonl", lines)


def console(folder: Path, method: str, seed: int, rows: Rows) -> None:
    lines = [f"(TaskRunner pid=7) step:{row['step']} - eval_reward:{row['eval_reward']!r} - "
             f"step_time:np.float64({row['step_time']}) - num_tokens:{row['num_tokens']}"
             for row in rows]  # fmt: skip
    (folder / f"{method}_s{seed}.log").write_text("\n".join(["loading", *lines, "done"]))


def table(folder: Path) -> None:
    rows = [{"run": f"{m} seed {seed}", **row} for m, seed, rows in records() for row in rows]
    write_csv(folder / "export.csv", [[*rows[0]], *(row.values() for row in rows)])


def chart(folder: Path) -> None:
    """As W&B exports a chart."""
    columns = {f"{method} - seed{seed}": rows for method, seed, rows in records()}
    ends = ("", "__MIN", "__MAX")
    header = ["Step", *(f"{run} - eval_reward{end}" for run in columns for end in ends)]
    body = [[step, *(rows[i]["eval_reward"] for rows in columns.values() for _ in ends)]
            for i, step in enumerate(STEPS)]  # fmt: skip
    write_csv(folder / "chart.csv", [header, *body])


def write_csv(path: Path, rows: Iterable[Iterable]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


RUN_BY_RUN = {each.__name__: each for each in (trl, tensorboard, verl, console)}
AT_ONCE = {each.__name__: each for each in (wandb, trackio, table, chart)}


def write(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for run in [()] if name in AT_ONCE else records():
        (AT_ONCE | RUN_BY_RUN)[name](folder, *run)


def outcomes(seconds):
    """Mean and final score of each run over steps, or over seconds (S, 2), by method."""
    found = {"grpo": [], "pods": []}
    for method, _, rows in records():
        x = np.cumsum([row["step_time"] * 10 for row in rows]) if seconds else np.array(STEPS)
        y, end = [row["eval_reward"] for row in rows], 150.0 if seconds else 100.0
        grid = np.unique([*x[x < end], end])
        values = np.interp(grid, x, y)
        found[method].append((np.trapezoid(values, grid) / end, values[-1]))
    return found


TRACKIO = pytest.param("trackio", marks=pytest.mark.slow)  # an extra that CI installs


@pytest.mark.parametrize("name", [*RUN_BY_RUN, "wandb", "table", "chart", TRACKIO])
def test_the_same_runs_give_the_same_numbers_in_every_format(tmp_path, name):
    if name == "trackio":
        pytest.importorskip("trackio")
    write(name, tmp_path)
    study = audit(tmp_path)
    assert study.missing == []  # weights and other files beside the logs are no missing runs
    assert study.x == ("steps" if name == "chart" else "train_seconds")
    assert (study.note, study.inconsistencies) == ("", [])
    over = {one.x: compare(one, draws=100) for one in axes(study)}
    known = ["steps"] if name == "chart" else ["train_seconds", "steps", "tokens"]
    assert [*over] == known  # a chart has no other column
    for x, found in over.items():
        expected = outcomes(seconds=x == "train_seconds")
        for index, row in enumerate(found.contrasts.itertuples()):
            assert (row.series, row.baseline, row.runs) == ("pods", "grpo", 6)
            pods, grpo = (np.array(expected[method])[:, index] for method in ("pods", "grpo"))
            assert row.estimate == pytest.approx((pods - grpo).mean(), rel=1e-6)
            assert row.p == pytest.approx(stats.ttest_rel(pods, grpo).pvalue, rel=1e-6)
        said = "Told apart (paired t test, 6 pairs). "
        assert [line.startswith(said) for line in decisions(found)] == [True, True]


def edited(folder, edit):
    """JSON lines of all runs, of which the lines of grpo seed 0 are changed."""
    for method, seed, rows in records():
        write_rows(folder / f"{method}-seed{seed}.jsonl", rows)
    path = folder / "grpo-seed0.jsonl"
    path.write_text("".join(edit(path.read_text().splitlines(keepends=True))))
    return path


def without_score(lines):
    return [re.sub(r'"eval_reward": [^,]+, ', "", line) for line in lines]


def sixth(pattern, new):
    return lambda lines: [*lines[:5], re.sub(pattern, new, lines[5]), *lines[6:]]


RESUMED = "resumed runs, whose later records count: grpo-seed0 (from step 50 back to 30)"
CUT_OFF = "is cut off before other runs of its method end (50 of 100 steps, 100 of 200 s)"
BACK = "tokens that run backwards, so they are not used: grpo-seed0 (step 50)"
EDITS = {
    "1 lines are cut off or no JSON objects, and left out": lambda lines: [*lines, lines[0][:20]],
    "1 scores are not finite (step 50)": sixth(r'("eval_reward": )[^,]+', r"\1NaN"),
    "1 scores have no step": lambda lines: [*lines, '{"eval_reward": 0.5}\n'],
    CUT_OFF: lambda lines: lines[:6],
    "has no score at a step": without_score,
    BACK: sixth(r"3200.0", "1"),
    RESUMED: lambda lines: [*lines[:6], *lines[3:]]}  # fmt: skip


@pytest.mark.parametrize("line", EDITS)
def test_what_is_wrong_with_a_run_is_one_line(tmp_path, line):
    edited(tmp_path, EDITS[line])
    study = audit(tmp_path)
    noted = line in (RESUMED, BACK)
    assert study.note == (line if noted else "")
    assert study.missing == ([] if noted else [f"grpo-seed0: {line}"])
    assert ("grpo-seed0" in study.complete) != line.startswith(("is cut", "has no"))
    lost = [one.x for one in axes(study) if f"has no {one.x} to compare over" in str(one.missing)]
    assert lost == (["tokens"] if "tokens" in line else [])


def test_of_a_resumed_run_the_later_record_counts_and_a_rotated_log_is_whole(tmp_path):
    def with_zeros(lines):
        zeros = [re.sub(r'("eval_reward": )[^,]+', r"\g<1>0.0", line) for line in lines[3:5]]
        return [*lines[:3], *zeros, *lines[3:]]

    path = edited(tmp_path, with_zeros)
    resumed, lines = audit(tmp_path), path.read_text().splitlines(keepends=True)
    path.with_suffix(".jsonl.1").write_text("".join(lines[:4]))
    path.write_text("".join(lines[4:]))
    for one in (resumed, audit(tmp_path)):
        scores = one.evaluations[one.evaluations.run == "grpo-seed0"].accuracy.tolist()
        assert scores == [row["eval_reward"] for row in next(records())[2]]


def test_the_same_run_twice_a_second_run_of_a_seed_and_runs_without_seed(tmp_path):
    path = edited(tmp_path, list)
    (tmp_path / "grpo-seed9.jsonl").write_text(path.read_text())
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "grpo-seed1.jsonl").write_text(path.read_text().replace("0.2", "0.3"))
    found = audit(tmp_path, method="path:(grpo|pods)")
    assert found.missing == [
        "grpo-seed9: is the same run as grpo-seed0: all 22 numbers are equal",
        "grpo-seed1: has method and seed of again/grpo-seed1, which is as long "
        "(100 and 100 steps)",
    ] and len(found.complete) == 12  # fmt: skip
    path.rename(tmp_path / "grpo-x.jsonl")
    unpaired = audit(tmp_path, method="path:(grpo|pods)")
    assert not unpaired.seeded and "1 of 14 runs have no seed" in unpaired.note
    assert {*compare(unpaired, draws=9).contrasts.design} == {"unpaired"}


def test_test_sets_are_told_apart_and_times_of_day_begin_with_the_run(tmp_path):
    for method, seed, rows in records():
        for row in rows:
            row |= {"eval_set": "ab"[seed > 0], "wall_time": 2e9 + row["step"] * (seed or 1)}
        rows[4]["wall_time"] -= 1e3 * (seed == 5)  # that clock runs backwards
        write_rows(tmp_path / f"{method}-seed{seed}.jsonl", rows)
    found = audit(tmp_path, seconds="wall_time")
    assert found.inconsistencies == ["different test sets: b (10 runs), a (2 runs)"]
    back = "seconds that run backwards, so they are not used: grpo-seed5 (step 40), pods-seed5"
    assert back in found.note and found.missing == []
    ends = found.evaluations.groupby(["seed"]).train_seconds.max()
    assert ends.tolist()[:5] == [100, 100, 200, 300, 400] and np.isnan(ends[5])
    assert [one.x for one in axes(found)] == ["steps", "tokens", "train_seconds"]  # not of all runs


def test_damaged_files_are_named_and_what_is_no_log_is_counted(tmp_path):
    write("verl", tmp_path / "logs")
    named = ("a.db", "b.wandb", "c.jsonl", "e.csv", "tfevents.1", "trainer_state.json")
    for name in (*named, "f.bin", "config.json"):
        (tmp_path / name).write_bytes(b"x" * 40)
    found = audit(tmp_path).missing
    assert [line.split(": not read as ")[0] for line in found] == [str(tmp_path / n) for n in named]
    assert found[2].endswith("lines: no row")


def test_rows_without_a_run_are_told_apart_by_method_and_seed(tmp_path):
    lines = [f"{method},{seed},{step},{rows[at]['eval_reward']}" for method, seed, rows in records()
             for at, step in enumerate(STEPS)]  # fmt: skip
    (tmp_path / "all.csv").write_text("\n".join(["method,seed,iter,accuracy", *lines]))
    study = audit(tmp_path)
    assert (study.note, len(study.complete), study.seeded) == ("", 12, True)
    assert [row.runs for row in compare(study, draws=9).contrasts.itertuples()] == [6, 6]
    for name in ("identity.json", "metrics.jsonl"):
        write_rows(tmp_path / "ours" / name, [{"step": 1, "accuracy": 0.5}])
    assert audit(tmp_path).missing == [] and len(audit(tmp_path).runs) == 12


def test_repeats_of_a_checkpoint_are_averaged_and_a_run_without_method_is_named(tmp_path):
    blocks = {f"checkpoint-{at}": {"gsm8k": {"acc": [0.25, 0.5], "text": ["a"]}} for at in (20, 3)}
    for name in ("base", "Run-grpo-1", "Run-grpo-2"):
        blocks["checkpoint-3"]["gsm8k"]["acc"][0] += 0.125
        (tmp_path / f"{name}.json").write_text(json.dumps(blocks))
    study = audit(tmp_path, method="path:Run-([a-z]+)", score="gsm8k/acc")
    assert study.missing == ["base: has no method"] and not study.seeded
    rows = study.evaluations[study.evaluations.run == "Run-grpo-2"]
    assert rows[["step", "accuracy"]].to_numpy().tolist() == [[3, 0.5625], [20, 0.375]]


def test_a_csv_row_with_too_many_cells_is_said_and_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a-seed0.csv").write_text("step,accuracy\n1,0.5\n2,0.75,\n3,0.5,0.25\n")
    (tmp_path / "a-seed1.csv").write_text("step,accuracy,accuracy\n1,0.5,0.25\n")
    study = audit(tmp_path)
    assert study.evaluations.accuracy.tolist() == [0.5, 0.75]
    twice, more = study.missing
    assert twice.endswith("a-seed1.csv: not read as CSV: two columns have one name")
    assert more == "a-seed0: 1 rows have more cells than the header, and are left out"


def test_thousands_of_runs_are_a_few_lines(tmp_path):
    for run in range(2000):
        rows = [{"step": 1, "reward": run}] * (run > 99)
        write_rows(tmp_path / f"m{run % 2}-seed{run // 2}.jsonl", rows)
    study = audit(tmp_path)
    assert len(study.missing) == 100 and len(study.complete) == 1900
    assert {*study.runs.unit} == {"score"} and len(next(axes(study)).missing) == 100
    with pytest.raises(ValueError, match=r"makes 1900 methods: --by .* must make 30 at most"):
        audit(tmp_path, method="path:(m.-seed[0-9]+)")


def test_noise_alone_makes_a_best_checkpoint():
    draws = np.random.default_rng(0).normal(0.5, 0.01, (200, 10))
    by_noise = np.array([_luck(scores) for scores in draws]).mean(0)
    assert by_noise == pytest.approx([0.01, 0.01 * 1.54], rel=0.3)  # E max of ten normals: 1.54 sd


@pytest.mark.parametrize(("scores", "above"), [
    ([0, 0, 0, 0.9, 0.3, 0.3, 0.3], 0.9 - 0.15),  # around it 0, 0, 0.3, 0.3
    ([0.9, 0.1, 0.2, 0.3, 0.4, 0, 0], 0.9 - 0.0),  # on a line through the four after it
    ([0, 0, 0.4, 0.3, 0.2, 0.1, 0.9], 0.9 - 0.0),  # and before it
])  # fmt: skip
def test_the_luck_of_a_best_checkpoint_by_hand(scores, above):
    assert _luck(np.array(scores))[1] == pytest.approx(above)


def test_seeds_that_are_needed_by_hand():
    # t(0.975) + t(0.8) is 3.353, 3.195 at 6 and 8 degrees of freedom, of 2 x 4 and 2 x 5 runs,
    # against 1.5 * 4 ** 0.5 and 1.5 * 5 ** 0.5 = 3.354; of 5 and 6 pairs 3.717 and 3.490
    assert seeds_needed(1.5, 1.0, paired=False) == 5
    assert seeds_needed(1.5, 1.0) == 6


def test_runs_without_a_seed_are_numbered_within_their_method():
    rows = [{"step": step, "accuracy": 0.5} for step in range(3)]
    found = audited([run_log(f"{name}-run", rows) for name in ("a", "b x", "b y", "a x")],
                    method="name:(a|b)")  # fmt: skip
    numbers = {"a-run": 0, "b x-run": 0, "b y-run": 1, "a x-run": 1}
    assert dict(zip(found.table.run, found.table.seed, strict=True)) == numbers


@pytest.mark.parametrize("paired", [True, False])
def test_so_many_seeds_find_a_difference_four_times_in_five(paired):
    n = seeds_needed(0.7, 1.0, 2, paired)
    df, at = (n - 1) * (2 - paired), stats.t.ppf(1 - 0.05 / 4, (n - 1) * (2 - paired))
    power = stats.nct.sf(at, df, 0.7 * n**0.5)
    assert power == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ((8, 8), "About {0} more seeds of each would show"),
        ((8, 11), "About {1} more seeds of pods and {0} more seeds of grpo would show"),
    ],
)
def test_seeds_that_are_there_are_not_asked_for_again(runs, said):
    """The differences are 1 and -0.6 points in turn, and eight pairs are there."""
    logs = []
    for method, count in zip(("grpo", "pods"), runs, strict=True):
        for seed in range(count):
            score = 0.5 + 0.01 * seed + (method == "pods") * (0.01 if seed % 2 else -0.006)
            logs.append(run_log(f"{method}-seed{seed}", [{"step": 1, "accuracy": score}]))
    found = compare(audited(logs).study, draws=9)
    needed = seeds_needed(0.002, np.std([0.01, -0.006] * 4, ddof=1))
    lines = [*decisions(found)]
    lacking = [needed - count for count in runs]
    assert needed > 100 and lines and all(said.format(*lacking) in line for line in lines)


def test_verdicts_on_simulated_studies_are_right_as_often_as_they_say():
    """Few studies here; experiments/audit/coverage.csv has many."""
    coverage = runpy.run_path(str(ROOT / "experiments/audit/coverage.py"))
    found = coverage["simulate"]("8 seeds, no difference", 40)
    assert found["coverage"] >= 0.85 and found["told_apart"] <= 0.15
