"""States of rows as the reference folds them, and how two mappings of rows differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.projections.reading import reader
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView

SHOWN = 8
"""Differences in a message."""
SHOWN_LENGTH = 300
"""Characters of each: some values of histories are long."""


def expected_states(view: TableView, sources: Iterable[Source]) -> dict[str, dict[str, Any]]:
    """The state fields of every row after these events, nulls left out."""
    return {key: touched(row) for key, row in reader.states(view, sources).items()}


def touched(row: Mapping[str, Any]) -> dict[str, Any]:
    """A list that events touched and left empty is as good as one that none touched."""
    return {name: value for name, value in row.items() if value is not None and value not in ([], {})}


def differences(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> list[str]:
    """The first few places where two mappings of rows differ (pytest's own way takes minutes), and how many more there
    are. Rows that are mappings are compared field by field.
    """
    told = [f"not expected: {key}" for key in found.keys() - expected.keys()]
    told += [f"missing: {key}" for key in expected.keys() - found.keys()]
    for key in found.keys() & expected.keys():
        ours, theirs = found[key], expected[key]
        if not isinstance(ours, Mapping):
            told += [f"{key} is {ours!r}, expected {theirs!r}"] if ours != theirs else []
            continue
        told += [
            f"{key}: {name} is {ours.get(name)!r}, expected {theirs.get(name)!r}"
            for name in {*ours, *theirs}
            if ours.get(name) != theirs.get(name)
        ]
    shown = [each if len(each) <= SHOWN_LENGTH else f"{each[:SHOWN_LENGTH]}..." for each in told[:SHOWN]]
    if len(told) <= SHOWN:
        return shown
    return [*shown, f"and {len(told) - SHOWN} more, of {len(found)} rows; {len(expected)} are expected"]
