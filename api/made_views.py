"""Views made with `replay rebuild VIEW --as NAME`: they have the columns of VIEW, under their own name."""

from __future__ import annotations

from headwater.api.errors import MadeEarlier
from headwater.api.openapi.documents import MadeDocument
from headwater.api.reading import Made
from headwater.api.service import Service
from headwater.eventlog.source_positions import positions_text
from headwater.projections.errors import UnknownView
from headwater.projections.table.types import format_time
from headwater.projections.view import View


def is_served(service: Service, made: Made) -> bool:
    """Whether the columns of its rows are known: they are those of the declared view."""
    source = service.views.get(made.source)
    return source is not None and source.version == made.version


def made_view(service: Service, made: Made) -> View:
    """The view as a declaration; raises UnknownView, or MadeEarlier if its columns are no longer known."""
    source = service.views.get(made.source)
    if source is None:
        raise UnknownView(made.source, tuple(service.views))
    if source.version != made.version:
        raise MadeEarlier(made.name, made.source, made.version, source.version)
    return source.named(made.name).without_expiry()  # it never changes


def described(made: Made) -> MadeDocument:
    """Its source, when it was made, and of which events, for `GET /views`."""
    return {
        "view": made.source,
        "selection": made.selection,
        "position": positions_text(made.positions),
        "at": None if made.at is None else format_time(made.at),
    }
