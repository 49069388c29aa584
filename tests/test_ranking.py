"""Arms are ranked: values, order, tests and what is said of them, by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest
from curves import pairs_of, ramps, study
from studies import write_run

from pods.analysis.compare.compare import compare
from pods.analysis.compare.tables import findings, format_comparison, tables_of
from pods.analysis.compare.text import ranking_verdict
from pods.analysis.numbers.statistics import holm, t_test
from pods.cli.main import main

# final accuracies of four seeds
LEVELS = {
    "pods 12→3": (0.70, 0.72, 0.71, 0.73),
    "pods 12→6": (0.80, 0.84, 0.81, 0.83),
    "pods 24→12": (0.79, 0.84, 0.80, 0.83),
    "grpo 12→12": (0.50, 0.53, 0.51, 0.54),
    "pods 24→3": (0.60, 0.66, 0.63, 0.61),
}
STUDY = study({name: ramps(*levels) for name, levels in LEVELS.items()})


def rank(made, by):
    return compare(made, draws=10, by=by).ranking


def test_values_order_and_tests_against_the_best():
    table = rank(STUDY, "final").table.set_index("series")
    assert [*table.index] == sorted(LEVELS, key=lambda name: -sum(LEVELS[name]))
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    assert table.value.tolist() == pytest.approx([0.82, 0.815, 0.715, 0.625, 0.52])
    assert table.stderr["pods 12→6"] == pytest.approx(t_test(np.array(LEVELS["pods 12→6"])).stderr)
    for name in table.index[1:]:
        test = t_test(np.subtract(LEVELS[name], LEVELS["pods 12→6"]))
        found = table.loc[name, ["estimate", "low", "high", "p"]].tolist()
        assert found == pytest.approx([test.estimate, test.low, test.high, test.p])
    assert table.p_holm[1:].tolist() == pytest.approx(holm(table.p[1:].to_numpy()))
    assert np.isnan(table.p_holm["pods 12→6"])
    assert table.against_best.tolist() == ["best", "not told apart", "below", "below", "below"]


def test_holm_decides_and_not_the_single_interval():
    # differences of 3 pairs: mean -0.05, sd 0.01: t = 8.66, p = 0.0131 alone, 8 x p = 0.105
    arms = {f"pods {n}→4": ramps(0.74, 0.75, 0.76) for n in range(10, 18)}
    ranking = rank(study({**arms, "pods 8→4": ramps(0.8, 0.8, 0.8)}), "final")
    others = ranking.table.iloc[1:]
    assert (others.high < 0).all() and others.p.tolist() == pytest.approx(8 * [0.013072], rel=1e-3)
    assert others.p_holm.tolist() == pytest.approx(8 * [0.104578], rel=1e-3)
    assert ranking.arms("not told apart") == [f"pods {n}→4" for n in range(10, 18)]  # not by text
    two = rank(study({"pods 8→4": ramps(0.8, 0.8, 0.8), "pods 10→4": arms["pods 10→4"]}), "final")
    assert two.arms("below") == ["pods 10→4"]


def test_one_run_per_arm_is_ranked_and_not_tested():
    made = study({"pods 12→12": ramps(0.5), "pods 12→3": ramps(0.5), "pods 12→6": ramps(0.6)})
    ranking = rank(made, "final")
    assert ranking.table.series.tolist() == ["pods 12→6", "pods 12→12", "pods 12→3"]  # a tie
    assert ranking.arms("not told apart") == ["pods 12→12", "pods 12→3"]
    assert ranking.table[["stderr", "low", "p_holm"]].isna().all(axis=None)
    assert "No arm is told apart" in ranking_verdict(compare(made, draws=10, by="final"))
    values = rank(STUDY, "mean").table.value  # areas under the curves
    assert values.tolist() == pytest.approx([0.41, 0.4075, 0.3575, 0.3125, 0.26])
    with pytest.raises(ValueError, match="by=time: must be mean or final"):
        rank(STUDY, "time")


def test_more_than_four_arms_are_ranked_and_compared_with_one_baseline():
    names = ["pods 12→3", "pods 12→6", "pods 24→12", "pods 24→3"]
    assert pairs_of(STUDY) == [[name, "grpo 12→12"] for name in names]
    found = compare(STUDY, draws=10)
    said = format_comparison(found)
    assert said.startswith(ranking_verdict(found)) and "winner's curse" in said
    assert findings(found)["verdicts"][0] == ranking_verdict(found)
    # without a GRPO arm the best one is the baseline
    arms = {name: ramps(*levels) for name, levels in LEVELS.items() if "grpo" not in name}
    assert len(pairs_of(study(arms))) == 6  # four arms: every two, as ever
    more = study({**arms, "pods 48→3": ramps(0.2, 0.3, 0.2, 0.3)})
    rest = ["pods 12→3", "pods 24→12", "pods 24→3", "pods 48→3"]
    assert pairs_of(more) == [[name, "pods 12→6"] for name in rest]
    few = study({name: ramps(*LEVELS[name]) for name in list(LEVELS)[:4]})  # are not ranked
    found = compare(few, draws=10)
    assert found.ranking is None and "ranking." not in tables_of(found)


def test_the_verb_writes_the_ranking(tmp_path, capsys):
    """What varies is a column; accuracies are (2 + right) / 2 of 8."""
    right = {("pods", 1e-4): 8, ("pods", 1e-3): 6, ("grpo", 1e-4): 2, ("grpo", 1e-3): 4}
    for ((arm, lr), last), seed in itertools.product(right.items(), (0, 1)):
        words = (f"arm={arm}", f"update.lr={lr}", f"seed={seed}")
        write_run(tmp_path, [(0, 0.0, 2), (1, 10.0, last)], *words)
    verb, figures = ["compare", "--runs-dir", str(tmp_path)], tmp_path / "default/figures"
    assert main([*verb, "--by", "final", "--until", "10"]) == 0
    assert "\n\npods 64→16, update.lr=0.0001 has the highest final" in capsys.readouterr().out
    table = pd.read_csv(figures / "until=10" / "compare.ranking.csv").set_index("update.lr")
    assert table.value.to_list() == [1.0, 0.75, 0.5, 0.25] and [*table.index[:2]] == [1e-4, 1e-3]
    assert main([*verb, "--by", "mean"]) == 0
    assert "rank     series update.lr runs value" in capsys.readouterr().out
