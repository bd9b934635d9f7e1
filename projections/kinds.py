"""The kinds of views that a deployment can declare. A new kind is added here, and fulfils `View`.

What a rebuild does for each is in `projections.generations.rebuild.rebuild`.
"""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.declared import Postgres
from headwater.projections.stream.view import StreamView
from headwater.projections.table.computations import envelope
from headwater.projections.table.view import TableView
from headwater.projections.view import View

KINDS: Final[tuple[type[View], ...]] = (TableView, StreamView)


def placeholder_view(name: str) -> View:
    """A view with only a name: stores drop by name, and the view may no longer be declared."""
    return TableView(name=name, key=envelope("id"), key_name="id", columns={}, stores=(Postgres(),))


def table_view(view: View) -> TableView:
    """The view itself; raises TypeError if it is of another kind, which is not folded."""
    if isinstance(view, TableView):
        return view
    raise TypeError(f'view "{view.name}" is a {type(view).__name__}: only a TableView is folded')


def stream_view(view: View) -> StreamView:
    """The view itself; raises TypeError if it is of another kind, which has no query of its own."""
    if isinstance(view, StreamView):
        return view
    raise TypeError(f'view "{view.name}" is a {type(view).__name__}: only a StreamView has a query of its own')
