"""Curves and tables against numbers worked out by hand, on run folders that the test writes."""

import json
from dataclasses import replace
from itertools import combinations
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
import yaml
from compose import composed
from data_files import write_rows
from rows import every
from running import contents
from studies import BASE, ENVIRONMENT, A, B, write_run

from pods.analysis.draw import draw, summary_lines
from pods.analysis.figures import specs as figures
from pods.analysis.figures import style
from pods.analysis.loading.load import load
from pods.analysis.loading.run_reader import pass_at_k
from pods.analysis.loading.series_names import series_names, varied
from pods.analysis.numbers.curves import EVALUATED, _step_means, curves
from pods.analysis.numbers.outcomes import RunCurve, on_grid
from pods.analysis.numbers.tables import readable, slow_runs, tables
from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import CONF
from pods.runs.attempts import new_attempt
from pods.runs.freeze import freeze
from pods.runs.identity import identity, identity_keys
from pods.runs.store import run_folders


def test_a_study_by_hand(tmp_path):
    stores = [write_run(tmp_path, A, "seed=0"), write_run(tmp_path, B, "seed=1")]
    study = load(tmp_path / "default", [store.folder for store in stores])
    for measure in ("accuracy", "both"):  # all are in form
        assert study.evaluations[measure].tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]
    assert study.evaluations.repeats.tolist() == [2] * 5
    # at last run b is right in the first of two repeats of each question
    assert tables(study).runs[["pass@1", "pass@2"]].to_numpy().tolist() == [[1.0, 1.0], [0.5, 1.0]]
    curve = curves(study)
    assert {*curve.metric} == {*EVALUATED, "pass@1", "pass@2", "reward"} - {"lenient"}
    accuracy = curve[curve.metric == "accuracy"]
    assert accuracy.train_seconds.iloc[-1] == 10.0  # where the first run ends
    last = accuracy.iloc[-1]  # a: 0.75 + 0.25 * 6 / 8 = 0.9375; b: 0.5
    assert last["mean"] == pytest.approx((0.9375 + 0.5) / 2)
    assert last.stderr == pytest.approx((0.9375 - 0.5) / 2)  # sd / sqrt(2) of two values
    assert (accuracy.runs == 2).all()
    reward = curve[curve.metric == "reward"].set_index("train_seconds")
    # steps end at 4 s (a: 0.1), 1 s and 10 s (b: 0.1, 0.2); a is over after 4 s
    found = reward["mean"].loc[[0.0, 1.0, 2.0, 4.0, 5.0, 10.0]].tolist()
    assert found == pytest.approx([0.1, 0.1, 0.15, 0.15, 0.2, 0.2])
    assert study.runs.prompts.tolist() == [2, 2]
    row = tables(study).summary.iloc[0]
    area_a = (4 * (0.25 + 0.75) / 2 + 6 * (0.75 + 0.9375) / 2) / 10
    outcomes = (row.mean_accuracy, row.final_accuracy)
    assert outcomes == pytest.approx(((area_a + 0.25) / 2, (0.9375 + 0.5) / 2))
    assert (row.seconds, row.seconds_per_step) == pytest.approx((10.0, (12 / 2 + 10 / 2) / 2))
    assert row["seconds/generate"] == pytest.approx(0.75 * row.seconds_per_step)


def test_a_runs_row_is_of_the_evaluation_nearest_to_the_end_and_of_the_mean_of_its_steps(tmp_path):
    """Evaluations at 0, 6 and 11 s, of which 11 is nearest to 10; steps of 6 and 5 s, and of 1."""
    store = write_run(tmp_path, [(0, 0.0, 2), (1, 6.0, 4), (2, 11.0, 6)])
    study = load(tmp_path / "default", [store.folder])
    for until, step in ((10.0, 2), (8.0, 1), (2.0, 0)):
        assert tables(replace(study, until=until)).runs.steps.tolist() == [step]
    store = write_run(tmp_path, [(0, 0.0, 2), (3, 10.0, 6)], "study=uneven")  # 1, 1 and 8 s
    [row] = tables(load(tmp_path / "uneven", [store.folder])).runs.to_dict("records")
    assert row["seconds/update"] == pytest.approx((0.25 + 0.25 + 2) / 3)
    assert row["seconds/generate"] == pytest.approx((0.75 + 0.75 + 6) / 3)


