"""The rows of a frame as pandas writes it in JSON, by `to_json` or by `to_dict`."""

import re
from collections.abc import Sequence
from typing import Any

from pods_lab.audit.formats import Row

NUMBERED = re.compile(r"\d+(\.\d+)?")  # an index of pandas that is no name


def frame_rows(value: Any) -> list[Row]:
    """Return the rows of a frame; none: the value is no frame.

    Its forms are `split` (columns, index, data), a list for each column, and dictionaries in
    dictionaries, by columns and then rows or the other way round. Rows have numbers there.
    """
    if not isinstance(value, dict):
        return []
    names = value.get("columns")
    data = value.get("data")
    if isinstance(names, list) and isinstance(data, list):
        rows = [_named(names, cells) for cells in data]
        return _with_index(rows, value.get("index", []))

    types = {type(cells) for cells in value.values()}
    if types == {list}:
        return _from_lists(value)
    if types == {dict}:
        return _from_dictionaries(value)
    return []


def is_rows(value: Any) -> bool:
    """Return whether a value is a list with rows, which are objects."""
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def _from_lists(columns: dict[str, list[Any]]) -> list[Row]:
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) != 1:
        return []
    if any(is_rows(cells) for cells in columns.values()):
        return []
    names = list(columns)
    [length] = lengths
    return [{name: columns[name][place] for name in names} for place in range(length)]


def _from_dictionaries(nested: dict[str, Row]) -> list[Row]:
    if _are_numbers(list(nested)):
        return _with_index(list(nested.values()), list(nested))

    by_index: dict[str, Row] = {}
    for name, cells in nested.items():
        for key, cell in cells.items():
            by_index.setdefault(key, {})[name] = cell
    index = list(by_index)
    if not _are_numbers(index):
        return []
    return _with_index(list(by_index.values()), index)


def _are_numbers(keys: Sequence[str]) -> bool:
    return all(NUMBERED.fullmatch(key) for key in keys)


def _named(names: Sequence[Any], cells: Any) -> Row:
    return {str(name): cell for name, cell in zip(names, cells, strict=False)}


def _with_index(rows: list[Row], index: Sequence[Any]) -> list[Row]:
    """Give rows a column `index` if it does more than count them: it may be the step."""
    counts = [str(place) for place in range(len(rows))]
    keys = [str(key) for key in index]
    if len(keys) != len(rows) or keys == counts:
        return rows
    return [row | {"index": key} for row, key in zip(rows, index, strict=True)]
