"""The rows and ledgers of generations in PostgreSQL: read and written in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date
from functools import partial
from math import isfinite
from typing import Any, Final

import orjson
import psycopg
from psycopg import sql

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Rows, Size
from headwater.projections.stores.clear_columns import KEYS, ClearColumns, clear_state
from headwater.projections.stores.names import NUL, REPLACEMENT, table_key, table_name
from headwater.projections.stores.postgres import schema as ddl
from headwater.projections.stores.postgres.client import Client
from headwater.projections.stores.postgres.schema import clear_name
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.stores.writer import Advanced, Encoded, FirstKeys, ReadRow, RowStore
from headwater.projections.table.decimals import decimal_text, exact_decimal
from headwater.projections.table.layout import unsigned
from headwater.projections.table.monoids import State, StateField
from headwater.projections.table.patch import places_from_json, places_to_json
from headwater.projections.table.types import ColumnType

# the planner's estimate, from the last ANALYZE, which a rebuild and autovacuum run; -1 if there was none
SIZE: Final = (
    "SELECT reltuples::bigint, pg_relation_size(oid), pg_total_relation_size(oid) "
    "FROM pg_class WHERE oid = to_regclass(%s)"
)
COUNT: Final = sql.SQL("SELECT count(*) FROM {}")
COUNTED_BYTES: Final = 8 * 2**20
"""A table of up to this size is counted, in milliseconds: autovacuum may never look at it."""
# a row that somebody holds is left: so whoever removes rows is in no deadlock, and finds it the next time
DELETE: Final = """
DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {key} = ANY(%s) FOR UPDATE SKIP LOCKED)
RETURNING {key}
"""
FIND: Final = "SELECT {key} FROM {table} WHERE {column} <= %s LIMIT %s"


class HasNul(Exception):
    """A key or text contains NUL, which PostgreSQL's text cannot: it is stored as U+FFFD, in bulk and live."""


def rows_json(target: Target, states: Mapping[str, State], clear: ClearColumns) -> str:
    """Whole rows, by key. Raises KeysAway, and HasNul if a state has NUL, with which it must not be combined."""
    view = target.view
    forms = {field.name: form for field in view.layout.fields if (form := _form(field)) is not None}
    listed = []
    for key, state in states.items():
        changed = {name: form(state[name]) for name, form in forms.items() if state.get(name) is not None}
        derived = {name: shown.value(state) for name, shown in view.layout.derived.items()}
        listed.append({view.key_name: key, **state, **changed, **derived})
    if clear:
        for row, (values, key_ids) in zip(listed, clear.of_states(list(states.values())), strict=True):
            row.update({clear_name(name): value for name, value in values.items()})
            row[KEYS] = key_ids
    text = orjson.dumps(listed).decode()
    if "\\u0000" in text:  # rare, and slow to look for in every value
        if any(without_nul(state) != state for state in states.values()):
            raise HasNul
        text = orjson.dumps(without_nul(listed)).decode()  # of a value that was opened
    return text


def _form(field: StateField) -> Callable[[Any], Any] | None:
    """How a value of this field is written, if not as in JSON."""
    if field.entry:
        return partial(json_text, kind=field.type)
    match field.type:
        case ColumnType.TEXT | ColumnType.JSON | ColumnType.DATE | ColumnType.UUID:
            return _text
        case _ if field.type.is_decimal:
            return partial(_decimal, kind=field.type)  # PostgreSQL would round one with too many places
        case ColumnType.POINT:
            return lambda place: f"({place['lon']},{place['lat']})"
        case ColumnType.FLOAT:
            # a sum may exceed the numbers of JSON
            return lambda number: unsigned(number) if isfinite(number) else str(number)
        case _:
            return None


def _decimal(value: Any, kind: ColumnType) -> str:
    decimal_value = exact_decimal(value, kind.digits, kind.places) if isinstance(value, str) else None
    if decimal_value is None:
        raise ValueError(f"{value!r} is not a {kind.value}")
    return decimal_text(decimal_value, kind.places)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def json_text(held: Any, kind: ColumnType) -> str | None:
    """A state field with entries in the form of its column: a sketch is already text, others are JSON."""
    if held is None or kind is ColumnType.SKETCH:
        return held  # type: ignore[no-any-return]
    text = orjson.dumps(held).decode()
    return orjson.dumps(without_nul(held)).decode() if "\\u0000" in text else text


