"""A second kind of view: its patches bring whole rows, and an event does not tell which rows it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.layout import DELETED, Itself, Layout
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.monoids import Pick, StateField
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.view import View

BATCH = "_batch"


@dataclass(frozen=True)
class WholeRows(View):
    """A row of a later batch replaces one of an earlier batch."""

    name: str
    key_name: str
    columns: Mapping[str, ColumnType]
    stores: tuple[DeclaredStore, ...]
    version: int = 1
    doc: str = ""
    lookups: tuple[Lookup, ...] = ()
    readable_by: Mapping[str, Claim] = field(default_factory=dict)
    classes: tuple[type[Event] | type[Captured], ...] = ()

    @property
    def layout(self) -> Layout:
        order = StateField(BATCH, ColumnType.INTEGER, ordering=True)
        values = [StateField(name, kind) for name, kind in self.columns.items()]
        row = Pick((order,), (*values, StateField(DELETED, ColumnType.BOOLEAN)), highest=True)
        return Layout((row,), {name: Itself(name) for name in self.columns}, self.columns)

    @property
    def declaration(self) -> list[str]:
        return [self.tag, *map(str, self.columns.items())]

    @property
    def topics(self) -> tuple[str, ...]:
        return (EVENTS, OBSERVATIONS)

    @property
    def tables(self) -> Mapping[str, type[Captured]]:
        return {}

    def named(self, name: str) -> WholeRows:
        return replace(self, name=name)

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def key_fields(self, event: type[Event]) -> tuple[()]:
        return ()

    def handles(self, event_type: str) -> bool:
        return True

    def rows_of(self, envelope: Envelope) -> None:
        return None


BUSIEST = WholeRows(
    "busiest",
    "hour",
    {"listing": ColumnType.TEXT, "views": ColumnType.INTEGER, "at": ColumnType.TIME},
    (Postgres(indexes=(("views",),)), Elasticsearch(facets=("listing",)), Cache()),
)
KINDS: tuple[type[View], ...] = (TableView, WholeRows)
