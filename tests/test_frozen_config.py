"""A frozen config is parsed once for all runs that differ in the seed alone, and read exactly."""

import json
import os

import pytest
import yaml
from compose import composed

from pods.cli.main import main
from pods.config.parse import parse
from pods.runs import store as runs_store
from pods.runs.freeze import freeze


def outcome(read):
    """A config, or the kind of error."""
    try:
        return read()
    except Exception as error:
        return type(error), str(error)


@pytest.fixture
def store(tmp_path):
    runs_store._parse_config.cache_clear()
    return freeze(composed(f"runs_dir={tmp_path}", "seed=3"))


def test_runs_that_differ_in_the_seed_are_parsed_once(tmp_path):
    runs_store._parse_config.cache_clear()
    for arm, misses in (("pods", 1), ("grpo", 2)):
        for seed in (0, 7, 123456789):
            store = freeze(composed(f"runs_dir={tmp_path}", f"arm={arm}", f"seed={seed}"))
            assert store.config() == parse(yaml.safe_load(store.config_path.read_bytes()))
        assert runs_store._parse_config.cache_info().misses == misses


def test_a_file_that_was_cut_off_anywhere_is_read_as_a_whole(store):
    content = store.config_path.read_bytes()
    for end in range(0, len(content), 25):
        store.config_path.write_bytes(content[:end])
        assert outcome(store.config) == outcome(lambda: parse(store.config_values())), end


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
def test_other_files_are_read_as_a_whole(store, old, new):
    content = store.config_path.read_bytes()
    assert old in content and store.config().seed == 3  # so that it is known
    store.config_path.write_bytes(content.replace(old, new, 1))
    assert outcome(store.config) == outcome(lambda: parse(store.config_values()))


@pytest.mark.parametrize("known", [True, False])
def test_the_error_names_key_value_and_what_is_allowed(store, known):
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
    main(["status", "--json"])
    [row] = json.loads(capsys.readouterr().out)
    return row
