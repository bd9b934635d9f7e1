"""The views that may have rows about a person, also those made with `replay rebuild --as`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.api.guard.scopes import STREAMS
from headwater.api.made_views import is_served, made_view
from headwater.api.reading import KeyReaders
from headwater.api.service import Service
from headwater.projections.view import View


class KnownView(NamedTuple):
    """A view, and the stores that answer queries of it. is_made: with `--as`, so its rows never change."""

    view: View
    readers: KeyReaders
    is_made: bool = False


class Views(NamedTuple):
    """Those of a moment. earlier: the names of made views whose columns are no longer known."""

    by_name: Mapping[str, KnownView]
    earlier: Sequence[str] = ()


class KnownViews:
    """All views but that of all events, and those made of it, which have nothing but the events."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._declared = {
            name: KnownView(view, KeyReaders(service.readers, view))
            for name, view in service.views.items()
            if name != STREAMS and any(store.answers for store in view.stores)
        }

    async def now(self) -> Views:
        """The declared views, and those that are made now; raises StoreUnavailable."""
        service, found, earlier = self._service, dict(self._declared), list[str]()
        for name, made in (await service.generations.made()).items():
            if made.source == STREAMS:
                continue
            if is_served(service, made):
                view = made_view(service, made)
                found[name] = KnownView(view, KeyReaders(service.readers, view), is_made=True)
            else:
                earlier.append(name)
        return Views(found, earlier)