def test_pass_at_k_is_the_share_of_all_subsets_that_have_a_right_answer():
    rng = np.random.default_rng(0)
    for repeats in range(1, 9):
        correct = rng.uniform(size=(repeats, 40)) < rng.uniform(size=40)
        found = pass_at_k(correct)
        assert [*found] == [f"pass@{k}" for k in sorted({1, 2, 5, repeats}) if k <= repeats]
        for name, share in found.items():
            subsets = combinations(correct, int(name[5:]))
            assert share == pytest.approx(np.mean([np.any(some, 0) for some in subsets]), rel=1e-12)
        assert found["pass@1"] == correct.mean()  # to the last bit


def test_steps_between_grid_points_run_by_run():
    """Averaging all runs of an arm at once equals averaging them in turn, to the last bit."""
    rng, grid, parts = np.random.default_rng(0), np.linspace(0.0, 9.0, 7), []
    for place in rng.permutation(5):
        times = np.sort(rng.uniform(0, 6 + place, 4 * place + 1))
        reward = np.where(rng.uniform(size=len(times)) < 0.2, np.nan, rng.normal(size=len(times)))
        parts.append(pd.DataFrame({"run": f"run{place}", "train_seconds": times, "reward": reward,
                                   "rollouts": rng.integers(9, size=len(times))}))  # fmt: skip
    for metric in ("reward", "rollouts"):
        found = _step_means(pd.concat(parts), metric, grid, "train_seconds")
        wanted = []
        for run in sorted(parts, key=lambda run: run.run.iloc[0]):
            place = np.searchsorted(grid, run.train_seconds)
            wanted.append(run[metric].groupby(place).mean().reindex(range(7)).bfill())
        assert np.array_equal(found, np.stack(wanted), equal_nan=True)
    run = RunCurve("run", "pods", 0, np.array([1.0, 3.0]), np.arange(2.0), np.array([0.0, 1.0]))
    [found] = on_grid([run], np.array([0.0, 2.0, 3.0, 4.0]))  # nothing is extrapolated
    assert np.isnan(found[[0, 3]]).all() and found[1:3].tolist() == [0.5, 1.0]


def runs_of(*words):
    configs = [composed(*one.split()) for one in words]
    return [(config, identity_keys(config)) for config in configs]


def named(*words):
    return series_names(runs_of(*words))


def test_curves_are_kept_apart_by_every_science_key_that_differs():
    found = named("arm=pods", "arm=pods seed=1", "arm=grpo", "update.lr=1e-3")
    assert found[0] == found[1] == "pods 64→16, update.lr=0.0001"
    assert found[2:] == ["grpo 16→16, update.lr=0.0001", "max_variance 64→16, update.lr=0.001"]
    assert named("arm=pods", "arm=grpo") == ["pods 64→16", "grpo 16→16"]
    names = [f"pods 64→16, sampler.rule={rule}" for rule in ("max_variance", "random")]
    assert named("arm=pods", "arm=pods sampler=random") == names
    assert named("", "arm=pods seed=1") == ["pods 64→16"] * 2  # one config, with and without label


def test_an_arms_label_implies_what_its_file_sets_and_no_more():
    """Words that change what an arm selects are a difference as any other, shown beside labels."""
    arms = ("arm=grpo", "arm=pods_greso", "arm=cppo", "arm=grpo_wide")
    assert named(*arms) == ["grpo 16→16", "pods_greso 64→16", "cppo 64→16", "grpo_wide 16→16"]
    assert named(*arms[:3], "arm=pods prompts=mopps") == [
        "grpo 16→16, prompts.selector=uniform", "pods_greso 64→16",
        "cppo 64→16, prompts.selector=uniform", "pods 64→16, prompts.selector=mopps",
    ]  # fmt: skip
    changed = named("arm=grpo", "arm=cppo advantage.baseline=leave_one_out")
    assert changed == ["grpo 16→16, advantage.baseline=selected",
                       "cppo 64→16, advantage.baseline=leave_one_out"]  # fmt: skip
    names = [f"max_variance 64→16, prompts.selector={name}" for name in ("uniform", "greso")]
    assert named("prompts=uniform", "prompts=greso") == names


