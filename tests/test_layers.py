"""The layers of the package: imports point down, and heavy libraries stay in few packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
# a package imports only packages of lower floors and itself
FLOORS = (
    {"system", "types", "seeding"},
    {"config"},
    {"method", "tasks", "runs"},
    {"policy", "memory", "models"},
    {"engines", "analysis"},
    {"training", "integrations"},
    {"launch"},
    {"cli"},
)
FLOOR = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}
HOMES = {
    "torch": {"method", "policy", "engines", "training", "models", "cli", "integrations"},
    "transformers": {"policy", "engines", "training", "models", "cli"},
    "peft": {"policy"},
    "vllm": {"engines"},
    "trl": {"integrations"},
    "accelerate": {"integrations"},
    "datasets": {"tasks"},
    "wandb": {"runs"},
    "wandb_workspaces": {"runs"},
    "tensorboardX": {"runs"},
    "pandas": {"analysis"},
    "matplotlib": {"analysis"},
    "scipy": {"analysis"},
    "jinja2": {"analysis"},
    "rich": {"launch", "training"},
    "submitit": {"launch"},
    "ray": {"launch"},
    "hydra": {"config"},
    "omegaconf": {"config"},
}
FILES = sorted((SRC / "pods").rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SRC / "pods").parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_imports_point_down_and_heavy_libraries_stay_in_their_packages():
    errors = []
    for path in FILES:
        package = package_of(path)
        for name in imports(path):
            top, *rest = name.split(".")
            other = rest[0] if top == "pods" and rest and package != "__init__" else package
            if other != package and FLOOR[other] >= FLOOR[package]:
                errors.append(f"{path}: {package} imports {other}")
            if package not in HOMES.get(top, {package}):
                errors.append(f"{path}: {package} imports {top}")
    assert errors == []
    assert len(FILES) > 100


BANNED_IMPORTS = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "random"}
BANNED_CALLS = {"eval", "exec", "compile", "torch.load", "np.load", "pd.read_pickle", "yaml.load",
                "yaml.unsafe_load", "np.random.seed", "np.random.rand", "torch.seed"}  # fmt: skip


def test_there_is_no_pickle_no_evaluated_text_and_no_global_randomness():
    errors = []
    for path in FILES:
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        if path.name == "fork_server.py":  # the state of a process that it forks
            calls.remove("np.random.seed")
        banned = ({name.split(".")[0] for name in imports(path)} & BANNED_IMPORTS) | (
            calls & BANNED_CALLS
        )
        # allowed only where the global state is restored, or in a script
        restored = "torch.random.fork_rng" in calls or path.parent.name == "tiny"
        if "torch.manual_seed" in calls and not restored:
            banned.add("torch.manual_seed")
        errors += [f"{path}: {name}" for name in sorted(banned)]
    assert errors == []


# modules in the order in which one process imports them: each may load more than those before it
ALWAYS = ("torch", "transformers", "wandb")
LIGHT = {
    "tables": {
        "pods.config.checks": ("omegaconf", "pandas"),
        "pods.memory.fit": ("omegaconf", "pandas"),
        "pods.cli.main": ("hydra", "pandas", "matplotlib"),
        "pods.launch.job": ("hydra", "pandas"),
        "pods.analysis.cost.price": ("hydra", "matplotlib"),
        "pods.analysis.cost.plan": ("hydra", "matplotlib"),
        "pods.analysis.published.release": ("hydra", "matplotlib"),
        "pods.analysis.comparison.formatting": ("hydra", "matplotlib"),
        "pods.analysis.draw": ("hydra", "matplotlib"),
        "pods.analysis.report": ("hydra",),
    },
    "sweeps": {
        "pods.config.presets": ("pandas",),
        "pods.cli.doctor": ("pandas",),
        "pods.launch.sweep": ("pandas", "submitit", "ray"),
        "pods.launch.local_backend": ("pandas", "submitit", "ray"),
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


def test_files_that_doctests_ignore_have_none():
    """They import an extra at the top, so pytest's `--ignore-glob` names them."""
    ignored = [*SRC.glob("pods/launch/slurm*"), *SRC.glob("pods/launch/ray_*"),
               *SRC.glob("pods/integrations/trl*"),
                   *SRC.glob("pods/engines/vllm_*")]  # fmt: skip
    assert len(ignored) >= 6
    assert [path for path in ignored if ">>>" in path.read_text()] == []
