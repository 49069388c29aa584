"""Rows of tables: of Parquet files and of data sets on the Hugging Face hub."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INSTALL = "is not installed: pip install 'pods-rl[hub]'"


def parquet_rows(file: Path) -> Sequence[Mapping[str, Any]]:
    """Read the rows of a Parquet file; OSError or ValueError: it cannot be read."""
    try:
        from pyarrow.parquet import read_table  # takes a moment to import
    except ModuleNotFoundError as error:
        raise ValueError(f"the package pyarrow {INSTALL}") from error
    rows: list[Mapping[str, Any]] = read_table(file).to_pylist()
    return rows


def hub_rows(
    dataset: str, subsets: Sequence[str | None], split: str
) -> Sequence[Mapping[str, Any]]:
    """Read a split of a data set, of its configurations one after another.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        from datasets import disable_progress_bars, load_dataset  # takes a second to import
        from datasets.exceptions import DatasetsError
    except ModuleNotFoundError as error:
        raise ValueError(f"the package datasets {INSTALL}") from error
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it warns of every retry
    try:
        rows: list[Mapping[str, Any]] = []
        for subset in subsets:
            rows += load_dataset(dataset, subset, split=split)
        return rows
    except (OSError, ValueError, DatasetsError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"on the hub: {why}; task.path=FOLDER reads files") from error
