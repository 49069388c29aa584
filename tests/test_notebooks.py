"""The notebooks show numbers worked out by hand, and are their sources with outputs."""

import ast
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from matplotlib.figure import Figure
from nbclient import NotebookClient
from studies import A, B, write_rollouts, write_run

PUBLISHED = ROOT / "src/pods/analysis/cost/published_step_times.csv"
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


def test_accuracy_vs_time_shows_summary_figures_and_the_difference_of_two_arms(shown, capsys):
    outputs = shown("accuracy_vs_time")
    summary, contrasts = (table for table in outputs if isinstance(table, pd.DataFrame))
    by_arm = summary.set_index("series")
    assert list(by_arm.index) == ["grpo 16→16", "grpo_ga 64→64", "pods 64→16"]
    # at 10 s run a is on its way from 0.75 at 4 s to 1 at 12 s, run b has 0.5
    assert by_arm.final_accuracy.tolist() == [0.5, 0.71875, 0.71875]
    area_a = (4 * (0.25 + 0.75) / 2 + 6 * (0.75 + 0.9375) / 2) / 10
    assert by_arm.mean_accuracy.tolist() == pytest.approx([0.25, *[(area_a + 0.25) / 2] * 2])
    assert by_arm.seconds_per_step.tolist() == [5.0, 5.5, 5.5]  # two steps in 10 s, or in 12 s
    final = contrasts[contrasts.outcome == "final_accuracy"].set_index("series")
    row = final.loc["grpo_ga 64→64"]  # 0.4375 and 0 above the same seeds of grpo
    assert (row.baseline, row.estimate, row.stderr, row.n) == ("grpo 16→16", 0.21875, 0.21875, 2)
    assert "pods 64→16 vs grpo 16→16: no difference settled in" in capsys.readouterr().out
    figures = [figure for figure in outputs if isinstance(figure, Figure)]
    assert len(figures) >= 2
    drawn = {
        float(line.get_ydata()[-1]) for line in figures[0].axes[0].lines if len(line.get_ydata())
    }
    assert {0.5, 0.71875} <= drawn


def test_cost_model_shows_what_a_step_costs_by_n_and_m(shown, capsys):
    fit, residuals, predictions = shown("cost_model")
    # 2 prompts a step: 5 s of 32 rollouts, 32 kept; 5.5 s of 128, 32 kept; 5.5 s of 128, 128 kept
    step = fit.set_index("what").loc["step"]
    b = (5.5 - 5.0) / (128 - 32)
    assert [step.fixed, step.generated] == pytest.approx([5.0 - 32 * b, b])
    assert step.kept == pytest.approx(0.0, abs=1e-12)
    assert residuals.residual.tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    at = predictions.set_index(["n", "m"]).seconds
    assert [at[16, 16], at[64, 16], at[64, 64]] == pytest.approx([5.0, 5.5, 5.5])
    assert at[32, 8] == pytest.approx(5.0 + 32 * b)
    theirs = pd.read_csv(PUBLISHED, comment="#").dropna(subset="seconds_per_step")
    theirs = theirs[(theirs.setting == "GSM8K") & theirs["rule"].isin(["all", "max_variance"])]
    sides = np.stack([np.ones(len(theirs)), theirs.n, theirs.m], axis=1)
    (a, b, c), *_ = np.linalg.lstsq(sides, theirs.seconds_per_step)
    said = capsys.readouterr().out
    assert "seconds per step = (4.83 ± " in said
    for number in (f"({a:.2f} ± ", f"({b:.4f} ± ", f"({c:.3f} ± "):
        assert number in said.partition("one L40S")[2]


def test_rollout_explorer_shows_what_was_generated_and_kept(shown, capsys):
    (run, steps), groups, by_reward, course = shown("rollout_explorer")
    assert run.is_dir() and steps == [1]
    assert groups[["n", "m"]].to_numpy().tolist() == [[4, 2]] * 2
    # rewards 0, 0.5, 1 and 1.5, of which the first and the last are kept; the last is right
    spread = np.std([0.0, 0.5, 1.0, 1.5])
    expected = {"correct": 0.25, "reward": 0.75, "reward_std": spread, "kept_correct": 0.5,
                "kept_reward": 0.75, "kept_reward_std": 0.75}  # fmt: skip
    for name, value in expected.items():
        assert groups[name].tolist() == pytest.approx([value] * 2)
    assert by_reward["size"].tolist() == [1] * 8
    assert by_reward["sum"].tolist() == [1, 0, 0, 1] * 2
    assert course.loc[1].to_dict() == pytest.approx({name: expected[name] for name in course})
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--- ")]
    assert told == [
        "--- kept=True reward=1.5 advantage=0.7",
        "--- kept=True reward=0.0 advantage=-0.7",
        "--- kept=False reward=0.5 advantage=nan",
        "--- kept=False reward=1.0 advantage=nan",
    ]


@pytest.mark.slow
def test_a_notebook_runs_in_a_kernel_of_its_own(study, monkeypatch):
    """The one that draws; the others differ in their sources alone."""
    monkeypatch.setenv("PODS_STUDY", str(study))
    path = ROOT / "notebooks" / "accuracy_vs_time.ipynb"
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(path.parent))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_with_the_outputs_of_one_execution(path):
    notebook, source = nbformat.read(path, as_version=4), jupytext.read(path.with_suffix(".py"))
    assert [(c.cell_type, c.source) for c in notebook.cells] == [
        (c.cell_type, c.source) for c in source.cells
    ]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell.outputs]
    assert len(outputs) >= len(code) - 1  # the first cell may only import
    assert not any(output.output_type == "error" for output in outputs)
    assert "/home/" not in path.read_text() and "/tmp/" not in path.read_text()


def test_every_source_has_its_notebook():
    sources = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    assert sources == {path.stem for path in NOTEBOOKS}
