"""The declaration of a stream view: rows that a query of Spark Structured Streaming computes by event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field  # a plain `field` is a word of declarations
from datetime import timedelta
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.declaring import arguments_checked
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.places import called_from
from headwater.eventlog.topics import EVENTS
from headwater.projections.durations import duration
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stream.checks import Late, Query, check_stream, check_stream_types
from headwater.projections.stream.sources import LATE_COLUMNS, LATE_KEY, Events, Kind, StreamSource
from headwater.projections.table.checks import as_stores, check_stores
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.layout import DELETED, Itself, Layout
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.monoids import Pick, StateField
from headwater.projections.table.personal import check_readable, check_uses
from headwater.projections.table.rows import RowClass
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View, generation_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH: Final = "_batch"
"""State field with the number of the batch that computed the row, or the offset of the record that gave it: rows with
higher ones replace it."""


@arguments_checked(
    ViewDeclarationError,
    {
        "name": '"page_views"',
        "key": '("page", "hour")',
        "columns": '{"page": TEXT, "hour": TIME, "views": INTEGER}',
        "sources": '{"opened": observations(PageOpened, late_after="1h")}',
        "query": "page_views_by_hour",
        "stores": "(Postgres(),)",
    },
)
@dataclass(frozen=True)
class StreamView(View):
    """A view that a query computes from streams; registered by assigning it in a module of HEADWATER_MODULES.

    name: of the table, index and API path.
    version: change it with the declaration or the query; a new version is a rebuild.
    doc: one line for users.

    Its rows:

    key: the columns that identify a row.
    key_name: the column with the row's key as one text, if the key has several columns: their texts joined by "/".
    columns: the columns that the query returns, with their types.
    sources: what the query reads, by the name of its argument: `observations(…)` or `events(…)`.
    query: a function from a DataFrame per source to a DataFrame with `columns`. A row that it returns replaces the
    row with the same key.
    sealed: the columns whose values its query copies from personal fields; the API opens them.
    deleted_by: a BOOLEAN column that the query returns, not among `columns`. A row in which it is true deletes the row
    with its key, until a later batch returns that key again.

    Where they are:

    stores: where it is stored, as a tuple or one store; the first one answers queries.
    lookups: columns of other views' rows; they are read with a row, and not stored in it.

    Who reads them in the API:

    readable_by: by column, the claim of the caller that it must equal; a row of which a column differs does not exist
    for the caller. Empty: everybody with the scope of the view reads all rows.

    When they come:

    late: what happens to a late record. "drop" leaves it out, and counts it; "keep" also puts it in a view of its
    own, `<name>_late`; "amend" takes it in for as long as `keep_state`, so that the row is sent again.
    final: send a row once, when no admitted observation can change it any more, instead of after each change.
    every: such as "30s", the time between two batches of its query: rows come later, and cost less. Empty: at once.
    realtime: its rows come within milliseconds, without batches. Each row comes from one record: the query may select,
    filter, explode, and join tables that it makes, and the key contains the record's `id` (or `stream`).
    """

    name: str
    key: str | tuple[str, ...]
    columns: Mapping[str, ColumnType]
    sources: Mapping[str, StreamSource]
    query: Query
    stores: tuple[DeclaredStore, ...]
    late: Late = "drop"
    keep_state: str = ""
    final: bool = False
    every: str = ""
    version: int = 1
    key_name: str = ""
    doc: str = ""
    lookups: tuple[Lookup, ...] = ()
    deleted_by: str = ""
    realtime: bool = False
    readable_by: Mapping[str, Claim] = dataclass_field(default_factory=dict)
    sealed: tuple[str, ...] = ()

    place: str = dataclass_field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", called_from())
        object.__setattr__(self, "stores", as_stores(self.stores))
        try:
            check_stream_types(self)
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error
        if not self.key_name:
            object.__setattr__(self, "key_name", self.key_columns[0] if len(self.key_columns) == 1 else "key")
        try:
            check_stream(self)
            check_stores(self.stores, self.types)
            check_readable(self.readable_by, self.key_name, self.types, self.looked_up, self.layout)
            check_uses(self.personal, self.stores, self.types, self.lookups, self.readable_by)
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def late_name(self) -> str:
        """The name of the view of its late records, if it keeps them."""
        return f"{self.name}_late"

    @property
    def returned(self) -> Mapping[str, ColumnType]:
        """The columns that the query must return."""
        return {**self.columns, **({self.deleted_by: ColumnType.BOOLEAN} if self.deleted_by else {})}

    @property
    def personal(self) -> frozenset[str]:
        return frozenset(self.sealed)

    @cached_property
    def layout(self) -> Layout:
        """All columns are behind one order, so that a later batch replaces the row as a whole."""
        shown = {name: kind for name, kind in self.columns.items() if name != self.key_name}
        order = StateField(BATCH, ColumnType.INTEGER, ordering=True)
        values = tuple(StateField(name, kind) for name, kind in shown.items())
        if self.deleted_by:
            values += (StateField(DELETED, ColumnType.BOOLEAN),)
        return Layout((Pick((order,), values, highest=True),), {name: Itself(name) for name in shown}, shown)

    @property
    def tables(self) -> Mapping[str, RowClass]:
        return {}

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(source.topic for source in self.sources.values()))

    @cached_property
    def classes(self) -> tuple[type[Event], ...]:
        """Its events. A module that names a class of observations declares it."""
        return tuple(dict.fromkeys(kind for source in self._events for kind in source.classes))

    @property
    def queried(self) -> tuple[type[Event] | type[Observation], ...]:
        return tuple(dict.fromkeys(kind for source in self.sources.values() for kind in source.classes))

    @property
    def beaten(self) -> tuple[str, ...]:
        """The topics that need heartbeats of the process of stream views: in `events`, owners append their own."""
        return tuple(topic for topic in self.topics if topic != EVENTS)

    @property
    def _events(self) -> list[Events]:
        return [source for source in self.sources.values() if isinstance(source, Events)]

    @property
    def declaration(self) -> list[str]:
        parts = [self.tag, f"key {', '.join(self.key_columns)}", self.key_name]
        parts += [f"{name}={kind.value}" for name, kind in sorted(self.columns.items())]
        parts += [f"source {name}: {source.declaration}" for name, source in sorted(self.sources.items())]
        parts += [f"late: {self.late} {self.keep_state}".strip()]
        parts += ["final"] if self.final else []
        parts += ["realtime"] if self.realtime else []
        parts += [f"deleted by {self.deleted_by}"] if self.deleted_by else []
        return [*parts, *(store.declaration for store in self.stores)]

    def named(self, name: str) -> StreamView:
        return replace(self, name=name)

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def handles(self, event_type: str) -> bool:
        return any(event_type in source.recorded for source in self._events)

    def key_fields(self, event: type[Event]) -> tuple[()]:
        """Its key is that of its query's rows."""
        return ()

    def rows_of(self, envelope: Envelope) -> None:
        """They depend on the query."""

    @property
    def has_own_query(self) -> bool:
        return True

    @property
    def every_s(self) -> float:
        return duration(self.every).total_seconds() if self.every else 0.0

    @property
    def has_state(self) -> bool:
        return not self.realtime

    def patch_tag(self, generation: int, tag: str = "") -> str:
        """Each generation has a query of its own, unless the query has no state."""
        return generation_tag(tag or self.tag, generation) if self.has_state else tag or self.tag

    def admitted(self, source: StreamSource) -> timedelta:
        """How much later than its time a record is taken in."""
        return duration(self.keep_state) if self.late == "amend" else source.late_by


