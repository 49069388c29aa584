"""Arms are ranked: values, order, tests and what is said of them, by hand or by scipy."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from studies import Point, write_run
from test_compare import ramps, study

from pods.analysis.comparison.compare import compare
from pods.analysis.comparison.formatting import as_json, format_comparison
from pods.analysis.comparison.ranking import MEAN, criterion, natural, rank
from pods.analysis.comparison.ranking_text import format_ranking, verdict
from pods.cli.main import main

FINAL = criterion("final")
# final accuracies of four seeds
LEVELS = {
    "pods 12→3": (0.70, 0.72, 0.71, 0.73),
    "pods 12→6": (0.80, 0.84, 0.81, 0.83),
    "pods 24→12": (0.79, 0.84, 0.80, 0.83),
    "grpo 12→12": (0.50, 0.53, 0.51, 0.54),
    "pods 24→3": (0.60, 0.66, 0.63, 0.61),
}
STUDY = study({name: ramps(*levels) for name, levels in LEVELS.items()})


def test_values_order_and_tests_by_scipy():
    table = rank(STUDY, FINAL).table.set_index("series")
    assert list(table.index) == [
        *("pods 12→6", "pods 24→12", "pods 12→3", "pods 24→3", "grpo 12→12")
    ]
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    assert table.value.tolist() == pytest.approx([0.82, 0.815, 0.715, 0.625, 0.52])
    assert table.stderr["pods 12→6"] == pytest.approx(stats.sem(LEVELS["pods 12→6"]))
    best, ps = LEVELS["pods 12→6"], {}
    for name in table.index[1:]:
        test = stats.ttest_rel(LEVELS[name], best)
        low, high = test.confidence_interval(0.95)
        found = table.loc[name, ["estimate", "low", "high", "p"]].tolist()
        ps[name] = test.pvalue
        assert found == pytest.approx([np.subtract(LEVELS[name], best).mean(), low, high, ps[name]])
    adjusted = 0.0
    for left, name in zip((4, 3, 2, 1), sorted(ps, key=ps.get), strict=True):  # Holm, by hand
        adjusted = max(adjusted, left * ps[name])
        assert table.p_holm[name] == pytest.approx(min(adjusted, 1))
    assert np.isnan(table.p_holm["pods 12→6"])
    assert table.against_best.tolist() == ["best", "within noise", "worse", "worse", "worse"]


def test_mean_is_the_area_under_the_curve():
    values = rank(STUDY, MEAN).table.value
    assert values.tolist() == pytest.approx([0.41, 0.4075, 0.3575, 0.3125, 0.26])


def test_holm_decides_and_not_the_single_interval():
    # differences of 3 pairs: mean -0.05, sd 0.01: t = 8.66, p = 0.0131 alone, 8 x p = 0.105
    arms = {f"pods {n}→4": ramps(0.74, 0.75, 0.76) for n in range(10, 18)}
    ranking = rank(study({**arms, "pods 8→4": ramps(0.8, 0.8, 0.8)}), FINAL)
    others = ranking.table.iloc[1:]
    assert (others.high < 0).all() and others.p.tolist() == pytest.approx(8 * [0.013072], rel=1e-3)
    assert others.p_holm.tolist() == pytest.approx(8 * [0.104578], rel=1e-3)
    assert ranking.found("within noise") == [f"pods {n}→4" for n in range(10, 18)]  # not by text
    two = rank(study({"pods 8→4": ramps(0.8, 0.8, 0.8), "pods 10→4": arms["pods 10→4"]}), FINAL)
    assert two.found("worse") == ["pods 10→4"]


def test_arms_of_unequal_seeds_get_welchs_test():
    seeds = {"pods 8→4": [0, 1, 2], "grpo 4→4": [3, 4, 5]}
    ends = {"pods 8→4": (0.7, 0.8, 0.9), "grpo 4→4": (0.4, 0.41, 0.45)}
    made = study({name: ramps(*levels) for name, levels in ends.items()}, seeds=seeds)
    row = rank(made, FINAL).table.iloc[1]
    test = stats.ttest_ind(ends["grpo 4→4"], ends["pods 8→4"], equal_var=False)
    assert (row.design, row.p) == ("unpaired", pytest.approx(test.pvalue))


def test_one_run_per_arm_is_ranked_and_not_tested():
    made = study({"pods 12→12": ramps(0.5), "pods 12→3": ramps(0.5), "pods 12→6": ramps(0.6)})
    ranking = rank(made, FINAL)
    assert ranking.table.series.tolist() == [
        "pods 12→6",
        "pods 12→3",
        "pods 12→12",
    ]  # ties by 3 < 12
    assert ranking.found("not tested") == ["pods 12→3", "pods 12→12"]
    assert ranking.table[["stderr", "low", "p_holm"]].isna().all(axis=None)
    said = format_ranking(ranking, made)
    assert said.startswith(
        "pods 12→6 has the highest final accuracy, 60.00 % (1 run); with one run per arm nothing "
        "can be tested."
    )
    assert "winner's curse" in said and "interval" not in said and "nan" not in said


# Times


def timed(**ends):
    return {f"{name} 8→4": ramps(*levels) for name, levels in ends.items()}


def test_times_are_ranked_by_the_median_and_misses_have_no_interval():
    # ramps to e reach 0.4 after 4 / e s: a 5, 5, 5, 8 s; b 5, 10, 8 s, never; c never
    made = study(timed(c=[0.1] * 4, b=[0.8, 0.4, 0.5, 0.3], a=[0.8, 0.8, 0.8, 0.5]))
    ranking = rank(made, criterion("time_to:0.4"))
    table = ranking.table
    assert table.series.tolist() == ["a 8→4", "b 8→4", "c 8→4"]
    assert table.value.tolist() == pytest.approx([5, 9, np.inf])
    assert table.reached.tolist() == [4, 3, 0]
    # of four pairs the sign test can give 2 / 16 at least
    assert table[["estimate", "low", "high", "p"]].isna().all(axis=None)
    assert ranking.found("not tested") == ["b 8→4", "c 8→4"]
    said = format_ranking(ranking, made)
    assert said.startswith("a 8→4 is the fastest to 40 %: 4 of 4 runs, median 5 s; not tested")


def test_an_exact_test_of_order_decides_where_runs_never_arrive():
    slow = [0.5, 0.1, 0.1, 0.5, 0.5, 0.5, 0.5]
    arms = timed(a=[0.8] * 7, b=slow, c=[0.9, 0.1] + [0.7] * 5)
    paired = rank(study(arms), criterion("time_to:0.4")).table.set_index("series")
    # b is later in all 7 pairs: 2 / 128, doubled by Holm; c in 6 of them: 2 * (1 + 7) / 128
    assert paired.p["b 8→4"] == pytest.approx(2 / 128)
    assert paired.p_holm["b 8→4"] == pytest.approx(4 / 128)
    assert paired.p["c 8→4"] == pytest.approx(16 / 128)
    assert paired.against_best[["b 8→4", "c 8→4"]].tolist() == ["worse", "within noise"]
    assert np.isnan(paired.low["b 8→4"])
    apart = rank(study({"a 8→4": arms["a 8→4"], "b 8→4": arms["b 8→4"]}, seeded=False),
                 criterion("time_to:0.4")).table.iloc[1]  # fmt: skip
    assert apart.p == pytest.approx(2 / 3432)  # C(14, 7) orders, of which two are complete


def test_times_of_runs_that_all_arrive_have_a_t_interval():
    ends = {"a": (0.8, 0.9, 1.0), "b": (0.5, 0.6, 0.7)}
    made = study(timed(**ends))
    row = rank(made, criterion("time_to:0.4")).table.iloc[1]
    test = stats.ttest_rel(*(4 / np.array(ends[name]) for name in "ba"))
    assert (row.estimate, row.p) == pytest.approx(
        (test.statistic * test._standard_error, test.pvalue)
    )
    assert row.estimate > 0 and row.against_best in ("worse", "within noise")


def test_the_order_of_equal_times_is_by_runs_that_arrive_and_then_by_name():
    ends = {
        "d 9→4": [0.1] * 4,
        "d 12→4": [0.1] * 4,
        "z 8→4": [0.8, 0.1, 0.1, 0.1],
        "y 8→4": [0.8] * 4,
    }
    made = study({name: ramps(*levels) for name, levels in ends.items()})
    order = rank(made, criterion("time_to:0.4")).table.series.tolist()
    assert order == ["y 8→4", "z 8→4", "d 9→4", "d 12→4"]


@pytest.mark.parametrize(
    "by", ["best", "time_to", "time_to:", "time_to:0", "time_to:80", "time_to:x"]
)
def test_a_bad_criterion_is_refused(by):
    with pytest.raises(
        ValueError, match=r"^by=.*: must be mean, final, or time_to:X with an accura"
    ):
        criterion(by)


def test_a_target_that_no_run_reaches_is_refused():
    with pytest.raises(ValueError, match=r"by=time_to:0.95: .* highest of all evaluations is 0.84"):
        rank(STUDY, criterion("time_to:0.95"))


def test_names_are_sorted_by_their_numbers():
    names = ["pods 12→12", "pods 12→3", "pods 6→6", "grpo 100→1"]
    assert sorted(names, key=natural) == ["grpo 100→1", "pods 6→6", "pods 12→3", "pods 12→12"]


# Comparing more than four arms


def contrasts(made, **options):
    table = compare(made, draws=10, **options).contrasts
    return list(table[["series", "baseline"]].drop_duplicates().itertuples(index=False, name=None))


def test_more_than_four_arms_are_ranked_and_compared_with_one_baseline():
    names = ["pods 12→3", "pods 12→6", "pods 24→3", "pods 24→12"]
    assert contrasts(STUDY) == [(name, "grpo 12→12") for name in names]
    assert len(contrasts(STUDY, all_pairs=True)) == 10
    found = compare(STUDY, draws=10)
    said = format_comparison(found)
    assert found.ranking is not None and said.startswith(verdict(found.ranking, STUDY))
    assert said.index("winner's curse") < said.index("pods 12→3 vs grpo")
    about = json.loads(json.dumps(as_json(found), allow_nan=False))["ranking"]
    assert about["best"] == "pods 12→6" and about["within_noise"] == ["pods 24→12"]


def test_without_a_grpo_arm_the_best_one_is_the_baseline():
    arms = {name: ramps(*levels) for name, levels in LEVELS.items() if "grpo" not in name}
    assert len(contrasts(study(arms))) == 6  # four arms: every two, as ever
    more = study({**arms, "pods 48→3": ramps(0.2, 0.3, 0.2, 0.3)})
    rest = ["pods 12→3", "pods 24→3", "pods 24→12", "pods 48→3"]
    assert contrasts(more) == [(name, "pods 12→6") for name in rest]
    assert len(contrasts(more, all_pairs=True)) == 10


def test_up_to_four_arms_are_not_ranked():
    few = study({name: ramps(*LEVELS[name]) for name in list(LEVELS)[:4]})
    found = compare(few, draws=10)
    assert found.ranking is None and "ranking" not in as_json(found)
    assert contrasts(few) == [(name, "grpo 12→12") for name in list(LEVELS)[:3]]
    assert len(contrasts(few, all_pairs=True)) == 6
    assert len(contrasts(few, arms=["pods 12->3", "pods 12->6", "grpo"])) == 2


# The verb

HIGH: list[Point] = [(0, 0.0, 2), (1, 10.0, 8)]
LOW: list[Point] = [(0, 0.0, 2), (1, 10.0, 4)]


def test_the_verb_writes_the_ranking(tmp_path, capsys):
    for seed in (0, 1):
        write_run(tmp_path, HIGH, "nm.n=12", "nm.m=6", f"seed={seed}")
        write_run(tmp_path, LOW, "nm.n=12", "nm.m=3", f"seed={seed}")
    where = ["default", "--runs-dir", str(tmp_path)]
    assert main(["rank", *where]) == 0
    said = capsys.readouterr().out
    # (2 + 8) / 2 of 8 answers; the other arm (2 + 4) / 2; no spread between seeds
    assert said.startswith("max_variance 12→6 has the highest mean accuracy, 62.50 % (2 runs); not")
    figures = tmp_path / "default" / "figures"
    assert pd.read_csv(figures / "rank.csv").value.tolist() == [0.625, 0.375]
    about = json.loads((figures / "rank.json").read_text())
    assert about["settings"]["by"] == "mean_accuracy" and about["best"] == "max_variance 12→6"
    assert main(["rank", *where, "--by", "time_to:0.75", "--until", "10"]) == 0
    about = json.loads((figures / "until=10" / "rank.json").read_text())
    assert [row["value"] for row in about["ranking"]] == [pytest.approx(20 / 3), "not reached"]
    assert main(["rank", *where, "--by", "time"]) == 2
    assert main(["rank", *where, "--metric", "length"]) == 2
