"""The examples in docstrings hold."""

import doctest
from importlib import import_module

import pytest
from compose import ROOT

MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("src.")
           for folder in ("src", "experiments") for path in sorted((ROOT / folder).rglob("*.py"))
           if ">>>" in path.read_text()]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    assert (found := doctest.testmod(import_module(name))).attempted and not found.failed
