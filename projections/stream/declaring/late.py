"""The view of what is late for another view: `late="keep"` puts it there instead of dropping it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stream.declaring.sources import Events, Kind, Observed, StreamSource
from headwater.projections.stream.declaring.view import StreamView
from headwater.projections.table.declared import storage_word
from headwater.projections.table.types import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY: Final = "id"
_DATA: Final = "data"
COLUMNS: Final[Mapping[str, ColumnType]] = {
    _KEY: ColumnType.TEXT,
    "source": ColumnType.TEXT,
    "type": ColumnType.TEXT,
    "time": ColumnType.TIME,
    "recordedtime": ColumnType.TIME,
    "late_s": ColumnType.FLOAT,
    _DATA: ColumnType.JSON,
}
"""Of the view, and of each of its sources.

source: who reported an observation, or the stream of an event. late_s: seconds from `time` to `recordedtime`. data: as
it was recorded.
"""


class _Late(StreamSource):
    """A source of late records."""

    is_of_late = True

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The same for all classes."""
        return COLUMNS

    @property
    def sealed(self) -> frozenset[str]:
        """The data, as it was recorded."""
        return frozenset({_DATA}) if super().sealed else frozenset()

    @property
    def declaration(self) -> str:
        return f"late {super().declaration}"


@storage_word("LateObserved")
@dataclass(frozen=True)
class LateObserved(_Late, Observed):
    """The late ones among observations of some classes."""


@storage_word("LateEvents")
@dataclass(frozen=True)
class LateEvents(_Late, Events):
    """The late ones among events of some classes."""


def late_view(view: StreamView) -> StreamView | None:
    """The view of what is late for `view`, by the ids of the records; None if it does not keep them.

    Each class is a source of its own: records with the same id are of one class, so one task sends them, in the order
    of the log, and the last one is the row. If several sources of `view` read a class, it is late as soon as one of
    them leaves it out.
    """
    if view.late != "keep":
        return None
    sources = _sources(view)
    same = {name for name, kind in COLUMNS.items() if view.types.get(name) is kind}
    return StreamView(
        name=view.late_name,
        version=view.version,
        key=_KEY,
        columns=COLUMNS,
        sources=sources,
        sealed=tuple(frozenset[str]().union(*(each.sealed for each in sources.values()))),
        query=late_rows,
        stores=tuple(store.narrowed(same, _KEY) for store in view.stores),
        doc=f"what was too late for {view.name}",
    )


def late_rows(**sources: DataFrame) -> DataFrame:
    """The rows of all sources, as they are."""
    return reduce(lambda all_rows, rows: all_rows.unionByName(rows), sources.values())


def _sources(view: StreamView) -> dict[str, StreamSource]:
    """By the type of the class: those of events have a dot, so no observation has the same."""
    strictest: dict[Kind, StreamSource] = {}
    for source in view.sources.values():
        for kind in source.classes:
            known = strictest.setdefault(kind, source)
            strictest[kind] = min(known, source, key=lambda each: each.late_by)
    return {kind.type: _of_late(kind, source.late_after) for kind, source in strictest.items()}


def _of_late(kind: Kind, late_after: str) -> StreamSource:
    return LateEvents((kind,), late_after) if issubclass(kind, Event) else LateObserved((kind,), late_after)
