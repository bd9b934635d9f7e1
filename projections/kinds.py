"""The kinds of views that a deployment can declare. A new kind is added here, and fulfils `TableView`."""

from __future__ import annotations

from projections.table.declared_stores import Postgres
from projections.table.expressions import envelope
from projections.table.view import TableView


def placeholder_view(name: str) -> TableView:
    """A view with only a name: stores drop by name, and the view may no longer be declared."""
    return TableView(name=name, key=envelope("id"), key_name="id", columns={}, stores=(Postgres(),))
