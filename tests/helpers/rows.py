"""Test a table of cases: every row that fails is shown, not only the first."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


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
