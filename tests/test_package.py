"""The wheel contains what a run needs: config, weights, launcher."""

import os
import subprocess
import sys

import pytest
from compose import ROOT


@pytest.mark.slow
def test_a_run_and_a_sweep_from_an_installed_wheel_in_another_folder(tmp_path):
    def python(*arguments):
        """Run the installed package's Python, not this checkout's."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            capture_output=True,
            text=True,
            check=False,
        )

    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)], check=True
    )
    result = python("-m", "pods.run", "-m", "seed=0,1", "budget.max_steps=1", "tracking=none")
    assert result.returncode == 0, result.stderr
    assert "2 of 2 jobs done" in result.stdout
    assert (tmp_path / "runs" / "default" / "figures" / "accuracy_vs_time.png").exists()
    for verb in (["report"], ["plan", "--published"]):  # a template, and the authors' step times
        result = python("-m", "pods.cli.main", *verb)
        assert result.returncode == 0, result.stderr


def test_the_tiny_weights_are_small():
    assert (
        ROOT / "src" / "pods" / "models" / "tiny" / "model.safetensors"
    ).stat().st_size < 1_000_000
