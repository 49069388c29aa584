"""The verbs that read results or a machine, run as a user types them."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compose import ROOT
from releases import GRPO, PODS
from studies import A, B, pods, refused, write_rollouts, write_run

from pods.analysis.loading.rollouts import read_rollouts
from pods.cli.main import main, verbs
from pods_lab.published.release import read_release
from pods_lab.published.tables import write_import

pytestmark = pytest.mark.usefixtures("one_format")


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory) -> Path:
    """Write runs of three arms with two seeds each."""
    runs_dir = tmp_path_factory.mktemp("verbs")
    for arm in ("pods", "grpo", "grpo_ga"):
        for seed, points in enumerate((A, B)):
            write_rollouts(write_run(runs_dir, points, f"arm={arm}", f"seed={seed}"), 1)
    return runs_dir


def test_compare_writes_verdicts_and_tables(runs_dir, capsys):
    assert pods("compare", "pods", "grpo", "--runs-dir", runs_dir, "--target", 0.5) == 0
    said = capsys.readouterr().out
    assert "with 2 pairs there is no p" in said and "50 %" in said
    figures = runs_dir / "default" / "figures"
    part = figures / "compare=pods,grpo"  # the tables of a part of the arms
    about = json.loads((part / "compare.json").read_text())
    assert about["settings"]["primary_outcome"] == "mean_accuracy" and "command" in about
    assert pd.read_csv(part / "compare.csv").estimate.tolist() == [0.0, 0.0]  # the same runs
    assert pods("compare", "--runs-dir", runs_dir, "--latex", "--by", "final") == 0
    capsys.readouterr()  # each arm against grpo
    assert set(pd.read_csv(figures / "compare.csv").baseline) == {"grpo 16→16"}
    latex = {path.name: path.read_text("ascii") for path in figures.glob("*.tex")}
    names = {f"compare.{table}tex" for table in ("", "arms.", "ranking.", "speedup.")}
    assert set(latex) == names and not (part / "compare.tex").exists()
    # 93.75 and 50 % at 10 s, by each arm
    assert r"1 & grpo 16$\to$16 & 2 & 71.88 & 21.87 & " in latex["compare.ranking.tex"]


def test_price_predicts_a_size_that_was_not_run(runs_dir, capsys):
    asked = ("--nm", "32,8", "--seconds", 55)
    assert pods("price", "--runs-dir", runs_dir, *asked) == 0
    text = capsys.readouterr().out
    # the same two runs in each arm, so that neither n nor m costs: 6 s and 5 s a step
    assert re.search(r"^ *32 +8 +5\.5 .* 10 +55 +outside the measured range$", text, re.M)
    assert pods("price", "--published") == 0  # as the authors have it: 7.56 s and 10.12 s a step
    measured = r"^ *64 +16 +max_variance +pods +1 +10\.1 +10\.1 "
    assert re.search(measured, capsys.readouterr().out, re.M)


def test_a_study_may_be_named_by_its_folder(runs_dir, capsys, monkeypatch):
    assert pods("status", "default", "--runs-dir", runs_dir) == 0
    by_name = capsys.readouterr().out
    assert pods("status", f"{runs_dir}/default/") == 0
    assert capsys.readouterr().out == by_name
    monkeypatch.setenv("HOME", str(runs_dir.parent))
    assert pods("status", "default", f"--runs-dir=~/{runs_dir.name}") == 0  # no shell expands it
    assert capsys.readouterr().out == by_name
    assert "study=nothing: no runs in" in refused(capsys, "plot", "nothing", "--runs-dir", runs_dir)


NO_STEP = "--step=5: must be last or a step with a checkpoint: 0, 1"
BAD_OPTIONS = {  # of the verbs that take a checkpoint of a run
    "evaluate RUN --repeats 0": "--repeats=0: must be at least 1",
    "evaluate RUN --greedy --repeats 2": "--repeats=2: must be at least 1, without --greedy",
    "evaluate RUN --step last --on nowhere": "--on=nowhere: must be a file, or one of gsm8k",
    "evaluate RUN --step last --on amc23": "--on=amc23: must be a file: this run was",
    "generate RUN hello": "lacks characters", "generate RUN 1+1 -n 0": "n=0: must be at least 1",
    "generate RUN 1+1 --temperature -1": "temperature=-1.0: must be at least 0",
    f"generate RUN {'1+' * 50}1": "must have at most 96 tokens",
    "probe RUN --prompts 1": "--prompts=1: must be at least 2",
    "probe RUN --sketch 0": "--sketch=0: must be at least 1",
    "probe RUN --rollouts 1000000": "must be less, or fewer --rollouts or --prompts",
    "evaluate RUN --step 5": NO_STEP, "generate RUN 1+1 --step 5": NO_STEP,
    "probe RUN --step 5": NO_STEP, "generate nobody 1+1": "run=nobody: must be a run's folder or",
}  # fmt: skip


@pytest.mark.parametrize("command", BAD_OPTIONS)
def test_bad_options_are_one_line(command, store, capsys):
    words = [str(store.folder) if word == "RUN" else word for word in command.split()]
    assert BAD_OPTIONS[command] in refused(capsys, *words)


COUNTING = '''
"""`pods count`: count."""


def add_options(parser):
    parser.add_argument("--to", type=int)


def run(options):
    return options.to
'''


def test_an_installed_package_adds_a_verb(tmp_path, monkeypatch, capsys):
    about = tmp_path / "counting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    points = "[pods.verbs]\ncount = counting_verb\nstatus = counting_verb\n"
    (about / "entry_points.txt").write_text(points)
    (tmp_path / "counting_verb.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["count", "--to", "3"]) == 3
    assert verbs()["status"] == "pods.cli.status"  # no package replaces a verb of ours
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.M)
    assert listed == ["run", *verbs()]
    assert {"clean", "count", "price", "advise", "probe", "audit", "reproduce"} <= {*listed}


def test_another_python_is_told_what_it_lacks(tmp_path):
    program = [sys.executable, "-S", str(ROOT / "src/run.py")]
    result = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "lacks this project: activate its environment, or install it\n" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_report_loads_no_other_file(runs_dir, capsys):
    assert pods("report", "--runs-dir", runs_dir) == 0
    path = runs_dir / "default" / "figures" / "report.html"
    assert str(path) in capsys.readouterr().out
    text = path.read_text()
    addresses = re.findall(r"(?:src|href)=.(.{25})", text)
    assert len(addresses) >= 2 and {*addresses} == {"data:image/svg+xml;base64,"[:25]}
    assert not re.search(r"https?://|<script|url\(", text)
    for part in ("pods 64→16", "A CPU", "mean_accuracy"):
        assert part in text
    assert "&lt;b&gt;3&lt;/b&gt;" in text and "<b>3</b>" not in text  # a completion is only text


def test_a_report_of_one_series_compares_nothing_and_names_a_damaged_rollout(tmp_path, capsys):
    store = write_run(tmp_path, A)
    assert pods("report", "--runs-dir", tmp_path) == 0
    text = (tmp_path / "default" / "figures" / "report.html").read_text()
    assert "nothing to compare" in text
    write_rollouts(store, 1)
    (path,) = store.folder.glob("rollouts/*")
    lines = gzip.decompress(path.read_bytes()).replace(b"<b>", "\u2028".encode()).splitlines(True)
    path.write_bytes(gzip.compress(b"".join(lines)))
    assert len(read_rollouts(store.folder, 1)) == 8
    for damaged in (lines[2][:-9], b"5", b"{}", lines[2].replace(b"false", b"0")):
        path.write_bytes(gzip.compress(b"".join([*lines[:2], damaged, b"\n", *lines[3:]])))
        error = refused(capsys, "report", "--runs-dir", tmp_path)
        assert f"error: {path} is damaged: line 3 is no record: " in error
    path.write_bytes(gzip.compress(b""))
    assert f"error: {path} is damaged: it has no rollout" in refused(
        capsys, "report", "--runs-dir", tmp_path
    )


def last_evaluations(folder: Path, setting: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the final accuracy and step of each run of a setting from the authors' files."""
    logs = [json.loads(path.read_text()) for path in folder.glob(f"{setting}-Run*.json")]
    steps = [max(int(name.removeprefix("checkpoint-")) for name in log) for log in logs]
    answers = [log[f"checkpoint-{step}"]["gsm8k"] for log, step in zip(logs, steps, strict=True)]
    return np.array([np.mean(answer["ans_acc"]) for answer in answers]), np.array(steps)


