"""The table views among the views of some modules."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.projections.registry import ViewRegistry
from headwater.projections.table.view import TableView


def table_views(modules: Sequence[str] = ("listings",)) -> dict[str, TableView]:
    """By name."""
    return {view.name: view for view in ViewRegistry.load(modules).of_kind(TableView)}
