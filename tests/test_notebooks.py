"""The notebooks show numbers worked out by hand, and are their sources with outputs."""

import ast
import re
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from matplotlib.figure import Figure
from studies import A, B, write_rollouts, write_run

from pods_lab.advise.progress import MEASURED, expected_progress
from pods_lab.price.costs import authors_costs

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    runs_dir = tmp_path_factory.mktemp("notebooks")
    for arm, runs in {"pods": (A, B), "grpo": (B, B), "grpo_ga": (A, B)}.items():
        for seed, points in enumerate(runs):
            store = write_run(runs_dir, points, f"arm={arm}", f"seed={seed}")
            write_rollouts(store, 1)
    return runs_dir / "default"


@pytest.fixture
def shown(study, monkeypatch):
    """Execute a notebook's source as a kernel would, in this process; return what it displays."""

    def execute(name: str) -> list:
        outputs: list = []
        monkeypatch.setattr("IPython.display.display", outputs.append)
        names = {"__name__": "__main__"}
        for cell in jupytext.read(ROOT / "notebooks" / f"{name}.py").cells:
            if cell.cell_type != "code":
                continue
            lines = [line for line in cell.source.splitlines() if not line.startswith("%")]
            body = ast.parse("\n".join(lines)).body
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), name, "exec"), names)
            if last is not None:  # its value is shown, unless there is none
                value = eval(compile(ast.Expression(last.value), name, "eval"), names)
                outputs += [] if value is None else [value]
        return outputs

    monkeypatch.setenv("PODS_STUDY", str(study))
    monkeypatch.chdir(ROOT / "notebooks")
    return execute


def test_first_figure_shows_summary_figures_and_the_difference_of_two_arms(shown, capsys):
    outputs = shown("first_figure")
    summary, contrasts = (table for table in outputs if isinstance(table, pd.DataFrame))
    # at 10 s run a is on its way from 0.75 at 4 s to 1 at 12 s, run b has 0.5
    assert summary.final_accuracy.tolist() == [0.5, 0.71875, 0.71875]
    assert {*contrasts.baseline} == {"grpo 16→16"}
    assert "Mean accuracy: pods 64→16 is" in capsys.readouterr().out
    first, *others = (figure for figure in outputs if isinstance(figure, Figure))
    ends = {float(line.get_ydata()[-1]) for line in first.axes[0].lines if len(line.get_ydata())}
    assert {50.0, 71.875} <= ends and others


def test_cost_model_shows_what_a_step_costs_by_n_and_m(shown, capsys):
    fit, residuals, predictions = shown("cost_model")
    # 2 prompts a step: 5 s of 32 rollouts, 32 kept; 5.5 s of 128, 32 kept; 5.5 s of 128, 128 kept
    step, b = fit.set_index("what").loc["step"], (5.5 - 5.0) / (128 - 32)
    assert [step.fixed, step.generated] == pytest.approx([5.0 - 32 * b, b])
    assert residuals.residual.tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    at = predictions.set_index(["n", "m"]).seconds
    assert [at[16, 16], at[64, 16], at[32, 8]] == pytest.approx([5.0, 5.5, 5.0 + 32 * b])
    of_l40s = authors_costs().tables["fit"].set_index("what").loc["step"]
    assert f"({of_l40s.fixed:.2f} ± " in capsys.readouterr().out.partition("one L40S")[2]


def test_progress_per_second_divides_what_a_step_gains_by_what_it_costs(shown):
    *_, table = shown("progress_per_second")
    narrow, wide = expected_progress([(16, 16), (64, 16)], np.array([[5e5, 5e5]]), MEASURED, 2)
    # 0.03 s + 2 prompts x (16 x 0.0003 s + 16 x 0.0005 s), and with 64 x 0.0003 s
    assert table.loc[64, 16] == pytest.approx(wide / narrow * 0.0556 / 0.0844)
    assert table.loc[16, 16] == 1.0 and table.loc[8].notna().sum() == 3


def test_rollout_explorer_shows_what_was_generated_and_kept(shown, capsys):
    (run, steps), groups, by_reward, course = shown("rollout_explorer")
    assert run.is_dir() and steps == [1]
    # rewards 0, 0.5, 1 and 1.5, of which the first and the last are kept; the last is right
    expected = {"n": 4, "m": 2, "correct": 0.25, "reward": 0.75, "kept_correct": 0.5,
                "reward_std": np.std([0.0, 0.5, 1.0, 1.5]), "kept_reward": 0.75,
                "kept_reward_std": 0.75}  # fmt: skip
    for name, value in expected.items():
        assert groups[name].tolist() == pytest.approx([value] * 2)
    assert by_reward["size"].tolist() == [1] * 8
    assert by_reward["sum"].tolist() == [1, 0, 0, 1] * 2
    assert course.loc[1].to_dict() == pytest.approx({name: expected[name] for name in course})
    shape = r"^--- kept=(\w+) reward=(\S+) advantage=(\S+)$"
    assert re.findall(shape, capsys.readouterr().out, re.M) == [
        ("True", "1.5", "0.7"), ("True", "0.0", "-0.7"),
        ("False", "0.5", "nan"), ("False", "1.0", "nan")]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_with_the_outputs_of_one_execution(path):
    notebook, source = nbformat.read(path, as_version=4), jupytext.read(path.with_suffix(".py"))
    cells = ([(cell.cell_type, cell.source) for cell in one.cells] for one in (notebook, source))
    assert next(cells) == next(cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell.outputs]
    assert len(outputs) >= len(code) - 1  # the first cell may only import
    assert not any(output.output_type == "error" for output in outputs)
    assert "/home/" not in path.read_text() and "/tmp/" not in path.read_text()
    assert {one.stem for one in path.parent.glob("*.py")} == {one.stem for one in NOTEBOOKS}