def test_imported_logs_are_a_study(runs_dir, release, capsys):
    """Of ten runs per arm with 12 evaluations."""
    write_import(read_release(release, "gsm8k"), runs_dir / "published")
    assert pods("compare", "pods", "grpo", "--study", "published", "--runs-dir", runs_dir) == 0
    assert "Welch" in capsys.readouterr().out  # a run's number is no seed
    figures, here = runs_dir / "published" / "figures", ("published", "--runs-dir", runs_dir)
    finals, seconds = {}, {}
    for series, setting in (("GSM8K grpo 16→16", GRPO), ("GSM8K pods 64→16", PODS)):
        finals[series], steps = last_evaluations(release, setting)
        seconds[series] = (6 * 3600 / steps).mean()
    assert pods("plot", "--tables", *here) == 0
    summary = pd.read_csv(figures / "summary.csv").set_index("series")
    assert set(summary.index) == set(finals) and summary.runs.tolist() == [10, 10]
    for series, final in finals.items():
        row = summary.loc[series]
        assert row.final_accuracy == pytest.approx(final.mean(), rel=1e-5)
        assert row.final_accuracy_stderr == pytest.approx(final.std(ddof=1) / 10**0.5, rel=1e-5)
        assert row.seconds_per_step == pytest.approx(seconds[series], rel=1e-5)
    assert pods("price", *here) == 0
    step = pd.read_csv(figures / "price.fit.csv").set_index("what").loc["step"]
    low, high = seconds.values()  # 16 and 64 rollouts, of which 16 are kept
    assert step.generated == pytest.approx((high - low) / 48, rel=1e-5) and np.isnan(step.kept)
    assert pods("plot", *here) == pods("report", *here) == 0
    assert pods("status", *here) == 2
    shutil.rmtree(runs_dir / "published")


