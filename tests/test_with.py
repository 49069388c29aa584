"""Several studies in one figure, made by hand."""

import pytest
from studies import A, B, write_run

from pods.analysis.study import load
from pods.analysis.view import View, choose
from pods.cli.main import main
from pods.runs.store import run_folders


@pytest.fixture
def studies(tmp_path):
    """One arm each; seeds 0 and 1 of grpo in both, pods in the first, random in the second."""
    for study, arm in (("one", "pods"), ("two", "random")):
        for seed in range(2):
            write_run(tmp_path, A if arm == "pods" else B, f"study={study}", f"arm={arm}",
                      f"seed={seed}")  # fmt: skip
            write_run(tmp_path, B if study == "one" else A, f"study={study}", "arm=grpo",
                      f"seed={seed}")  # fmt: skip
    return tmp_path


def folders(runs_dir, *names):
    return [run for name in names for run in run_folders(runs_dir / name)]


def test_equal_arms_of_two_studies_are_two_curves(studies):
    """Equal runs have equal folder names; grpo ends at 4/8 in one study, at 8/8 in the other."""
    study = load(studies / "one", folders(studies, "one", "two"))
    assert study.name == "one + two"
    last = study.evaluations.groupby(["series", "run"]).accuracy.last().groupby("series").mean()
    assert dict(last) == {
        "grpo 16→16, one": 0.5,
        "grpo 16→16, two": 1.0,
        "pods 64→16": 1.0,
        "random 64→16": 0.5,
    }
    assert study.runs.run.is_unique and len(study.runs) == 8


def test_other_seeds_add_to_a_curve(studies):
    for seed in (2, 3):
        write_run(studies, B, "study=more", "arm=pods", f"seed={seed}")
    study = load(studies / "one", folders(studies, "one", "more"))
    assert dict(study.runs.groupby("series").seed.agg(tuple)) == {
        "grpo 16→16": (0, 1),
        "pods 64→16": (0, 1, 2, 3),
    }
    last = study.evaluations.groupby("run").accuracy.last()
    assert last[study.runs.run[study.runs.arm == "pods"]].mean() == 0.75  # 1, 1, 0.5 and 0.5


def test_a_seed_that_a_study_lacks_is_missing_there_alone(studies):
    write_run(studies, B, "study=two", "arm=random", "seed=2")
    with pytest.raises(ValueError, match="never run") as error:
        load(studies / "one", folders(studies, "one", "two"))
    assert "grpo 16→16, two seed 2: never run" in str(error.value)
    assert "pods 64→16 seed 2" not in str(error.value)


def test_verbs_take_further_studies(studies, capsys, monkeypatch):
    monkeypatch.chdir(studies)
    where = ["--runs-dir", str(studies)]
    assert main(["aggregate", "one", *where, "--with", "two"]) == 0
    assert "figures/with=two" in capsys.readouterr().out
    assert main(["rank", "one", "--runs-dir", ".", "--with", "./two"]) == 0
    assert "random 64→16" in capsys.readouterr().out
    assert main(["compare", "pods", "random", "--study", "one", *where, "--with", "two"]) == 0
    assert "pods 64→16" in capsys.readouterr().out


def test_a_study_may_be_the_last_word_or_an_option(studies, capsys):
    where = ["--runs-dir", str(studies)]
    assert main(["compare", "pods", "grpo", "one", *where]) == 0
    assert "between pods 64→16 and grpo 16→16" in capsys.readouterr().out
    assert (
        main(["status", "--study", "two", *where]) == main(["status", "--study=two", *where]) == 0
    )
    assert "random" in capsys.readouterr().out


def test_an_unknown_further_study(studies, capsys):
    assert main(["aggregate", "one", "--runs-dir", str(studies), "--with", "three"]) == 2
    assert "study=three: no runs in" in capsys.readouterr().err


def test_a_view_of_several_studies_has_a_folder_and_keeps_the_rows(studies):
    study = load(studies / "one", folders(studies, "one", "two"))
    view = View(studies=("two",))
    assert view.folder == "with=two"
    assert choose(study, view) is study
