"""`pods fetch published` on a git repository that the test makes."""

import subprocess

import pytest

from pods.cli import fetch
from pods.cli.fetch import CODE, COMMIT, RECIPE, published

PYTHON = 'import re\nSYSTEM_PROMPT_BASE = "no"\nSYSTEM_PROMPT_INSTRUCT = \\\n"""\nGo.\nÄ\n"""\n'


def git(folder, *words):
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    result = subprocess.run(
        ["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


@pytest.fixture
def origin(tmp_path):
    """A repository with two commits; the pinned one is not the newest."""
    folder = tmp_path / "origin"
    (folder / "results").mkdir(parents=True)
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    (folder / "LICENSE").write_text("a licence\n")
    (folder / "train.py").write_text("print(1)\n")
    for file, text in ((CODE, PYTHON), (RECIPE, 'system_prompt: "a\\n<think>"\nbeta: 0.0\n')):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text(text)
    (folder / "results" / "a.json").write_bytes(b"{}\r\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "one")
    pinned = git(folder, "rev-parse", "HEAD")
    (folder / "results" / "a.json").write_text("[]")
    git(folder, "commit", "--quiet", "--all", "-m", "two")
    return folder.as_uri(), pinned


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_only_the_logs_of_the_pinned_commit_are_fetched(origin, tmp_path):
    home = tmp_path / "home"
    for _ in range(2):  # the second time over the first
        published(home / "published", *origin)
        assert contents(home) == {
            "published/LICENSE": b"a licence\n",
            "published/prompts/instruct.txt": "\nGo.\nÄ\n".encode(),
            "published/prompts/open_r1.txt": b"a\n<think>",
            "published/results/a.json": b"{}\r\n",
        }


@pytest.mark.parametrize("fault", ["url", "commit", "no results", "no git"])
def test_a_failed_fetch_leaves_nothing_new_and_says_what_to_do(
    origin, tmp_path, monkeypatch, fault
):
    url, commit = origin
    home = tmp_path / "home"
    published(home / "published", url, commit)
    before = contents(home)
    if fault == "url":
        url = (tmp_path / "nowhere").as_uri()
    elif fault == "commit":
        commit = "0123456789" * 4
    elif fault == "no results":
        monkeypatch.setattr(fetch, "FILES", ("figures", "LICENSE"))
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"cannot fetch .*pods import-published FOLDER") as caught:
        published(home / "published", url, commit)
    assert "\n" not in str(caught.value)
    assert contents(home) == before and [path.name for path in home.iterdir()] == ["published"]


def test_a_release_without_a_system_message_leaves_nothing(origin, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "CODE", "train.py")
    with pytest.raises(ValueError, match=r"train\.py has no system message$"):
        published(tmp_path / "published", *origin)
    assert not (tmp_path / "published").exists()


def test_a_branch_is_refused(origin, tmp_path):
    """It may be another commit tomorrow."""
    url, _ = origin
    with pytest.raises(ValueError, match="cannot fetch"):
        published(tmp_path / "published", url, "HEAD")
    assert not (tmp_path / "published").exists()


def test_the_pin_is_a_full_commit_id():
    assert len(COMMIT) == 40 and set(COMMIT) <= set("0123456789abcdef")
