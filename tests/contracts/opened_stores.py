"""Every store as the contract tests see it: opened, read back through the alias, and cleaned up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

import orjson
import psycopg
import valkey
from elasticsearch import helpers

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.elasticsearch.store import ElasticsearchStore
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.names import alias_name, cache_key, cache_pointer, index_name, table_name
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Target, ViewStore, no_fault
from headwater.projections.stores.valkey.store import ValkeyStore
from headwater.projections.table.layout import DELETED
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View
from tests.support.elasticsearch_client import elasticsearch

Fault = Callable[[str], None]
Rows = dict[str, dict[str, Any]]


class Server(ABC):
    """A server, on which any number of stores are opened; a context that leaves nothing behind."""

    def __init__(self) -> None:
        self._opened: list[ViewStore] = []

    def open(self, fault: Fault = no_fault) -> ViewStore:
        """Another store on this server."""
        store = self.store(fault)
        self._opened.append(store)
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._opened:
            store.close()
        self.clean()

    @abstractmethod
    def store(self, fault: Fault) -> ViewStore: ...

    @abstractmethod
    def rows(self, view: View) -> Rows:
        """What a reader finds under the view's alias, as `reference.fold` gives it."""

    def remains(self, target: Target) -> bool:
        """Whether anything is left of a generation that was dropped."""
        raise NotImplementedError

    def lose_rows(self, target: Target) -> None:
        """Delete the rows of a generation, as somebody who knows nothing of ledgers may do it."""
        raise NotImplementedError

    @abstractmethod
    def clean(self) -> None: ...


class OnMemory(Server):
    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()

    def store(self, fault: Fault) -> ViewStore:
        return MemoryStore(self.memory, fault)

    def rows(self, view: View) -> Rows:
        return MemoryStore(self.memory).rows(Target(view, self.memory.published[view.name]))

    def clean(self) -> None:
        pass


class RealServer(Server):
    """A server of the stack, which is reached with these settings."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__()
        self.settings = settings


class OnPostgres(RealServer):
    def store(self, fault: Fault) -> ViewStore:
        return PostgresStore(self.settings, fault)

    def rows(self, view: View) -> Rows:
        with psycopg.connect(self.settings.postgres, row_factory=psycopg.rows.dict_row) as connection:
            found = connection.execute(f'SELECT * FROM "{self.settings.environment}"."{view.name}"').fetchall()
        return {
            row[view.key_name]: {name: _plain(row[name], kind) for name, kind in view.types.items()} for row in found
        }

    def lose_rows(self, target: Target) -> None:
        with psycopg.connect(self.settings.postgres) as connection:
            table = table_name(target.view.name, target.generation)
            connection.execute(f'DROP TABLE "{self.settings.environment}"."{table}" CASCADE')

    def clean(self) -> None:
        with psycopg.connect(self.settings.postgres) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self.settings.environment}" CASCADE')


class OnElasticsearch(RealServer):
    def store(self, fault: Fault) -> ViewStore:
        return ElasticsearchStore(self.settings, fault)

    def rows(self, view: View) -> Rows:
        alias = alias_name(self.settings.environment, view.name)
        with elasticsearch(self.settings.elasticsearch) as client:
            client.indices.refresh(index=alias)
            query = {"query": {"bool": {"must_not": {"term": {DELETED: True}}}}}
            hits = [hit["_source"] for hit in helpers.scan(client, index=alias, query=query)]
        return {hit[view.key_name]: _shown(view, hit) for hit in hits}

    def remains(self, target: Target) -> bool:
        with elasticsearch(self.settings.elasticsearch) as client:
            index = index_name(self.settings.environment, target.view.name, target.generation)
            return bool(client.indices.exists(index=index))

    def lose_rows(self, target: Target) -> None:
        with elasticsearch(self.settings.elasticsearch) as client:
            client.indices.delete(index=index_name(self.settings.environment, target.view.name, target.generation))

    def clean(self) -> None:
        with elasticsearch(self.settings.elasticsearch) as client:
            for index in client.indices.get(index=f"{self.settings.environment}.*"):
                client.indices.delete(index=index)


class OnValkey(RealServer):
    def store(self, fault: Fault) -> ViewStore:
        return ValkeyStore(self.settings, fault)

    def rows(self, view: View) -> Rows:
        with valkey.Valkey.from_url(self.settings.valkey) as client:
            client_: Any = client
            generation = int(client_.get(cache_pointer(self.settings.environment, view.name)))
            keys = client_.scan_iter(match=f"{self.settings.environment}:{view.name}:g{generation}:*", count=1000)
            documents = [client_.hget(key, "doc") for key in keys]
        found = [orjson.loads(document) for document in documents if document is not None]
        return {document[view.key_name]: _shown(view, document) for document in found}

    def remains(self, target: Target) -> bool:
        rows = cache_key(self.settings.environment, target.view.name, target.generation, "*")
        with valkey.Valkey.from_url(self.settings.valkey) as client:
            return any(client.scan_iter(match=rows, count=1000))

    def clean(self) -> None:
        with valkey.Valkey.from_url(self.settings.valkey) as client:
            for key in client.scan_iter(match=f"{self.settings.environment}:*", count=1000):
                client.delete(key)


def _shown(view: View, document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in view.types}


def _plain(value: Any, kind: ColumnType) -> Any:
    if value is not None and kind is ColumnType.POINT:
        longitude, latitude = value.strip("()").split(",")
        return {"lat": float(latitude), "lon": float(longitude)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date | UUID):
        return str(value)
    return value
