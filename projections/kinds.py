"""The kinds of views that a deployment can declare. A new kind is added here, and fulfils `View`."""

from __future__ import annotations

from typing import Final

from projections.stores.postgres.declared import Postgres
from projections.stream.declaring.view import StreamView
from projections.table.expressions import envelope
from projections.table.view import TableView
from projections.view import View

KINDS: Final[tuple[type[View], ...]] = (TableView, StreamView)


def placeholder_view(name: str) -> View:
    """A view with only a name: stores drop by name, and the view may no longer be declared."""
    return TableView(name=name, key=envelope("id"), key_name="id", columns={}, stores=(Postgres(),))