def late_view(view: StreamView) -> StreamView | None:
    """The view of what is late for `view`, by the ids of the records; None if it does not keep them.

    Each class is a source of its own: records with the same id are of one class, so one task sends them, in the order
    of the log, and the last one is the row. If several sources of `view` read a class, it is late as soon as one of
    them leaves it out.
    """
    if view.late != "keep":
        return None
    strictest: dict[Kind, StreamSource] = {}
    for source in view.sources.values():
        for kind in source.classes:
            strictest[kind] = min(strictest.get(kind, source), source, key=lambda one: one.late_by)
    # by the type of the class: those of events have a dot, so no observation has the same
    sources = {kind.type: replace(source, classes=(kind,), is_of_late=True) for kind, source in strictest.items()}
    same = {name for name, kind in LATE_COLUMNS.items() if view.types.get(name) is kind}
    return StreamView(
        name=view.late_name,
        version=view.version,
        key=LATE_KEY,
        columns=LATE_COLUMNS,
        sources=sources,
        sealed=tuple(frozenset[str]().union(*(source.sealed for source in sources.values()))),
        query=late_rows,
        stores=tuple(store.narrowed(same, LATE_KEY) for store in view.stores),
        doc=f"what was too late for {view.name}",
    )


def late_rows(**sources: DataFrame) -> DataFrame:
    """The rows of all sources, as they are."""
    return reduce(lambda all_rows, rows: all_rows.unionByName(rows), sources.values())