def without_nul(value: Any) -> Any:
    """`value` with every NUL in its texts replaced."""
    match value:
        case str():
            return value.replace(NUL, REPLACEMENT)
        case list():
            return [without_nul(item) for item in value]
        case dict():
            return {without_nul(name): without_nul(item) for name, item in value.items()}
        case _:
            return value


@dataclass
class LockedLedgers:
    """Ledgers that the transaction has locked. first: the rows that were asked for with them, until they are read."""

    ledgers: dict[int, Ledger]
    first: tuple[frozenset[str], psycopg.Cursor[Any]] | None


class PostgresRows(RowStore[LockedLedgers]):
    """The rows. The version of a row is PostgreSQL's own (`xmin` and `ctid`): every update makes a new one, also
    one that changes no value. Nothing else writes the rows of a partition while its ledger is locked.
    """

    def __init__(self, settings: StoreSettings, options: str = "") -> None:
        """options: see Client."""
        self._environment, self.client = settings.environment, Client(settings, options)

    @contextmanager
    def transaction(self, targets: Sequence[Target]) -> Iterator[None]:
        try:
            with self.client.transaction(pipelined=True):
                yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidColumnReference) as error:  # no primary key
            for target, held in zip(targets, self.all_ledgers(targets), strict=True):
                if not held:
                    raise GenerationMissing(*target.id) from error
            raise

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        """See ViewStore."""
        ledgers = {target.id: dict[int, Ledger]() for target in targets}
        tables = [sql.Identifier(self._environment, table_name(*table)).as_string() for table in ledgers]
        values = ([name for name, _ in ledgers], [number for _, number in ledgers], tables)
        try:
            with self.client.transaction(pipelined=True) as connection:
                rows = connection.execute(self.client.sql(ddl.READ_LEDGERS), values).fetchall()
        except psycopg.errors.UndefinedTable:  # never used, or emptied
            rows = []
        for view, generation, partition, after, applied in rows:
            ledgers[view, generation][partition] = Ledger(after, places_from_json(applied))
        return [ledgers[target.id] for target in targets]

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[LockedLedgers]:
        """One round trip to lock and read the ledgers, and to read the first rows."""
        ledgers = {target.id: LockedLedgers({}, None) for target in targets}
        values = ([name for name, _ in ledgers], [number for _, number in ledgers], list(partitions))
        locked = self.client.connection.execute(self.client.sql(ddl.LOCK_LEDGERS), values)
        for target in targets:
            if first is not None and (keys := first(target)):
                ledgers[target.id].first = frozenset(keys), self._select(target, keys)
        for view, generation, partition, after, applied in locked.fetchall():
            ledgers[view, generation].ledgers[partition] = Ledger(after, places_from_json(applied))
        return list(ledgers.values())

    def read_rows(self, target: Target, keys: Sequence[str], known: LockedLedgers) -> dict[str, ReadRow]:
        first, known.first = known.first, None
        cursor = first[1] if first is not None and first[0].issuperset(keys) else self._select(target, keys)
        rows = {key: ReadRow(state, {}, version) for key, state, version in _states(target, cursor)}
        return {key: rows.get(key) or ReadRow({}, {}) for key in keys}

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: LockedLedgers
    ) -> Encoded:
        clear = ClearColumns.of(target.view, "postgres", self._environment)
        document = rows_json(target, {key: row.state for key, row in rows.items() if row.change != "removed"}, clear)
        return Encoded(document, len(document))

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        removed = {key for key, row in rows.items() if row.change == "removed"}
        if len(removed) < len(rows):
            upsert = sql.SQL(ddl.upsert(self._environment, target))
            self.client.connection.execute(upsert, [encoded.writes])
        if removed:
            removed.difference_update(
                key for (key,) in self.client.connection.execute(self._row_sql(DELETE, target), [list(removed)])
            )
        return removed

    def write_ledgers(self, advanced: Sequence[Advanced[LockedLedgers]]) -> Collection[Target]:
        rows = [
            {
                "view": target.view.name,
                "generation": target.generation,
                "partition": partition,
                "next": ledger.next_offset,
                "applied": places_to_json(ledger.applied),
            }
            for target, _, ledgers, _ in advanced
            for partition, ledger in ledgers.items()
        ]
        if rows:
            self.client.connection.execute(self.client.sql(ddl.WRITE_LEDGERS), [orjson.dumps(rows).decode()])
        return ()

    def storable(self, value: Any) -> Any:
        return without_nul(value)

    def rows(self, target: Target) -> Rows:
        # a cursor of the server needs a transaction
        with self._reading(target) as connection, connection.cursor("rows") as cursor:
            cursor.itersize = CHUNK_ROWS
            cursor.execute(self._reading_of(target, "true"))
            yield from self._read(target, cursor)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with self._reading(target):
            return dict(self._read(target, self._select(target, list(map(table_key, keys)))))

    def size(self, target: Target) -> Size:
        table = sql.Identifier(self._environment, table_name(*target.id))
        with self._reading(target) as connection:
            row = connection.execute(SIZE, [table.as_string(connection)]).fetchone()
            if row is None:
                raise GenerationMissing(*target.id)
            rows, table_bytes, size_bytes = row
            if table_bytes <= COUNTED_BYTES:
                (rows,) = connection.execute(COUNT.format(table)).fetchone() or (None,)
        return Size(rows if rows is not None and rows >= 0 else None, size_bytes)

    def find_expired(self, target: Target, last_day: date, limit: int) -> list[str]:
        with self._reading(target) as connection:
            return [key for (key,) in connection.execute(self._row_sql(FIND, target), [last_day, limit])]

    def close(self) -> None:
        self.client.close()

    def _select(self, target: Target, keys: Sequence[str]) -> psycopg.Cursor[Any]:
        if any(NUL in key for key in keys):
            raise HasNul
        query = self._reading_of(target, f'"{target.view.key_name}" = ANY(%s)')
        return self.client.connection.execute(query, [keys])

    def _reading_of(self, target: Target, condition: str) -> sql.SQL:
        names = [field.name for field in target.view.layout.fields]
        return _select(self._environment, target, names, condition)

    def _read(self, target: Target, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, State]]:
        """The rows of such a query, for readers."""
        return ((key, state) for key, state, _ in _states(target, rows))

    def _row_sql(self, text: str, target: Target) -> sql.Composed:
        view = target.view
        return sql.SQL(text).format(
            table=sql.Identifier(self._environment, table_name(*target.id)),
            key=sql.Identifier(view.key_name),
            column=sql.Identifier("" if view.expiry is None else view.expiry.column),
        )

    @contextmanager
    def _reading(self, target: Target) -> Iterator[psycopg.Connection[Any]]:
        try:
            with self.client.transaction() as connection:
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationMissing(*target.id) from error


