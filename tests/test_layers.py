"""The shape of the package: imports point down, heavy libraries stay in their rooms."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
# a module may import modules of lower rank, and of its own package
RANK = {
    "config": 0, "records": 0, "randomness": 0, "stop": 0, "console": 0, "machine": 0, "slots": 0,
    "method": 1, "validate": 1, "watchdog": 1,
    "checks": 2, "compose": 2,
    "runs": 3, "tasks": 3, "progress": 3, "presets": 3,
    "memory": 4, "policy": 4, "board": 4,
    "rollouts": 5, "step": 5, "analysis": 5,
    "train": 6, "evaluate": 6, "worker": 6,
    "step_record": 7, "proof": 7, "crew": 7, "rehearsal": 7,
    "experiment": 8,
    "assemble": 9, "pricing": 9, "torchrun": 9,
    "follower": 10, "fetch": 10, "fetch_published": 10, "verbs": 10,
    "job": 11,
    "process": 12, "reevaluate": 12,
    "launch": 13, "trial": 13,
    "sweep": 14,
    "dry_run": 14, "doctor": 14, "calibrate": 14, "repair": 14,
    "cli": 15,
    "models": 15,
}  # fmt: skip
HOMES = {
    "torch": {
        "method",
        "policy",
        "rollouts",
        "rehearsal",
        "worker",
        "torchrun",
        "assemble",
        "models",
        "fetch",
        "trial",
    },
    "transformers": {"policy", "rollouts", "assemble", "models", "fetch", "trial"},
    "peft": {"policy"},
    "vllm": {"rollouts"},
    "datasets": {"tasks"},
    "sympy": {"tasks"},
    "mpmath": {"tasks"},
    "math_verify": {"tasks"},
    "latex2sympy2_extended": {"tasks"},
    "wandb": {"runs"},
    "wandb_workspaces": {"runs"},
    "pandas": {"analysis"},
    "matplotlib": {"analysis"},
    "scipy": {"analysis"},
    "jinja2": {"analysis"},
    "rich": {"board"},
    "submitit": {"launch"},
    "ray": {"launch"},
    "hydra": {"compose", "presets"},
    "omegaconf": {"compose"},
}
FILES = sorted((SRC / "pods").rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SRC / "pods").parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down_and_stay_in_their_rooms(path):
    here = room(path)
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "pods" and rest and here != "__init__":
            there = rest[0]
            assert there == here or RANK[there] < RANK[here], f"{here} imports {there}"
        assert here in HOMES.get(top, {here}), f"{here} imports {top}"


BANNED_IMPORTS = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "random"}
BANNED_CALLS = {"eval", "exec", "compile", "torch.load", "np.load", "pd.read_pickle", "yaml.load",
                "yaml.unsafe_load", "np.random.seed", "np.random.rand", "torch.seed"}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_pickle_no_evaluation_of_text_no_global_randomness(path):
    assert not {name.split(".")[0] for name in imports(path)} & BANNED_IMPORTS
    calls = [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    assert not set(calls) & BANNED_CALLS
    if "torch.manual_seed" in calls:  # only where the global state is put back, or is the process's
        assert "torch.random.fork_rng" in calls or path.parent.name == "tiny"


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("pods.analysis.study", ["torch", "transformers", "hydra", "wandb", "matplotlib"]),
        ("pods.analysis.report", ["torch", "transformers", "hydra", "wandb"]),
        ("pods.analysis.comparison.words", ["torch", "hydra", "wandb", "matplotlib"]),
        ("pods.analysis.cost.plan", ["torch", "hydra", "wandb", "matplotlib"]),
        ("pods.analysis.published.release", ["torch", "hydra", "wandb", "matplotlib"]),
        ("pods.cli", ["torch", "transformers", "hydra", "wandb", "pandas", "matplotlib"]),
        ("pods.job", ["torch", "transformers", "hydra", "wandb", "pandas"]),
        ("pods.doctor", ["torch", "transformers", "wandb", "pandas"]),
        ("pods.calibrate", ["torch", "transformers", "hydra", "wandb", "pandas"]),
        ("pods.analysis.cost.price", ["torch", "hydra", "wandb", "matplotlib"]),
        ("pods.presets", ["torch", "transformers", "wandb", "pandas"]),
        ("pods.memory.fit", ["torch", "transformers", "omegaconf", "pandas"]),
        ("pods.checks", ["torch", "transformers", "omegaconf", "pandas"]),
        ("pods.sweep", ["torch", "transformers", "pandas", "submitit", "ray"]),
        ("pods.launch.local", ["torch", "transformers", "pandas", "submitit", "ray"]),
    ],
)
def test_light_modules_import_no_heavy_library(module, unwanted):
    code = f"import sys, {module}; print([m for m in {unwanted} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=SRC, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
