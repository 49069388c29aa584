"""What a machine may lack: a test that needs it is skipped by name, and fails in CI."""

import os
from importlib.util import find_spec

import pytest


def module(name: str) -> None:
    """The test needs a library that an extra brings."""
    if find_spec(name) is None:
        lacking(f"{name} is not installed")


def lacking(what: str) -> None:
    """Skip, or fail where CI has promised what is not there."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI=true, but {what}", pytrace=False)
    pytest.skip(what)
