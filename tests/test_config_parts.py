"""A frozen config is read part by part, each part once; what a file says is as if read whole."""

import json
import os
import shutil
from functools import partial

import pytest
import yaml
from compose import composed

from pods import cli
from pods.config import Config
from pods.runs import config_parts
from pods.runs.config_parts import read_config
from pods.runs.frozen import freeze
from pods.validate import parse

WORDS = (
    [],
    ["arm=grpo", "seed=7"],
    ["prompts=greso", "update.lr=1e-3"],
    ["task=gsm8k", "model=smollm2_135m", "hardware=l40s"],
)


def whole(content: bytes) -> Config:
    """As YAML and the checks have it, without the parts."""
    return parse(dict(yaml.safe_load(content)))


def outcome(read, content):
    """A config, or the kind of error and its words."""
    try:
        return read(content)
    except Exception as error:
        return type(error), str(error)


def by_parts(content):
    return read_config(content, partial(whole, content))


def never():
    raise AssertionError("this file needs no whole reading")


@pytest.fixture
def content(tmp_path):
    return freeze(composed(f"runs_dir={tmp_path}", "seed=3")).config_path.read_bytes()


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_what_freeze_writes_is_read_by_parts_alone(tmp_path, words):
    store = freeze(composed(f"runs_dir={tmp_path}", *words))
    text = store.config_path.read_bytes()
    assert read_config(text, never) == whole(text) == store.config()


def test_a_part_that_is_known_is_not_read_again(tmp_path):
    config_parts._value.cache_clear()
    stores = [freeze(composed(f"runs_dir={tmp_path}", f"seed={seed}")) for seed in range(5)]
    assert [store.config().seed for store in stores] == [*range(5)]
    parts = len(stores[0].config_values())
    assert config_parts._value.cache_info().misses == parts + 4  # the first run's, and four seeds


def test_a_file_that_was_cut_off_anywhere_is_read_as_if_whole(content):
    for end in range(0, len(content), 5):
        cut = content[:end]
        assert outcome(by_parts, cut) == outcome(whole, cut), end


@pytest.mark.parametrize(("old", "new"), [
    (b"seed: 3\n", b""),
    (b"seed: 3\n", b"seed: 3\nseed: 4\n"),
    (b"seed: 3\n", b"seed: 03\n"),
    (b"seed: 3\n", b"seed: 1_0\n"),
    (b"seed: 3\n", b"seed: -3\n"),
    (b"seed: 3\n", b"seed: 3\ntypo: 1\n"),
    (b"seed: 3\n", b"seed: 3\n---\n"),
    (b"seed: 3\n", b"seed: 3\n...\n"),
    (b"seed: 3\n", b"seed: 3\n%YAML 1.1\n"),
    (b"seed: 3\n", b"seed: 3\r\n"),
    (b"seed: 3\n", b"seed: 3\rarm: b\n"),
    (b"seed: 3\n", b"seed: 3 # three\n"),
    (b"seed: 3\n", b"# three\n\nseed: 3\n"),
    (b"seed: 3\n", b"seed:\n  3\n"),
    (b"seed: 3\n", b"seed: &three 3\n"),
    (b"seed: 3\n", b"seed: !!str 3\n"),
    (b"seed: 3\n", b"'seed': 3\n"),
    (b"seed: 3\n", b"? seed\n: 3\n"),
    (b"seed: 3\n", b"seed: 3\nretry:\n- none\n"),
    (b"arm: null\n", b"arm: \"a\nretry: b\"\n"),
    (b"arm: null\n", b"arm: 'a\n\n  b'\n"),
    (b"arm: null\n", b"arm: |\n  a\n  b\n"),
    (b"arm: null\n", b"arm: |+\n  a\n\n"),
    (b"arm: null\n", b"arm: a\n  b\n"),
    (b"arm: null\n", b"arm: [a,\nretry, b]\n"),
    (b"arm: null\n", b"arm: &a x\nretry: *a\n"),
    (b"arm: null\n", b"arm: *a\n"),
    (b"arm: null\n", b"arm: !!python/object/apply:os.getcwd []\n"),
    (b"arm: null\n", b"arm: " + b"[" * 500 + b"\n"),
    (b"arm: null\n", b"arm: caf\xc3\xa9\n"),
    (b"arm: null\n", b"arm: a\xc2\x85retry: b\n"),
    (b"arm: null\n", b"arm: \x00\n"),
    (b"arm: null\n", b"arm: \xff\n"),
    (b"arm: null\n", b"arm:\tx\n"),
    (b"arm: null\n", b"arm: " + b"a" * 5000 + b"\n"),
    (b"nm:\n", b"nm:\n\n"),
    (b"nm:\n", b"nm: null\nnms:\n"),
    (b"nm:\n", b"nm: &nm\n"),
], ids=repr)  # fmt: skip
def test_other_files_say_what_they_say_when_read_whole(content, old, new):
    assert old in content
    edited = content.replace(old, new, 1)
    by_parts(content)  # now its parts are known
    assert outcome(by_parts, edited) == outcome(whole, edited)


@pytest.mark.parametrize("known", [True, False])
def test_the_error_names_key_value_and_what_is_allowed(tmp_path, known):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    text = store.config_path.read_text()
    if known:
        store.config()
    store.config_path.write_text(text.replace("\n  m: 16\n", "\n  m: sixteen\n"))
    with pytest.raises(ValueError, match=r"^nm\.m=sixteen: must be an integer >= 1$"):
        store.config()


def test_an_edit_of_the_same_size_and_time_is_seen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = freeze(composed("seed=3", "arm=pods")).config_path
    before = path.stat()
    assert shown(capsys)["seed"] == 3
    path.write_bytes(path.read_bytes().replace(b"seed: 3\n", b"seed: 8\n"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert shown(capsys)["seed"] == 8


def shown(capsys):
    """The only run of the study, as `pods status` has it."""
    cli.main(["status", "--json"])
    [row] = json.loads(capsys.readouterr().out)
    return row


def test_a_run_that_is_removed_and_made_again_is_read_anew(tmp_path):
    store = freeze(composed(f"runs_dir={tmp_path}", "tracking=none"))
    assert store.config().rollouts_every_steps == 50
    shutil.rmtree(store.folder)
    again = freeze(composed(f"runs_dir={tmp_path}", "tracking=none", "rollouts_every_steps=null"))
    assert again.folder == store.folder and again.config().rollouts_every_steps is None