class ClearPostgresRows(PostgresRows):
    """Reads what rows show in clear, and when they expire, instead of their states."""

    def _reading_of(self, target: Target, condition: str) -> sql.SQL:
        names = [clear_name(name) for name in ClearColumns.of(target.view, "postgres", "").names]
        expiring = [] if target.view.expiry is None else [target.view.expiry.column]
        return _select(self._environment, target, [*names, *expiring], condition)

    def _read(self, target: Target, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, State]]:
        names = ClearColumns.of(target.view, "postgres", "").names
        for key, *values, _ in rows:
            if shown := clear_state(target.view, dict(zip(names, values, strict=False)), values[len(names) :]):
                yield key, shown


def _select(environment: str, target: Target, fields: Sequence[str], condition: str) -> sql.SQL:
    """Rows with their versions, by a query of checked names: loaders make it for each batch, and from parts it takes
    five times as long.
    """
    names = (target.view.key_name, *fields)
    columns, table = ", ".join(f'"{name}"' for name in names), f'"{environment}"."{table_name(*target.id)}"'
    return sql.SQL(f"SELECT {columns}, xmin::text || ctid::text FROM {table} WHERE {condition}")  # noqa: S608


def _states(target: Target, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, State, str]]:
    """The key, state and version of rows of these queries; empty fields are left out."""
    # asked once for all rows: of each value, it would take longer than all else
    fields = [(at, field.name, _conversion(field.type)) for at, field in enumerate(target.view.layout.fields, 1)]
    for row in rows:
        state: State = {}
        for at, name, convert in fields:
            value = row[at]
            if convert is not None and value is not None:
                value = convert(value)
            if value is not None:
                state[name] = value
        yield row[0], state, row[-1]


def _conversion(kind: ColumnType) -> Callable[[Any], Any] | None:
    """How a value of PostgreSQL comes into the form of the other stores, if it has another."""
    match kind:
        case ColumnType.COUNTS | ColumnType.ENTRIES:
            return lambda text: json.loads(text) or None
        case ColumnType.POINT:
            return _place
        case ColumnType.DATE | ColumnType.UUID:
            return str
        case ColumnType.TIME:
            return lambda time: time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _ if kind.is_decimal:
            return lambda number: decimal_text(number, kind.places)
    return None


def _place(text: str) -> dict[str, float]:
    longitude, latitude = text.strip("()").split(",")
    return {"lat": float(latitude), "lon": float(longitude)}