OWN_ARM = """# @package _global_
defaults:
  - override /prompts: mopps
  - override /sampler: random
arm: mine
update: {lr: 3.0e-4, clip_high: "${.clip_low}"}
advantage: {eps: "${update.lr}"}
prompts_per_step: 1
"""


def test_an_arm_of_ones_own_is_its_name(tmp_path):
    """Without the record of its file, which a config had not in the past, its keys are shown."""
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm/mine.yaml").write_text(OWN_ARM)
    config = validate(compose([f"hydra.searchpath=[file://{tmp_path}]", "arm=mine"]))
    grpo = composed("arm=grpo")
    pair = [(config, identity(config)), (grpo, identity(grpo))]
    assert series_names(pair) == ["mine 64→16", "grpo 16→16"]
    assert varied(pair) == [{}, {}]
    unknown = (replace(config, label_settings=[]), identity_keys(config))
    keys = "advantage.eps={}, prompts.selector={}, prompts_per_step={}, update.lr={}"
    assert series_names([unknown, *runs_of("arm=grpo")]) == [
        f"mine 64→16, {keys.format(0.0003, 'mopps', 1, 0.0003)}",
        f"grpo 16→16, {keys.format(0.0001, 'uniform', 2, 0.0001)}",
    ]


def test_what_varies_is_a_column_of_every_run():
    """A column is what the name of some curve shows; arm, n, m and seed have their own."""
    words = ("arm=pods update.lr=1e-3", "arm=pods seed=1", "arm=grpo seed=1", "arm=pods_greso")
    lrs = (1e-3, 1e-4, 1e-4, 1e-4)
    assert varied(runs_of(*words)) == [{"update.lr": lr} for lr in lrs]
    assert varied(runs_of("arm=pods", "arm=grpo", "arm=grpo seed=1")) == [{}] * 3
    found = varied(runs_of("arm=pods", "arm=pods prompts=mopps", "arm=grpo"))
    assert [of["prompts.selector"] for of in found] == ["uniform", "mopps", "uniform"]


