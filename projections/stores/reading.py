"""Whole generations read back from a store, row by row: what `replay verify` and `replay diff` compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Protocol

import orjson
import psycopg
from elasticsearch import Elasticsearch, NotFoundError, helpers
from psycopg import sql

from projections.errors import GenerationMissing, StoreUnavailable
from projections.monoids import State
from projections.settings import StoreSettings
from projections.stores import elasticsearch_bulk, postgres_bulk, valkey
from projections.stores.elasticsearch_mapping import STATE
from projections.stores.names import cache_key, document_id, index_name, table_key, table_name
from projections.stores.store import Target
from projections.types import ColumnType

CHUNK_ROWS: Final = 1_000

Rows = Iterator[tuple[str, State]]


class RowReader(Protocol):
    """Reads the state of rows, deleted ones too; fields that hold nothing are left out.

    Raises StoreUnavailable, and GenerationMissing where the generation is not in the store.
    """

    def rows(self, target: Target) -> Rows:
        """Every row, in any order, each as it is at some moment after the call."""

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        """The rows of these keys as they are now; those that are not there are left out."""


def open_reader(store: str, settings: StoreSettings) -> RowReader:
    """The reader of the store of this name."""
    readers: dict[str, type[PostgresRows | ElasticsearchRows | ValkeyRows]] = {
        "postgres": PostgresRows,
        "elasticsearch": ElasticsearchRows,
        "valkey": ValkeyRows,
    }
    return readers[store](settings)


class PostgresRows:
    """Tables; every call connects anew."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        with self._connected(target) as connection, connection.cursor("rows") as cursor:
            cursor.itersize = CHUNK_ROWS
            cursor.execute(self._select(target, sql.SQL("true")))
            yield from (_of_table(target, row) for row in cursor)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        condition = sql.SQL("{} = ANY(%s)").format(sql.Identifier(target.view.key_name))
        stored = [table_key(key) for key in keys]
        with self._connected(target) as connection:
            return dict(_of_table(target, row) for row in connection.execute(self._select(target, condition), [stored]))

    def _select(self, target: Target, condition: sql.SQL | sql.Composed) -> sql.Composed:
        names = (target.view.key_name, *(field.name for field in target.view.layout.fields))
        return sql.SQL("SELECT {} FROM {} WHERE {}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(self._settings.environment, table_name(target.view.name, target.generation)),
            condition,
        )

    def _connected(self, target: Target) -> Any:
        return _Translated(self._settings.postgres, target)


class _Translated:
    """A connection whose errors are Headwater's."""

    def __init__(self, url: str, target: Target) -> None:
        self._url, self._target = url, target

    def __enter__(self) -> psycopg.Connection[Any]:
        try:
            self._connection = psycopg.connect(self._url, connect_timeout=3, options="-c timezone=UTC")
        except psycopg.OperationalError as error:
            raise StoreUnavailable(postgres_bulk.NAME, str(error).strip()) from error
        return self._connection

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._connection.close()
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
            raise GenerationMissing(self._target.view.name, self._target.generation) from error
        if isinstance(error, psycopg.OperationalError):
            raise StoreUnavailable(postgres_bulk.NAME, str(error).strip()) from error


class ElasticsearchRows:
    """Indexes; every call connects anew."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        index = index_name(self._settings.environment, target.view.name, target.generation)
        with elasticsearch_bulk.translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60) as client:
            try:
                client.indices.refresh(index=index)
            except NotFoundError as error:
                raise GenerationMissing(target.view.name, target.generation) from error
            for hit in helpers.scan(client, index=index, size=CHUNK_ROWS):
                yield _of_document(target, hit["_source"])

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        index = index_name(self._settings.environment, target.view.name, target.generation)
        with elasticsearch_bulk.translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60) as client:
            answer = client.mget(index=index, ids=[document_id(key) for key in keys])
        if any("error" in each for each in answer["docs"]):
            raise GenerationMissing(target.view.name, target.generation)
        return dict(_of_document(target, each["_source"]) for each in answer["docs"] if each["found"])


class ValkeyRows:
    """Hashes; every call connects anew."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        prefix = cache_key(self._settings.environment, target.view.name, target.generation, "")
        with valkey.translated(), closing(valkey.connect(self._settings.valkey)) as client:
            names = client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)
            while chunk := list(islice(names, CHUNK_ROWS)):
                keys = [name.decode().removeprefix(prefix) for name in chunk]
                yield from _of_hashes(keys, self._states(client, chunk))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        environment = self._settings.environment
        names = [cache_key(environment, target.view.name, target.generation, key) for key in keys]
        with valkey.translated(), closing(valkey.connect(self._settings.valkey)) as client:
            return dict(_of_hashes(keys, self._states(client, names)))

    def _states(self, client: Any, names: Sequence[Any]) -> list[bytes | None]:
        with client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hget(name, "state")
            found: list[bytes | None] = pipeline.execute()
        return found


def _of_table(target: Target, row: Sequence[Any]) -> tuple[str, State]:
    values = zip(target.view.layout.fields, row[1:], strict=True)
    return row[0], _touched({field.name: _plain(value, field.type) for field, value in values if value is not None})


def _plain(value: Any, kind: ColumnType) -> Any:
    """A value of PostgreSQL's in the form that the other stores keep."""
    match kind:
        case ColumnType.COUNTS | ColumnType.ENTRIES:
            return json.loads(value)
        case ColumnType.POINT:
            longitude, latitude = value.strip("()").split(",")
            return {"lat": float(latitude), "lon": float(longitude)}
        case _ if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _:
            return value


def _of_document(target: Target, source: dict[str, Any]) -> tuple[str, State]:
    state = {field.name: source.get(field.name) for field in target.view.layout.fields} | source[STATE]
    return source[target.view.key_name], _touched(state)


def _of_hashes(keys: Sequence[str], states: Iterable[bytes | None]) -> Rows:
    for key, state in zip(keys, states, strict=True):
        if state is not None:
            yield key, _touched(orjson.loads(state))


def _touched(state: State) -> State:
    """A list that events touched and left empty is as good as one that none touched."""
    return {name: value for name, value in state.items() if value is not None and value not in ([], {})}
