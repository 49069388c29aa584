"""The notebooks run from top to bottom on a small study, and are what their sources say."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from compose import ROOT
from nbclient import NotebookClient
from studies import A, B, write_rollouts, write_run

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    runs_dir = tmp_path_factory.mktemp("notebooks")
    for arm in ("pods", "grpo", "grpo_ga"):
        for seed, points in enumerate((A, B)):
            store = write_run(runs_dir, points, f"arm={arm}", f"seed={seed}")
            write_rollouts(store, 1)
    return runs_dir / "default"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_a_study(path, study, monkeypatch):
    monkeypatch.setenv("PODS_STUDY", str(study))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(path.parent))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [kind for output in outputs for kind in output.get("data", {})]
    wanted = {"accuracy_vs_time": "image/png", "cost_model": "text/html",
              "rollout_explorer": "text/html"}  # fmt: skip
    assert shown.count(wanted[path.stem]) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_without_outputs(path):
    notebook, source = nbformat.read(path, as_version=4), jupytext.read(path.with_suffix(".py"))
    assert [(c.cell_type, c.source) for c in notebook.cells] == [
        (c.cell_type, c.source) for c in source.cells
    ]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)


def test_every_source_has_its_notebook():
    sources = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    assert sources == {path.stem for path in NOTEBOOKS}
