"""Grids of n and m are found and drawn, from tables made by hand."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import Normalize
from studies import A, write_run

from pods.analysis import plots
from pods.analysis.figures import _scaling_family, drawings
from pods.analysis.heat_map import Panel, cells, grid_runs, heat_map, heat_maps
from pods.analysis.study import load
from pods.analysis.tables import tables
from pods.analysis.view import View, choose

MEAN = Panel("mean_accuracy", "mean accuracy, %", 100, "viridis")
TIME = Panel("seconds_per_step", "milliseconds per step", 1000, "cividis_r")
SIZES = [(12, 3), (12, 6), (24, 6), (24, 12)]
COLUMNS = ["n", "m", "rule", "rest", "mean_accuracy", "seconds_per_step"]


def runs(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


def of_rule(rule, sizes=SIZES, rest=""):
    return [(n, m, rule, rest, 0.5, 0.1) for n, m in sizes]


GRID = runs(
    *[(12, 3, "best", "", level, 0.1) for level in (0.2, 0.4)],
    *[(12, 6, "best", "", level, 0.2) for level in (0.5, 0.5)],
    (24, 3, "best", "", 0.9, 0.4),
    (24, 6, "best", "", np.nan, 0.3),  # not complete
    (6, 6, "all", "", 0.7, 0.05),
    (24, 6, "other", "", 0.1, 9.0),
)


def test_a_grid_has_two_n_and_two_m_of_one_rule():
    made = runs(*of_rule("best"), (12, 12, "all", "", 0.5, 0.1), *of_rule("other", SIZES[:2]))
    found = grid_runs(made)
    assert set(found.grid) == {"best"} and len(found) == 5  # n = m belongs to it
    assert "other" not in set(found.rule)
    three_arms = runs(*of_rule("all", [(16, 16), (64, 64)]), *of_rule("best", [(64, 16)]))
    assert grid_runs(three_arms).empty
    assert grid_runs(runs(*of_rule("best", [(64, 16), (32, 16)]))).empty
    assert grid_runs(runs(*of_rule("best", SIZES[:2]), *of_rule("best", SIZES[2:3], "x=1"))).empty


def test_two_rules_and_two_settings_have_a_grid_each():
    made = runs(*of_rule("best"), *of_rule("mine:half"), (12, 12, "all", "", 0.5, 0.1),
                *of_rule("best", rest="lr=1"))  # fmt: skip
    counts = grid_runs(made).grid.value_counts()
    assert dict(counts) == {"best": 5, "best, lr=1": 4, "half": 5}


def test_cells_by_hand():
    table = cells(grid_runs(GRID)).set_index(["n", "m"])
    assert list(table.index) == [(6, 6), (12, 3), (12, 6), (24, 3)]
    assert table.mean_accuracy_mean.tolist() == pytest.approx([0.7, 0.3, 0.5, 0.9])
    assert table.mean_accuracy_sem.tolist() == pytest.approx([np.nan, 0.1, 0, np.nan], nan_ok=True)
    assert table.mean_accuracy_count.tolist() == [1, 2, 2, 1]
    assert table.seconds_per_step_mean.tolist() == pytest.approx([0.05, 0.1, 0.2, 0.4])


def test_each_cell_shows_its_value_and_missing_ones_are_blank():
    _, [axes] = plots.panels(1, 4, 3)
    heat_map(axes, cells(grid_runs(GRID)), MEAN, Normalize(30, 90))
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {
        (1.5, 0.5): "70.0",  # m = 6 to the right, n = 6 at the bottom
        (0.5, 1.5): "30.0\n± 10.0",
        (1.5, 1.5): "50.0\n± 0.00",
        (0.5, 2.5): "90.0",
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["3", "6"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["6", "12", "24"]
    values = axes.collections[0].get_array()
    assert values.mask.tolist() == [[True, False], [False, False], [False, True]]
    colours = {text.get_text(): text.get_color() for text in axes.texts}
    assert (colours["30.0\n± 10.0"], colours["90.0"]) == ("white", "black")  # violet, yellow


def test_all_panels_of_an_outcome_have_one_scale():
    made = runs(*of_rule("best"), *[(*row[:4], 0.9, 0.2) for row in of_rule("other")])
    figure = heat_maps(cells(grid_runs(made)), [MEAN, TIME])
    drawn = [axes for axes in figure.axes if axes.texts]
    assert [axes.get_title() for axes in drawn] == ["best", "best", "other", "other"]
    limits = [axes.collections[0].get_clim() for axes in drawn]
    assert limits == [(50, 90), (100, 200)] * 2
    assert {axes.get_ylabel() for axes in figure.axes if not axes.texts} == {MEAN.label, TIME.label}


def test_a_scaling_figure_has_a_line_for_each_value_of_the_other_size():
    sizes = [(12, 3), (24, 3), (48, 3), (12, 6), (24, 6), (48, 24)]
    family = _scaling_family(runs(*of_rule("best", sizes), *of_rule("all", [(6, 6)])), "n", "m")
    assert family is not None
    assert sorted(zip(family.m, family.n, strict=True)) == [
        *[(3, 12), (3, 24), (3, 48)],
        *[(6, 6), (6, 12), (6, 24)],  # 48→24 is alone with its m
    ]
    assert _scaling_family(runs(*of_rule("best", sizes[3:])), "n", "m") is None


def test_a_study_has_the_grid_and_the_lines(tmp_path):
    sizes = [(4, 2), (8, 2), (16, 2), (8, 4), (16, 4)]
    folders = [write_run(tmp_path, A, f"nm.n={n}", f"nm.m={m}").folder for n, m in sizes]
    study = load(tmp_path / "default", folders)
    found = {drawing.name: drawing for drawing in drawings(study, tables(study))}
    assert [name for name in found if not found[name].detail] == [
        *("accuracy_vs_time", "n_scaling", "grid")
    ]
    lines, grid = found["n_scaling"].table, found["grid"].table
    assert [*zip(lines.m, lines.n, strict=True)] == [(2, 4), (2, 8), (2, 16), (4, 8), (4, 16)]
    assert grid.grid.tolist() == ["max_variance"] * 5 and len(found["grid"].runs) == 5
    assert grid.mean_accuracy_mean.tolist() == [0.75] * 5  # (4 * 0.5 + 8 * 0.875) / 12
    assert grid.seconds_per_step_mean.tolist() == [6.0] * 5  # 12 s in two steps
    [legend] = found["n_scaling"].draw().legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("m = 2, one run each", "m = 4, one run each")
    ]
    named = choose(study, View(labels={"max_variance 8->4": "ours, at last"}))
    labelled = {drawing.name: drawing for drawing in drawings(named, tables(named))}
    assert labelled["grid"].table.equals(grid)
    assert [axes.get_ylabel() for axes in found["grid"].draw().axes][2:] == [
        *("mean accuracy until 12 s, %", "seconds per step")
    ]