@pytest.mark.realdata
def test_the_published_comparison(tmp_path):
    """The verbs give the numbers that others have computed from these logs."""
    logs, found = read_release(Path(os.environ["PODS_REALDATA"]) / "pods_published", "gsm8k"), {}
    some = [table[table.seed <= 8] for table in logs[:2]]
    eight = logs._replace(runs=some[0], evaluations=some[1])
    for study, records in (("all", logs), ("eight", eight)):
        write_import(records, tmp_path / study)
        assert pods("compare", "pods", "grpo", "--study", study, "--runs-dir", tmp_path) == 0
        found[study] = tmp_path / study / "figures" / "compare=pods,grpo"
    ours, theirs = pd.read_csv(found["all"] / "compare.arms.csv").to_dict("records")
    final = [round(100 * arm[f"final_accuracy{end}"], 2)
             for arm in (ours, theirs) for end in ("", "_stderr")]  # fmt: skip
    assert final == [82.60, 0.30, 80.76, 0.67]
    assert round(100 * ours["mean_accuracy"], 2) == 80.76  # trapezoid, the base model at 0 s
    area = pd.read_csv(found["eight"] / "compare.csv").iloc[0]
    assert round(100 * area["estimate"], 2) == 1.08 and round(area["p"], 4) == 0.0003
    assert [round(100 * area[end], 2) for end in ("low", "high")] == [0.66, 1.49]


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


def test_a_fit_machine_is_told_how_to_try_a_step(doctor, tmp_path):
    code, lines, errors = doctor("engine=transformers", "task.reward=[correct]")
    assert (code, errors) == (0, "")
    command = lines[-1].removeprefix("nothing is missing; to try two steps: ")
    typed = "engine=transformers 'task.reward=[correct]' debug=default runs_dir=$(mktemp -d)"
    assert command == f"python src/run.py {typed}"
    assert value(lines, "memory").startswith("at most 544.8 MB in each process (")
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
        "model.path=nowhere", "engine=vllm", "hardware.device=cuda",
        "runs_dir=file/runs, study=default",
    ]  # fmt: skip


def test_a_model_on_the_hub_is_reported_as_such(doctor, monkeypatch):
    monkeypatch.setattr("pods.runs.attempts.gpus", lambda: [])
    monkeypatch.setenv("PODS_HOME", "nowhere")
    code, lines, _ = doctor("engine=transformers", "hardware=l40s", "model=qwen2_5_3b",
                            "task=gsm8k")  # fmt: skip
    assert code == 1  # no GPU
    assert "Qwen/Qwen2.5-3B-Instruct on the hub" in value(lines, "model")
    assert value(lines, "task") == "gsm8k, on the hub"
