"""Imports point downwards, heavy libraries have few homes; the wheel contains what a run needs."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from compose import ROOT
from importlinter.cli import lint_imports

from pods.cli.main import verbs

SRC = ROOT / "src"
HOMES = {
    "torch": {"cli", "engines", "integrations", "launch", "method", "pods_lab", "policy",
              "training"},
    "transformers": {"policy", "engines", "tasks", "training", "models", "cli"},
    "pandas": {"pods_lab", "analysis"}, "matplotlib": {"pods_lab", "analysis"},
    "rich": {"launch", "pods_lab", "training"},
    "wandb": {"pods_lab", "runs"}, "tensorboardX": {"pods_lab", "runs"},
    "scipy": {"analysis", "method", "pods_lab"},
    **{name: {home} for home, names in {
        "analysis": ("jinja2",), "config": ("hydra", "omegaconf"), "engines": ("vllm",),
        "integrations": ("trl", "accelerate"), "launch": ("submitit", "ray"), "policy": ("peft",),
        "runs": ("wandb_workspaces",), "tasks": ("datasets",),
    }.items() for name in names},
}  # fmt: skip
PACKAGES = ("pods", "pods_lab", "mathgrade")
FILES = sorted(path for name in PACKAGES for path in (SRC / name).rglob("*.py"))


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_packages_import_downwards_and_in_no_circle(monkeypatch, capsys):
    monkeypatch.chdir(SRC.parent)
    assert lint_imports(no_cache=True, no_logo=True) == 0, capsys.readouterr().out


def test_heavy_libraries_stay_in_their_packages():
    errors = []
    for path in FILES:
        root, package, *_ = path.relative_to(SRC).parts
        package = package if root == "pods" else root
        tops = {name.partition(".")[0] for name in imports(path)}
        errors += [f"{path}: {top}" for top in tops if package not in HOMES.get(top, {package})]
    assert errors == []
    assert len(FILES) > 100
    trainer = {name for name in imports(SRC / "pods/integrations/trl.py") if name[:5] == "pods."}
    light = ("pods.method.", "pods.seeding.", "pods.types.")  # a script of TRL's needs no config
    assert trainer and all(name.startswith(light) for name in trainer)


def test_pods_names_no_module_that_stands_on_it():
    """Not as text for `import_module` either. The one exception is in `pods/__init__.py`."""
    named = {}
    for path in (SRC / "pods").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        modules = {text for text in texts if re.match(r"pods_lab[.:\w]*$", str(text))}
        modules |= {name for name in imports(path) if name.startswith("pods_lab")}
        if modules:
            named[str(path.relative_to(SRC))] = modules
    assert named == {"pods/__init__.py": {"pods_lab.audit.verb:audit", "pods_lab.audit.verb.audit"}}


def test_the_grader_imports_symbolic_algebra_alone():
    allowed = {"mathgrade", "sympy", "mpmath", "latex2sympy2_extended", "math_verify",
               *sys.stdlib_module_names}  # fmt: skip
    for path in (SRC / "mathgrade").rglob("*.py"):
        assert {name.partition(".")[0] for name in imports(path)} <= allowed, path


BANNED_IMPORTS = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "random"}
BANNED_CALLS = {"eval", "exec", "compile", "torch.load", "np.load", "pd.read_pickle", "yaml.load",
                "yaml.unsafe_load", "np.random.seed", "np.random.rand", "torch.seed"}  # fmt: skip


def test_there_is_no_pickle_no_evaluated_text_and_no_global_randomness():
    errors = []
    for path in FILES:
        nodes = ast.walk(ast.parse(path.read_text()))
        calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if path.name == "fork_server.py":  # the state of a process that it forks
            calls.remove("np.random.seed")
        tops = {name.split(".")[0] for name in imports(path)}
        banned = (tops & BANNED_IMPORTS) | (calls & BANNED_CALLS)
        # allowed only where the global state is restored, or in a script
        restored = "torch.random.fork_rng" in calls or path.parent.name == "tiny"
        if "torch.manual_seed" in calls and not restored:
            banned.add("torch.manual_seed")
        errors += [f"{path}: {name}" for name in sorted(banned)]
    assert errors == []


# modules in the order in which one process imports them: each may load more than those before it
ALWAYS = ("torch", "transformers", "wandb")
LIGHT = {
    "rules": {"pods.method": ("hydra", "omegaconf", "pandas", "pods.config")},
    "help": dict.fromkeys(verbs().values(), ("hydra", "omegaconf", "numpy")),
    "tables": {
        **dict.fromkeys(("pods.config.checks", "pods.launch.memory_forecast"), 
                        ("omegaconf", "pandas")),
        "pods.cli.main": ("hydra", "pandas", "matplotlib"),
        "pods.launch.job": ("hydra", "pandas"),
        **dict.fromkeys(("pods_lab.price.costs", "pods_lab.published.release",
                         "pods.analysis.compare.tables", "pods.analysis.draw"),
                        ("hydra", "matplotlib")),
        "pods.analysis.report": ("hydra",),
        "pods_lab.audit.findings": ("hydra", "tensorboardX"),
    },
    "sweeps": {
        "pods.cli.doctor": ("pandas",),
        **dict.fromkeys(("pods.launch.sweep", "pods.launch.local_backend"),
                        ("pandas", "submitit", "ray")),
    },
}  # fmt: skip


@pytest.mark.parametrize("modules", LIGHT.values(), ids=LIGHT.keys())
def test_light_modules_import_no_heavy_library(modules):
    code = (
        "import importlib, sys\n"
        f"for module, unwanted in {modules}.items():\n"
        "    importlib.import_module(module)\n"
        f"    print(module, *sorted({{*unwanted, *{ALWAYS}}} & set(sys.modules)))\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=SRC, text=True)
    assert printed.splitlines() == list(modules)


@pytest.mark.slow
def test_the_installed_command_trains_sweeps_and_plots_in_an_empty_folder(tmp_path):
    """The libraries are this environment's; the package and `pods` are the wheel's."""
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    typed = {"pods/py.typed", "pods_lab/py.typed", "mathgrade/py.typed"}
    assert typed <= {*zipfile.ZipFile(wheel).namelist()}
    environment, folder = tmp_path / "venv", tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    at = ["--python", str(environment / "bin" / "python")]
    subprocess.run([*pip, *at, "install", "--no-deps", "--force-reinstall", str(wheel)], check=True)
    folder.mkdir()

    def pods(*words, code=0):
        result = subprocess.run(
            [environment / "bin" / "pods", *words], cwd=folder, capture_output=True, text=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, check=False,
        )  # fmt: skip
        assert result.returncode == code, result.stderr
        return result.stdout or result.stderr

    assert f"{packages}" in pods("run", "--info", "searchpath")
    short = ("budget.max_steps=1", "evaluation.questions=4", "tracking=none")
    assert "`pods run -m` sweeps" in pods("run", "seed=0,1", code=2)
    assert "4 of 4 jobs done" in pods("run", "-m", "arm=grpo,pods", "seed=0,1", *short)
    assert (folder / "runs" / "default" / "figures" / "accuracy_vs_time.png").exists()
    assert "done" in pods("run", "arm=pods", "seed=0", *short)
    for words in (
        *(f"{verb} --help" for verb in ("run", *verbs())), "status", "status default",
        "evaluate grpo/seed0 --greedy", "generate grpo/seed0 1+2", "export grpo/seed0 policy",
        "plot", "plot --tables --arms pods --prices cpu", "compare", "report", "sync --to offline",
        "doctor", "clean grpo/seed1 --yes", "price --published", "reproduce",
    ):  # fmt: skip
        assert pods(*words.split()), words


def test_the_tiny_weights_are_small():
    weights = SRC / "pods" / "models" / "tiny" / "model.safetensors"
    assert weights.stat().st_size < 1_000_000
