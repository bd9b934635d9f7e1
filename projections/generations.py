"""The registry of generations, in PostgreSQL: which were built, which is live; one updated row is the swap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb

from projections.errors import GenerationMissing, RebuildFailed, StoreUnavailable, ViewDeclarationError
from projections.view import TableView

SCHEMA = """
-- everything that Headwater keeps in this database
CREATE SCHEMA IF NOT EXISTS {schema};

-- every generation of every view; base: log offsets that bulk covered, start: patches offsets to go on from
CREATE TABLE IF NOT EXISTS {schema}.generations (
    view        text NOT NULL,
    generation  integer NOT NULL,
    version     integer NOT NULL,
    tag         text NOT NULL,
    fingerprint text NOT NULL,
    state       text NOT NULL CHECK (state IN ('building', 'live', 'retired')),
    base        jsonb NOT NULL,
    start       jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    live_at     timestamptz,
    PRIMARY KEY (view, generation)
);

-- the live generation of each view: updating this row is the swap
CREATE TABLE IF NOT EXISTS {schema}.live_views (
    view       text PRIMARY KEY,
    generation integer NOT NULL,
    FOREIGN KEY (view, generation) REFERENCES {schema}.generations
);
"""

ALL = "SELECT * FROM {schema}.generations ORDER BY view, generation"

LIVE = """
SELECT generations.* FROM {schema}.generations JOIN {schema}.live_views USING (view, generation) ORDER BY view
"""

BEGIN = """
INSERT INTO {schema}.generations (view, generation, version, tag, fingerprint, state, base, start)
SELECT %(view)s, coalesce(max(generation), 0) + 1, %(version)s, %(tag)s, %(fingerprint)s,
       'building', %(base)s, %(start)s
FROM {schema}.generations WHERE view = %(view)s
RETURNING *
"""

RETIRE = "UPDATE {schema}.generations SET state = 'retired' WHERE view = %s AND state = 'live'"

MARK_LIVE = "UPDATE {schema}.generations SET state = 'live', live_at = now() WHERE view = %s AND generation = %s"

SWAP = """
INSERT INTO {schema}.live_views (view, generation) VALUES (%s, %s)
ON CONFLICT (view) DO UPDATE SET generation = excluded.generation
"""

FORGET = "DELETE FROM {schema}.generations WHERE view = %s AND generation = %s AND state <> 'live'"

LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


@dataclass(frozen=True)
class Generation:
    """One generation of a view, as the registry has it. base, start: offsets by partition (as text, from JSON)."""

    view: str
    generation: int
    version: int
    tag: str
    fingerprint: str
    state: str
    base: Mapping[str, int]
    start: Mapping[str, int]
    created_at: datetime
    live_at: datetime | None


class Generations:
    """The registry of one deployment. Every method raises StoreUnavailable when PostgreSQL does not answer."""

    def __init__(self, url: str, environment: str) -> None:
        self._url, self._environment = url, environment

    def prepare(self) -> None:
        """Create the registry's schema and tables where they are missing."""
        with self._connect() as connection:
            # two processes that start at once would both find it missing
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._lock_name("schema")])
            connection.execute(self._sql(SCHEMA))

    def all(self) -> list[Generation]:
        """Every generation, by view and number."""
        return self._generations(ALL)

    def live(self) -> dict[str, Generation]:
        """The live generation of each view that has one."""
        return {generation.view: generation for generation in self._generations(LIVE)}

    def begin(self, view: TableView, base: Mapping[int, int], start: Mapping[int, int]) -> Generation:
        """Register the next generation of `view`, as building."""
        values = {
            "view": view.name,
            "version": view.version,
            "tag": view.tag,
            "fingerprint": view.fingerprint,
            "base": Jsonb({str(partition): offset for partition, offset in base.items()}),
            "start": Jsonb({str(partition): offset for partition, offset in start.items()}),
        }
        with self._connect() as connection, connection.cursor(row_factory=class_row(Generation)) as cursor:
            begun = cursor.execute(self._sql(BEGIN), values).fetchone()
        if begun is None:
            raise GenerationMissing(view.name)
        return begun

    def swap(self, view: str, generation: int) -> None:
        """Make `generation` the live one, in one transaction; the one before it is retired."""
        with self._connect() as connection:
            connection.execute(self._sql(RETIRE), [view])
            if connection.execute(self._sql(MARK_LIVE), [view, generation]).rowcount != 1:
                raise GenerationMissing(view, generation)
            connection.execute(self._sql(SWAP), [view, generation])

    def forget(self, view: str, generation: int) -> None:
        """Take a generation that is not live out of the registry."""
        with self._connect() as connection:
            connection.execute(self._sql(FORGET), [view, generation])

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[None]:
        """Hold the right to rebuild `view`; raises RebuildFailed where another process holds it."""
        with self._connect(autocommit=True) as connection:
            cursor = connection.cursor(row_factory=scalar_row)
            if not cursor.execute(LOCK, [self._lock_name(view)]).fetchone():
                raise RebuildFailed(view, "start", "another rebuild of it is running: wait for it or stop it")
            yield

    def check(self, view: TableView) -> Generation | None:
        """The live generation of `view`, if any; raises ViewDeclarationError where it was declared otherwise.

        A live generation of another version is returned: it serves until the new version is built.
        """
        live = self.live().get(view.name)
        if live is not None and live.version == view.version and live.fingerprint != view.fingerprint:
            raise ViewDeclarationError(
                view.name, f"its declaration changed, but it is still version {view.version}: raise its version"
            )
        return live

    def _generations(self, query: str) -> list[Generation]:
        with self._connect() as connection, connection.cursor(row_factory=class_row(Generation)) as cursor:
            return cursor.execute(self._sql(query)).fetchall()

    @contextmanager
    def _connect(self, autocommit: bool = False) -> Iterator[psycopg.Connection[Any]]:
        try:
            with psycopg.connect(self._url, autocommit=autocommit, connect_timeout=3) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._environment))

    def _lock_name(self, what: str) -> str:
        return f"headwater/{self._environment}/{what}"
