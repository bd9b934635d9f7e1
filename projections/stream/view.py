"""The declaration of a stream view: rows that a query of Spark Structured Streaming computes by event time."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from projections.errors import ViewDeclarationError
from projections.stream.durations import duration
from projections.stream.query_text import query_digest
from projections.stream.sources import Observed
from projections.table.folds.fold import Stored
from projections.table.layout import Layout
from projections.table.lookups import Lookup, by_column
from projections.table.monoids import Pick, StateField
from projections.table.shown import Itself
from projections.table.types import ColumnType
from projections.table.view import NAME, RESERVED, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query = Callable[..., "DataFrame"]
Late = Literal["amend", "drop"]
BATCH: Final = "_batch"
"""State field with the number of the batch that computed the row; a later batch replaces the row."""
KEY_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.TIME)
COLUMN_TYPES: Final = (*KEY_TYPES, ColumnType.FLOAT, ColumnType.POINT, ColumnType.JSON)


@dataclass(frozen=True)
class StreamView:
    """A view that a query computes from streams; registered by assigning it in a module of HEADWATER_MODULES.

    name: of the table, index and API path. version: change it with the declaration or the query; a new version is a
    rebuild.
    key: the columns that identify a row. columns: the columns that the query returns, with their types.
    sources: what the query reads, by the name of its argument: `observations(…)`.
    query: a function from a DataFrame per source to a DataFrame with `columns`. A row that it returns replaces the
    row with the same key.
    late: what happens to a late observation. "drop" leaves it out, and counts it; "amend" takes it in for as long as
    `keep_state`, so that the row is sent again.
    final: send a row once, when no admitted observation can change it any more, instead of after each change.
    stores: where it is stored; the first one answers queries.
    key_name: the column with the row's key as one text, if the key has several columns: their texts joined by "/".
    """

    name: str
    key: str | tuple[str, ...]
    columns: Mapping[str, ColumnType]
    sources: Mapping[str, Observed]
    query: Query
    stores: tuple[Store, ...]
    late: Late = "drop"
    keep_state: str = ""
    final: bool = False
    version: int = 1
    key_name: str = ""
    doc: str = ""
    lookups: tuple[Lookup, ...] = ()
    layout: Layout = field(init=False)
    types: Mapping[str, ColumnType] = field(init=False)
    """The type of every visible stored column, the key first."""
    looked_up: Mapping[str, Lookup] = field(init=False)
    """The lookup of each looked-up column."""
    query_digest: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._check()
            object.__setattr__(self, "query_digest", query_digest(self.query))
            if not self.key_name:
                object.__setattr__(self, "key_name", "key" if len(self.key_columns) > 1 else self.key_columns[0])
            self._check_key()
            shown = {name: kind for name, kind in self.columns.items() if name != self.key_name}
            object.__setattr__(self, "layout", _layout(shown))
            object.__setattr__(self, "types", {self.key_name: ColumnType.TEXT, **shown})
            object.__setattr__(self, "looked_up", by_column(self.lookups, self.types))
            self._check_stores()
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def tag(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it is made from."""
        return tuple(dict.fromkeys(source.topic for source in self.sources.values()))

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the rows; if it changes, the version must change."""
        return hashlib.sha256("\n".join(self.declaration).encode()).hexdigest()[:16]

    @property
    def declaration(self) -> list[str]:
        """Everything that determines the rows, as lines to compare."""
        parts = [self.tag, f"key {', '.join(self.key_columns)}", self.key_name]
        parts += [f"{name}={kind.value}" for name, kind in sorted(self.columns.items())]
        parts += [f"source {name}: {source.declaration}" for name, source in sorted(self.sources.items())]
        parts += [f"late: {self.late} {self.keep_state}".strip()]
        parts += ["final"] if self.final else []
        parts += [store.declaration for store in self.stores]
        return [*parts, f"query {self.query.__name__}: {self.query_digest}"]

    def admitted(self, source: Observed) -> timedelta:
        """How much later than it was observed an observation is taken in."""
        return duration(self.keep_state) if self.late == "amend" else source.late

    def store(self, name: str) -> Store | None:
        """The view's store with this name, or None if it has none."""
        return next((store for store in self.stores if store.name == name), None)

    def _check(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError("invalid name: use a-z, 0-9 and _, at most 41 characters")
        if RESERVED.fullmatch(self.name):
            raise ValueError("this name is reserved by Headwater: use another name")
        for name in (*self.columns, *(name for lookup in self.lookups for name in lookup.columns)):
            if not NAME.fullmatch(name):
                raise ValueError(f'"{name}" is not a column name: use a-z, 0-9 and _')
        for name, kind in self.columns.items():
            if kind not in COLUMN_TYPES:
                known = ", ".join(each.name for each in COLUMN_TYPES)
                raise ValueError(f'column "{name}" has the type {kind!r}: use one of {known}')
        if not self.sources:
            raise ValueError("it has no source: add sources={…: observations(…)}")
        for name, source in self.sources.items():
            try:
                source.check()
            except ValueError as error:
                raise ValueError(f'source "{name}": {error}') from error
        self._check_late()
        self._check_arguments()

    def _check_late(self) -> None:
        if self.late not in ("amend", "drop"):
            raise ValueError(f'late="{self.late}" is unknown: use "amend" or "drop"')
        if self.late == "drop" and self.keep_state:
            raise ValueError('keep_state says how long late observations amend a row: use it with late="amend" only')
        if self.late == "amend" and not self.keep_state:
            raise ValueError('late="amend" needs keep_state, such as keep_state="7d": how long a row can be amended')
        if self.late == "amend" and self.final:
            raise ValueError('a final row is sent once, so nothing can amend it: use late="drop", or leave out final')
        for name, source in self.sources.items():
            if self.admitted(source) < source.late:
                raise ValueError(f'keep_state="{self.keep_state}" is shorter than late_after of source "{name}"')

    def _check_arguments(self) -> None:
        try:
            inspect.signature(self.query).bind(**self.sources)
        except TypeError as error:
            raise ValueError(f"its query must take an argument per source ({', '.join(self.sources)}): {error}") from error

    def _check_key(self) -> None:
        if not self.key_columns:
            raise ValueError("it has no key: name the columns that identify a row")
        for name in self.key_columns:
            if name not in self.columns:
                raise ValueError(f'key column "{name}" is not a column: it has {", ".join(self.columns)}')
            if self.columns[name] not in KEY_TYPES:
                known = ", ".join(each.name for each in KEY_TYPES)
                raise ValueError(f'key column "{name}" is {self.columns[name].name}: use one of {known}')
        if not NAME.fullmatch(self.key_name):
            raise ValueError(f'"{self.key_name}" is not a column name: use a-z, 0-9 and _')
        if self.key_name not in self.columns:
            return
        if self.key_columns != (self.key_name,) or self.columns[self.key_name] is not ColumnType.TEXT:
            raise ValueError(f'the text of its key needs a column of its own, not "{self.key_name}": set key_name')

    def _check_stores(self) -> None:
        if not self.stores:
            raise ValueError("it has no store: add stores=(Postgres(),)")
        for store in self.stores:
            named = [*getattr(store, "text", ()), *getattr(store, "facets", ())]
            named += [column for index in getattr(store, "indexes", ()) for column in index]
            unknown = [column for column in named if column not in self.types]
            if unknown:
                raise ValueError(f'{store.name} names the unknown column "{unknown[0]}"')

    # what the interim `TableView` annotations of stores need
    @property
    def deleted_by(self) -> tuple[Any, ...]:
        """No event deletes its rows."""
        return ()


def _layout(columns: Mapping[str, ColumnType]) -> Layout:
    """The columns behind one order, so that a row is replaced as a whole by a later batch."""
    order = StateField(BATCH, ColumnType.INTEGER, ordering=True)
    values = tuple(StateField(name, kind) for name, kind in columns.items())
    stored = Stored(Pick((order,), values, highest=True), {})
    return Layout((stored,), {name: Itself(name) for name in columns}, dict(columns))