def test_what_the_command_line_sets_is_no_label_setting(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("Answer.")
    words = ["task=gsm8k", "model=qwen2_5_3b", "reproduction=faithful", "dry_run=true"]
    as_filed = validate(compose(words)).label_settings
    with_own = validate(compose([*words, f"task.system={own}"])).label_settings
    assert any(setting.startswith("task.system=") for setting in as_filed)
    assert with_own == as_filed


def test_of_an_arm_and_a_reproduction_that_set_one_key_the_latter_decides():
    words = ["arm=rloo", "experiment=gsm8k_h100x8", "reproduction=faithful", "dry_run=true"]
    config = validate(compose(words))
    assert config.update.aggregation == "group_token_mean"  # of rloo it is dr_grpo
    assert "update.aggregation=group_token_mean" in config.label_settings


def test_label_settings_are_what_hydra_composes():
    def check(arm):
        config = validate(compose([f"arm={arm}"]))
        recorded = dict(setting.split("=") for setting in config.label_settings)
        for key, value in recorded.items():
            assert str(attrgetter(key)(config)) == value
        file = yaml.safe_load((CONF / f"arm/{arm}.yaml").read_text())
        options = {key.removeprefix("override /") for line in file.pop("defaults")
                   for key in line}  # fmt: skip
        keys = {f"{group}.{key}" for group, values in file.items() if isinstance(values, dict)
                for key in values}  # fmt: skip
        assert keys <= set(recorded)
        assert {key.partition(".")[0] for key in recorded} >= options

    every(sorted((path.stem,) for path in (CONF / "arm").glob("*.yaml")), check)


def test_a_study_of_no_steps(tmp_path):
    store = write_run(tmp_path, [(0, 0.0, 2)], "budget.max_steps=0")
    study = load(tmp_path / "default", [store.folder])
    assert "0.250" in next(summary_lines(study, tables(study)))
    assert all(spec.draw() for spec in figures.figure_specs(study, tables(study)))


def panels(study):
    """What the axes of the figure on everything but accuracy are called."""
    drawn = {spec.name: spec for spec in figures.figure_specs(study, tables(study))}
    return [axes.get_ylabel() for axes in drawn["training"].draw().axes]


def test_the_authors_grader_has_columns_of_its_own(tmp_path):
    """One more of 8 answers than are right; at the end, two more have no number."""
    unanswered = ("none", "none", "timeout")
    stores = [write_run(tmp_path, points, f"seed={seed}", lenient=1, unanswered=unanswered)
              for seed, points in enumerate((A, B))]  # fmt: skip
    study = load(tmp_path / "default", [store.folder for store in stores])
    found = study.evaluations
    assert found.lenient.tolist() == [3 / 8, 7 / 8, 1.0, 1 / 8, 5 / 8]
    assert found.accuracy.tolist() == found.both.tolist() == [0.25, 0.75, 1.0, 0.0, 0.5]
    assert found.no_answer.tolist() == [2 / 8, 2 / 8, 0, 2 / 8, 2 / 8]
    assert found.timeouts.tolist() == [1 / 8, 0, 0, 1 / 8, 1 / 8]
    made = tables(study)
    assert made.runs.lenient.tolist() == [1.0, 5 / 8]
    assert made.runs[["no_answer", "timeouts"]].to_numpy().tolist() == [[0, 0], [2 / 8, 1 / 8]]
    [row] = made.summary.to_dict("records")
    assert (row["lenient"], row["no_answer"], row["timeouts"]) == (13 / 16, 1 / 8, 1 / 16)
    curve = made.curves[made.curves.metric == "lenient"]
    assert curve["mean"].iloc[0] == (3 / 8 + 1 / 8) / 2 and (curve.runs == 2).all()
    shown = readable(made.summary, study).iloc[0]
    assert shown.lenient == "0.812" and shown["timeouts"] == "0.062"
    assert panels(study)[0] == style.LABELS["lenient"]


def test_a_legend_says_how_many_seeds_a_band_is_of(tmp_path):
    """In a part of the curve all runs are there, in its rest one: it is a band nevertheless."""
    folders = [write_run(tmp_path, A, f"seed={seed}").folder for seed in (0, 1, 2)]
    study = load(tmp_path / "default", folders)
    for runs, title in (([3, 3], f"{style.BAND}, 3 seeds"), ([1, 1], "1 seed"),
                        ([1, 3], f"{style.BAND}, 1 to 3 seeds")):  # fmt: skip
        table = pd.DataFrame({"series": "max_variance 64→16", "runs": runs})
        assert style.legend_texts(study, table, style.BAND)[0] == title


def test_a_metric_that_never_changes_has_no_panel(tmp_path):
    """Every answer has one length and the format, and four of eight are right at all times."""
    changing = load(tmp_path / "a/default", [write_run(tmp_path / "a", A).folder])
    assert panels(changing) == [style.LABELS["both"], style.LABELS["reward"]]
    drawn = {spec.name: spec for spec in figures.figure_specs(changing, tables(changing))}
    assert {*drawn["training"].table.metric} == {"both", "reward"}

    store = write_run(tmp_path / "b", [(0, 0.0, 4)], "budget.max_steps=0")
    flat = load(tmp_path / "b/default", [store.folder])
    assert "training" not in {spec.name for spec in figures.figure_specs(flat, tables(flat))}


def test_the_right_format_and_the_right_answer_are_counted_apart(tmp_path):
    """Of 8 answers 2 are right; one of those and one of the others are not in form."""
    store = write_run(tmp_path, A)
    path = store.evaluation_path(0)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in (rows[1], rows[7]):
        row["format"], row["length"] = False, 9
    write_rows(path, rows)
    first = load(tmp_path / "default", [store.folder]).evaluations.iloc[0]
    assert (first.accuracy, first.format, first.both) == (2 / 8, 6 / 8, 1 / 8)
    assert first.length == (6 * 5 + 2 * 9) / 8


def test_a_run_with_something_missing_is_in_no_mean_and_a_seed_that_an_arm_lacks_is_missing(
    tmp_path,
):
    whole, late = write_run(tmp_path, A), write_run(tmp_path, B, "seed=1")
    late.evaluation_path(2).unlink()
    study = load(tmp_path / "default", [whole.folder, late.folder], allow=True)
    assert study.missing == ["max_variance 64→16 seed 1 step 2: no evaluation"]
    made = tables(study)
    assert "complete runs: 1; missing: 1" in "".join(summary_lines(study, made))
    assert study.evaluations.step.tolist() == [0, 1, 2, 0]
    [row] = made.summary.to_dict("records")
    # a alone, until 12 s: (4 x 0.5 + 8 x 0.875) / 12
    assert (row["runs"], row["seconds"], row["final_accuracy"]) == (1, 12.0, 1.0)
    assert row["mean_accuracy"] == pytest.approx(0.75) and row["steps"] == 2
    assert row["seconds_per_step"] == 6.0 and row["seconds/update"] == 1.5
    words = (["arm=pods"], ["arm=pods", "seed=1"], ["arm=grpo"])
    folders = [write_run(tmp_path / "arms", A, *each).folder for each in words]
    end = f"seed 1: never run\none run is alone: `pods clean {folders[2]} --yes` removes it"
    with pytest.raises(ValueError, match=f"sweep's command makes a run.*\ngrpo 16→16 {end}"):
        load(tmp_path / "arms" / "default", folders)
    study = load(tmp_path / "arms" / "default", folders, allow=True)
    assert study.missing == ["grpo 16→16 seed 1: never run"]
    config = (folders[0] / "config.yaml").read_bytes()
    (folders[0] / "config.yaml").write_text("seed: [")  # which hides a run, and makes none odd
    with pytest.raises(ValueError) as refusal:
        load(tmp_path / "arms" / "default", folders)
    assert str(refusal.value).count("\n") == 1 and "config.yaml is damaged" in str(refusal.value)
    (folders[0] / "config.yaml").write_bytes(config)
    words = (f"runs_dir={tmp_path / 'arms'}", *BASE, "seed=1")
    pending = [freeze(composed(*words, *more)).folder for more in (["arm=grpo"], ["update.lr=0.5"])]
    study = load(tmp_path / "arms" / "default", [*folders, *pending])  # seed 1 is no gap
    assert study.missing == [
        f"{name} seed 1 never began: its command runs it, `pods clean {folder} --yes` removes it"
        for name, folder in zip(("grpo 16→16", "max_variance 64→16"), pending, strict=True)
    ]
    assert list(study.runs.series.unique()) == ["grpo 16→16", "pods 64→16"]


def test_the_start_of_a_run_is_that_of_its_first_attempt(tmp_path):
    """So that whether a prediction was committed before the runs can be seen from their table."""
    one, another = [write_run(tmp_path, A, f"seed={seed}") for seed in (0, 1)]
    times = ["2026-11-28T18:00:00+00:00", "2026-11-28T19:30:00+00:00"]
    new_attempt(one)
    for number, time in enumerate(times, 1):
        path = one.folder / f"attempts/{number:03d}/environment.json"
        path.write_text(json.dumps(ENVIRONMENT | {"started": time}))
    list(draw(tmp_path / "default", [one.folder, another.folder]))
    table = pd.read_csv(tmp_path / "default/figures/runs.csv").set_index("seed")
    assert table.started[0] == times[0] and pd.isna(table.started[1])  # recorded before it was


def test_a_column_that_no_run_or_series_has_is_left_out(tmp_path):
    """A task without the authors' grader, and every answer right or wrong."""
    grpo = write_run(tmp_path, A, "arm=grpo").folder
    study = load(tmp_path / "default", [grpo])
    made = tables(study)
    for table in (study.evaluations, made.runs, made.summary):
        assert "lenient" not in table
    for table in (made.runs, made.summary):
        assert not {"no_answer", "timeouts"} & {*table}
    assert "lenient" not in set(made.curves.metric)
    assert not {"lenient", "no_answer", "timeouts"} & {*readable(made.summary, study)}
    assert style.LABELS["lenient"] not in panels(study)
    study = load(tmp_path / "default", [write_run(tmp_path, A, "arm=pods", lenient=0).folder, grpo])
    made = tables(study)
    assert set(made.curves[made.curves.metric == "lenient"].series) == {"pods 64→16"}
    theirs, ours = made.summary.lenient
    assert ours == 1.0 and np.isnan(theirs)
    assert readable(made.summary, study).lenient.tolist() == ["", "1.000"]


def test_figures_and_tables_are_written_with_stable_bytes(tmp_path):
    folders = [write_run(tmp_path, A, f"seed={s}", f"arm={arm}").folder
               for s in (0, 1) for arm in ("pods", "random", "grpo", "grpo_ga")]  # fmt: skip
    study, place = tmp_path / "default", tmp_path / "default" / "figures"
    text = list(draw(study, folders, drawn="all"))
    assert "pods 64→16" in text[0] and "accuracy_vs_time.png" in text[1]
    assert text[2] == "also: difference, step_cost, training, rules"
    first = contents(place)
    for name in ("accuracy_vs_time", "difference", "step_cost", "training", "rules"):
        for suffix in (".png", ".pdf", ".svg", ".csv", ".runs.csv", ".json"):
            assert first[f"{name}{suffix}"], name
    assert list(draw(study, folders)) == text[:2]
    assert contents(place) == first
    about = json.loads(first["accuracy_vs_time.json"])
    assert {run["run"] for run in about["runs"]} == {folder.name for folder in folders}
    assert about["runs"][0]["versions"] == "torch 2.13.0" and about["missing"] == []
    drawn = pd.read_csv(place / "rules.csv")
    assert drawn.rule.tolist() == ["max_variance", "random"]
    assert drawn.mean_accuracy_mean.tolist() == [0.75] * 2  # (4 * 0.5 + 8 * 0.875) / 12


def test_scaling_figures_include_the_runs_that_keep_everything(tmp_path):
    for by, sizes in (("n", ["16_m16", "32_m16", "64_m16"]), ("m", ["64_m64", "64_m16", "64_m4"])):
        folders = [write_run(tmp_path / by, A, f"nm=n{size}").folder for size in sizes]
        study = load(tmp_path / by / "default", folders)
        drawn = {spec.name: spec for spec in figures.figure_specs(study, tables(study))}
        drawn[f"{by}_scaling"].draw()
        expected = sorted(int(size.split("_m")["nm".index(by)]) for size in sizes)
        assert drawn[f"{by}_scaling"].table[by].tolist() == expected


def test_runs_that_waited_for_the_cpu_are_named_in_one_line(tmp_path):
    for seed, busy in enumerate((0.98, 0.52, None)):
        write_run(tmp_path, A, f"seed={seed}", busy=busy)
    study = load(tmp_path / "default", run_folders(tmp_path / "default"))
    assert study.runs.cpu_share.tolist()[:2] == pytest.approx([0.98, 0.52])
    [line] = slow_runs(study)
    assert "max_variance 64→16 seed 1 (52 %): other" in line and "seed 0" not in line
    assert line in list(summary_lines(study, tables(study)))


def test_many_runs_that_waited_for_the_cpu_are_counted(tmp_path):
    """A sentence on twelve runs named each of them, in some 800 characters."""
    for seed, busy in enumerate((0.98, 0.52, 0.761, 0.6, 0.48)):
        write_run(tmp_path, A, f"seed={seed}", busy=busy)
    [line] = slow_runs(load(tmp_path / "default", run_folders(tmp_path / "default")))
    assert "training time of 4 of 5 runs (lowest: 48 %): other processes" in line
