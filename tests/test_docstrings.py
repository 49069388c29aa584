"""The examples in docstrings hold."""

import doctest
from importlib import import_module

import pytest
from compose import ROOT

SOURCES = sorted(path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*.py")
                 if ">>>" in path.read_text())  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_the_examples_of_a_module_hold(path):
    found = doctest.testmod(import_module(".".join(path.with_suffix("").parts)))
    assert found.attempted and not found.failed
