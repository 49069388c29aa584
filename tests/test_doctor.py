"""`pods doctor`: what is here, what is missing, and a policy that answers, as a user sees it."""

import shutil
import subprocess
import sys

import pytest
from compose import ROOT

from pods.cli import main

PODS = [sys.executable, "-m", "pods.cli"]


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Run the verb in an empty folder; give exit code, lines and what went to stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(["doctor", *words])
        shown = capsys.readouterr()
        return code, shown.out.splitlines(), shown.err

    return run


def value(lines, label):
    [found] = [line for line in lines if line.startswith(f"{label} ")]
    return found.removeprefix(label).strip()


def test_a_fit_machine_answers_and_is_well(doctor, tmp_path):
    code, lines, errors = doctor("engine=transformers")
    assert (code, lines[-1], errors) == (0, "all is well", "")
    assert value(lines, "question") == "1-3+1+7?"
    assert value(lines, "answer").startswith("1-3=8;")
    assert float(value(lines, "speed").split()[0].replace(",", "")) > 10
    assert float(value(lines, "gap").split("max ")[1]) < 1e-4
    assert "torch 2." in "".join(lines)
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_missing_is_listed_and_nothing_loads(doctor, tmp_path, monkeypatch):
    monkeypatch.setattr("pods.checks.find_spec", lambda name: None)
    monkeypatch.setattr("pods.runs.environment.gpus", lambda: [])
    (tmp_path / "file").touch()
    code, lines, _ = doctor("engine=vllm", "engine.sync=merged", "hardware=h200",
                            "model.path=nowhere", "runs_dir=file/runs")  # fmt: skip
    assert code == 1
    found = [line for line in lines if line.startswith("missing: ")]
    assert found == lines[-4:]
    assert [line.split(":")[1].strip() for line in found] == [
        "model.path=nowhere", "engine=vllm", "hardware=h200", "runs_dir=file/runs"
    ]  # fmt: skip
    assert not any(line.startswith("loaded") for line in lines)


def test_a_run_on_more_gpus_than_are_here_is_told_so(doctor, monkeypatch):
    monkeypatch.setattr("pods.runs.environment.gpus", lambda: ["card", "card"])
    code, lines, _ = doctor("engine=transformers", "hardware=h100x8", "model.tuning=full",
                            "prompts_per_step=8")  # fmt: skip
    assert (code, lines[-1]) == (1, "missing: hardware.processes=8: a GPU for each; 2 here")


def test_a_model_that_only_a_hub_has_is_said_to_come_from_there(doctor, monkeypatch):
    monkeypatch.setattr("pods.runs.environment.gpus", lambda: [])
    monkeypatch.setenv("PODS_HOME", "nowhere")
    code, lines, _ = doctor("engine=transformers", "hardware=l40s", "model=qwen2_5_3b",
                            "task=gsm8k")  # fmt: skip
    assert code == 1  # no GPU
    assert "Qwen/Qwen2.5-3B-Instruct of the hub" in value(lines, "model")
    assert value(lines, "task") == "gsm8k, of the hub"


def test_weights_that_do_not_load_are_one_line(doctor, tmp_path):
    shutil.copytree(ROOT / "src" / "pods" / "models" / "tiny", tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").unlink()
    code, lines, errors = doctor("engine=transformers", "model.path=half")
    assert (code, errors) == (1, "")
    assert lines[-1].startswith("wrong: model=tiny: cannot load half")


@pytest.mark.vllm
def test_an_engine_too_far_from_the_trainer_is_wrong(doctor):
    code, lines, _ = doctor("engine=vllm", "engine.gap_bound=1e-12")
    assert code == 1
    assert lines[-1].startswith("wrong: the engine's log-probs are ")
    assert lines[-1].endswith("past engine.gap_bound=1e-12")


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("nm.typo=3", "nm.typo=3: no such key; nm has n, m, groups"),
        ("nm.n=x", "nm.n=x: must be an integer >= 1"),
        (
            "task=typo",
            "task=typo: must be one of chainsum, gsm8k, gsm8k_open_r1, gsm8k_release, math",
        ),
        ("nm.n=8,16", "nm.n=8,16: several values; `run.py -m` sweeps over them"),
    ],
)
def test_bad_input_is_one_line(doctor, word, answer):
    assert doctor(word) == (2, [], f"error: {answer}\n")


@pytest.mark.vllm
def test_vllm_answers_where_it_is_installed(tmp_path):
    result = subprocess.run(
        [*PODS, "doctor"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    lines = result.stdout.splitlines()
    assert (result.returncode, lines[-1], result.stderr) == (0, "all is well", "")
    assert value(lines, "engine") == "vllm, merged, float32"
    assert value(lines, "answer").startswith("1-3=8;")
    assert float(value(lines, "gap").split("max ")[1]) < 1e-4
