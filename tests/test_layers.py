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
    "method": 1, "trouble": 1, "validate": 1, "watchdog": 1,
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


def test_imports_point_down_and_stay_in_their_rooms():
    wrong = []
    for path in FILES:
        here = room(path)
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "pods" and rest and here != "__init__":
                there = rest[0]
                if there != here and RANK[there] >= RANK[here]:
                    wrong.append(f"{path}: {here} imports {there}")
            if here not in HOMES.get(top, {here}):
                wrong.append(f"{path}: {here} imports {top}")
    assert wrong == []
    assert len(FILES) > 100  # so there is something to look at


BANNED_IMPORTS = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "random"}
BANNED_CALLS = {"eval", "exec", "compile", "torch.load", "np.load", "pd.read_pickle", "yaml.load",
                "yaml.unsafe_load", "np.random.seed", "np.random.rand", "torch.seed"}  # fmt: skip


def test_no_pickle_no_evaluation_of_text_no_global_randomness():
    wrong = []
    for path in FILES:
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        if path.name == "fork_server.py":  # a process that it forks has a state of its own
            calls.remove("np.random.seed")
        found = ({name.split(".")[0] for name in imports(path)} & BANNED_IMPORTS) | (
            calls & BANNED_CALLS
        )
        # only where the global state is put back, or is the process's
        put_back = "torch.random.fork_rng" in calls or path.parent.name == "tiny"
        if "torch.manual_seed" in calls and not put_back:
            found.add("torch.manual_seed")
        wrong += [f"{path}: {name}" for name in sorted(found)]
    assert wrong == []


# a module that may load what one before it may not, not the other way round: so that one process
# can load all of a list, and each in it is as if it had been loaded alone
ALWAYS = ("torch", "transformers", "wandb")
LIGHT = {
    "tables": {
        "pods.checks": ("omegaconf", "pandas"),
        "pods.memory.fit": ("omegaconf", "pandas"),
        "pods.cli": ("hydra", "pandas", "matplotlib"),
        "pods.job": ("hydra", "pandas"),
        "pods.calibrate": ("hydra", "pandas"),
        "pods.analysis.cost.price": ("hydra", "matplotlib"),
        "pods.analysis.cost.plan": ("hydra", "matplotlib"),
        "pods.analysis.published.release": ("hydra", "matplotlib"),
        "pods.analysis.comparison.words": ("hydra", "matplotlib"),
        "pods.analysis.study": ("hydra", "matplotlib"),
        "pods.analysis.report": ("hydra",),
    },
    "sweeps": {
        "pods.presets": ("pandas",),
        "pods.doctor": ("pandas",),
        "pods.sweep": ("pandas", "submitit", "ray"),
        "pods.launch.local": ("pandas", "submitit", "ray"),
    },
}


@pytest.mark.parametrize("modules", LIGHT.values(), ids=LIGHT.keys())
def test_light_modules_import_no_heavy_library(modules):
    code = (
        "import importlib, sys\n"
        f"for module, unwanted in {modules}.items():\n"
        "    importlib.import_module(module)\n"
        f"    print(module, *sorted({{*unwanted, *{ALWAYS}}} & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=SRC, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == list(modules)


def test_files_that_doctests_pass_over_have_none():
    """They import an extra at their top; pytest's `--ignore-glob` names them."""
    passed_over = [*SRC.glob("pods/launch/slurm*"), *SRC.glob("pods/launch/ray_*"),
                   *SRC.glob("pods/rollouts/vllm_*")]  # fmt: skip
    assert len(passed_over) >= 6
    assert [path for path in passed_over if ">>>" in path.read_text()] == []
