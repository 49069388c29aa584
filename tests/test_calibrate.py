"""`pods calibrate`: each mode in a process of its own, and the choice among them."""

import json
import subprocess
import sys

import pytest
from compose import composed

from pods import calibrate
from pods.cli import main
from pods.trial import measure

SMALL = ("nm.n=8", "nm.m=4", "sampling.max_completion_tokens=16")
BASELINE = {"name": "transformers", "sync": None, "dtype": "float32"}


def row(name="vllm", sync="merged", dtype="float32", **found):
    good = {"sync_seconds": 0.1, "tokens_per_second": 100.0, "gap_mean": 1e-6, "gap_max": 1e-5,
            "kept": 1.0, "fit": True}  # fmt: skip
    return {"name": name, "sync": sync, "dtype": dtype, **(found if "error" in found else
                                                           {**good, **found})}  # fmt: skip


def names(config):
    return [calibrate._name(mode) for mode in calibrate.modes(config)]


def test_every_way_to_sync_is_measured_once():
    assert names(composed()) == [
        "vllm merged float32", "vllm merged bfloat16", "transformers float32",
    ]  # fmt: skip
    assert names(composed("hardware=h200", "model=qwen2_5_3b", "dry_run=true")) == [
        "vllm merged bfloat16", "vllm merged float32", "vllm adapter bfloat16",
        "transformers bfloat16",
    ]  # fmt: skip


def test_the_fastest_mode_that_trains_what_it_should_is_favoured():
    rows = [
        row(dtype="bfloat16", tokens_per_second=900.0, kept=0.4, fit=False),
        row(dtype="float16", tokens_per_second=800.0, gap_mean=1e-3, fit=False),
        row(error="over 300 s"),
        row(tokens_per_second=500.0),
        row("transformers", None, tokens_per_second=400.0, kept=None, sync_seconds=None),
    ]
    config = composed()
    favoured = calibrate.favours(config, rows)
    assert favoured.startswith("This machine favours engine=vllm engine.sync=merged "
                               "engine.dtype=float32: 500 tokens/s")  # fmt: skip
    favoured = calibrate.favours(config, [*rows[:3], rows[4]])
    assert favoured.startswith("This machine favours engine=transformers: 400 tokens/s")
    assert "favours no mode" in calibrate.favours(config, rows[:3])


def test_the_report_says_where_how_and_what():
    rows = [row(), row(sync="adapter", error="a | b")]
    found = calibrate.report(composed(), rows, ["pods", "calibrate", "nm.n=64"])
    assert json.loads(json.dumps(found)) == found
    assert found["rows"] == rows
    assert found["config"]["update.lr"] == 1e-4
    page = calibrate._markdown(found)
    assert "| vllm merged float32 | 0.100 | 100 | 1.0e-06 | 1.0e-05 | 1.0000 |  |" in page
    assert "| vllm adapter float32 | - | - | - | - | - | a \\| b |" in page


def test_the_baseline_shares_the_policys_weights():
    found = measure(composed(*SMALL))
    assert found["sync_seconds"] is None
    assert found["kept"] is None
    assert found["gap_mean"] <= found["gap_max"] < 1e-4
    assert found["tokens_per_second"] > 10


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exec sleep 60", "over 0.5 s"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("echo noise; echo why >&2; exit 3", "exit code 3: why"),
    ],
)
def test_a_mode_that_dies_or_hangs_is_a_row(tmp_path, monkeypatch, script, error):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert calibrate._measured(composed(), BASELINE, 0.5) == {"error": error}


def test_a_mode_that_cannot_start_says_why():
    config = composed()
    config.model.path = "nowhere"
    assert calibrate._measured(config, BASELINE, 60.0) == {
        "error": "model.path=nowhere: must be a folder with config.json and weights"
    }


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "engine=vllm: vLLM is not installed"),
        (["nm.typo=3"], "nm.typo=3: no such key"),
        (["engine=transformers"], "engine=transformers: leave it out"),
    ],
)
def test_what_cannot_be_measured_is_one_line(words, answer, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pods.checks.find_spec", lambda name: None)
    out = tmp_path / "out"
    assert main(["calibrate", *words, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error: {answer}")
    assert shown.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.vllm
def test_vllm_merged_adapter_and_coarse(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "pods.cli", "calibrate", "model.tuning=lora", *SMALL],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads((tmp_path / "calibration" / "tiny-cpu.json").read_text())
    rows = {calibrate._name(one): one for one in found["rows"]}
    assert not [one for one in rows.values() if "error" in one]
    assert all(one["tokens_per_second"] > 10 for one in rows.values())
    exact, coarse, adapter, baseline = rows.values()
    assert exact["kept"] == pytest.approx(1.0, abs=1e-5)
    assert exact["gap_mean"] < 1e-5
    assert coarse["gap_mean"] > 1e-4
    assert abs(coarse["kept"] - 1) > 1e-5  # float32 weights lie off its grid: lost or doubled
    assert adapter["sync"] == "adapter"
    assert adapter["kept"] is None
    assert adapter["gap_mean"] < 1e-5
    assert 0 < adapter["sync_seconds"] < 5
    assert baseline["sync_seconds"] is None
    assert found["favours"] in (tmp_path / "calibration" / "tiny-cpu.md").read_text()
    fastest = max(  # who that is depends on how busy the machine is: bfloat16 may win, too
        (one for one in rows.values()
         if one["gap_mean"] <= (1e-4 if one["dtype"] == "float32" else 0.05)
         and one["kept"] in (None, pytest.approx(1, abs=0.1))),
        key=lambda one: one["tokens_per_second"],
    )  # fmt: skip
    assert f"favours {calibrate._words(fastest)}: " in found["favours"]


@pytest.mark.vllm
def test_a_coarse_merge_loses_what_is_smaller_than_its_grid():
    config = composed("engine=vllm", "model.tuning=lora", "model.dtype=bfloat16", *SMALL)
    mode = {"name": "vllm", "sync": "merged", "dtype": "bfloat16"}
    assert calibrate._measured(config, mode, 120.0)["kept"] < config.engine.min_kept
