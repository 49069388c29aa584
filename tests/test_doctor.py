"""`pods doctor` as a user sees it: facts, what is missing, and a smoke step."""

import re
import shutil

import pytest
from compose import ROOT

from pods.cli.main import main
from pods.training import mismatch


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Run the verb in an empty folder; return exit code, lines of stdout, and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides):
        code = main(["doctor", *overrides])
        output = capsys.readouterr()
        return code, output.out.splitlines(), output.err

    return run


def value(lines, label):
    [line] = [line for line in lines if line.startswith(f"{label} ")]
    return line.removeprefix(label).strip()


def test_a_fit_machine_takes_a_smoke_step(doctor, tmp_path):
    code, lines, errors = doctor("engine=transformers")
    assert (code, lines[-1], errors) == (0, "all is well", "")
    assert value(lines, "question") == "1-3+1+7?"
    assert value(lines, "answer").startswith("1-3=8;")
    assert float(value(lines, "speed").split()[0].replace(",", "")) > 10
    assert float(value(lines, "gap").split("max ")[1]) < 1e-4
    assert value(lines, "update").startswith("gradient norm ")
    assert re.match(r"about \d+ s, \d+ rollouts in \d+ s, update on \d+ in", value(lines, "step"))
    assert "torch 2." in "".join(lines)
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_missing_is_listed_and_nothing_loads(doctor, tmp_path, monkeypatch):
    monkeypatch.setattr("pods.config.inputs.find_spec", lambda name: None)
    monkeypatch.setattr("pods.runs.attempts.gpus", lambda: [])
    (tmp_path / "file").touch()
    code, lines, _ = doctor("engine=vllm", "engine.sync=merged", "hardware=h200",
                            "model.path=nowhere", "runs_dir=file/runs")  # fmt: skip
    assert code == 1
    missing = [line for line in lines if line.startswith("missing: ")]
    assert missing == lines[-4:]
    assert [line.split(":")[1].strip() for line in missing] == [
        "model.path=nowhere", "engine=vllm", "hardware.device=cuda", "runs_dir=file/runs"
    ]  # fmt: skip
    assert not any(line.startswith("loaded") for line in lines)


def test_a_model_on_the_hub_is_reported_as_such(doctor, monkeypatch):
    monkeypatch.setattr("pods.runs.attempts.gpus", lambda: [])
    monkeypatch.setenv("PODS_HOME", "nowhere")
    code, lines, _ = doctor("engine=transformers", "hardware=l40s", "model=qwen2_5_3b",
                            "task=gsm8k")  # fmt: skip
    assert code == 1  # no GPU
    assert "Qwen/Qwen2.5-3B-Instruct on the hub" in value(lines, "model")
    assert value(lines, "task") == "gsm8k, on the hub"


def test_weights_that_do_not_load_are_a_one_line_error(doctor, tmp_path):
    shutil.copytree(ROOT / "src" / "pods" / "models" / "tiny", tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").unlink()
    code, lines, errors = doctor("engine=transformers", "model.path=half")
    assert (code, errors) == (1, "")
    assert lines[-1].startswith("failed: model=tiny: cannot load half")
    (tmp_path / "half" / "tokenizer.json").unlink()
    _, lines, _ = doctor("engine=transformers", "model.path=half")
    assert lines[-1] == "failed: model.path=half: must have the files of a tokenizer"


@pytest.mark.vllm
def test_an_engine_that_differs_from_the_trainer_fails(doctor, monkeypatch):
    monkeypatch.setattr(mismatch, "FLOAT32_BOUND", 1e-12)
    code, lines, _ = doctor("engine=vllm")
    assert (code, value(lines, "engine")) == (1, "vllm, merged, float32")
    assert lines[-1].startswith("failed: the engine's log-probs differ ")
    assert lines[-1].endswith("past 1e-12")
