"""The API's readers of real stores as the contract tests open them, and the stores that they read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headwater.api.reading import Live, ViewReader
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.projections.settings import StoreSettings
from headwater.projections.view import View
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, RealServer

PARTITIONS = 2
READ: dict[str, Callable[[StoreSettings], RealServer]] = {
    "postgres": OnPostgres,
    "elasticsearch": OnElasticsearch,
    "valkey": OnValkey,
}
"""By name, the stores that the API reads."""


@asynccontextmanager
async def opened_reader(name: str, settings: StoreSettings, view: View) -> AsyncIterator[ViewReader]:
    """The reader of the store with this name; it finds all rows that generation 1 of `view` has."""
    if name == "postgres":
        database = Database(settings.postgres, settings.environment)
        await database.open()
        try:
            yield PostgresReader(database, settings.environment)
        finally:
            await database.close()
        return
    reader: ElasticsearchReader | ValkeyReader = (
        ElasticsearchReader(settings.elasticsearch, settings.environment, PARTITIONS)
        if name == "elasticsearch"
        else ValkeyReader(settings.valkey, settings.environment)
    )
    await reader.open()
    try:
        if isinstance(reader, ElasticsearchReader):
            await reader.refresh(Live(view, 1, view.tag, {}))
        yield reader
    finally:
        await reader.close()
