"""Rows that a library reads: of a Parquet file, and of a data set on the Hugging Face hub.

A `ValueError` says why they cannot be read.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def parquet_rows(file: Path) -> Rows:
    """Return the rows of a Parquet file."""
    try:
        from pyarrow.parquet import read_table  # takes a moment to import
    except ModuleNotFoundError as error:
        raise ValueError("pyarrow is not installed: pip install 'pods-rl[hub]'") from error
    rows: Rows = read_table(file).to_pylist()
    return rows


def hub_rows(dataset: str, subsets: Sequence[str | None], split: str) -> Rows:
    """Return the rows of one split of a data set, subset by subset."""
    try:
        from datasets import disable_progress_bars, load_dataset  # takes a second to import
        from datasets.exceptions import DatasetsError
    except ModuleNotFoundError as error:
        install = "the package datasets is not installed: pip install 'pods-rl[hub]'"
        raise ValueError(install) from error
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it warns of every retry
    try:
        rows: Rows = []
        for subset in subsets:
            rows += load_dataset(dataset, subset, split=split)
        return rows
    except (OSError, ValueError, DatasetsError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"on the hub: {why}; task.path=FOLDER reads files") from error
