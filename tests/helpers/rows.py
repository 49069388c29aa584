"""Tables of cases: their files, and a check of which every row that fails is shown."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def table(name: str) -> list[list[Any]]:
    """Return the rows of tests/tables/NAME.jsonl, whose first line says what is in them."""
    text = (Path(__file__).parents[1] / f"tables/{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if not line.startswith("#")]


def every(rows: Iterable[tuple[Any, ...]], check: Callable[..., None]) -> None:
    """Check every row, and fail with a line for each one that failed."""
    failures, count = [], 0
    for row in rows:
        count += 1
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{row!r:.300}: {type(error).__name__}: {error}")
    assert count and not failures, f"{len(failures)} of {count} rows fail\n" + "\n".join(failures)
