"""The registry of generations, in PostgreSQL: which were built, which is live; one updated row is the swap."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

-- stores: where it was built; declaration: its lines; published: whether the plain names lead to it;
-- events, seconds: what bulk read and how long it took;
-- source, selection: of a view of some of the events, the view that it was made from, and which events
ALTER TABLE {schema}.generations
    ADD COLUMN IF NOT EXISTS stores      jsonb NOT NULL DEFAULT '["postgres", "elasticsearch", "valkey"]',
    ADD COLUMN IF NOT EXISTS declaration jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN IF NOT EXISTS published   boolean NOT NULL DEFAULT true,
    ADD COLUMN IF NOT EXISTS events      bigint,
    ADD COLUMN IF NOT EXISTS seconds     double precision,
    ADD COLUMN IF NOT EXISTS source      text,
    ADD COLUMN IF NOT EXISTS selection   text;

-- the last number given to a generation of each view: none is given twice, for what writes to one may outlive it
CREATE TABLE IF NOT EXISTS {schema}.generation_numbers (view text PRIMARY KEY, last integer NOT NULL);

-- the live generation of each view: updating this row is the swap
CREATE TABLE IF NOT EXISTS {schema}.live_views (
    view       text PRIMARY KEY,
    generation integer NOT NULL,
    FOREIGN KEY (view, generation) REFERENCES {schema}.generations
);
"""

COLUMNS = (
    "view, generation, version, tag, fingerprint, state, base, start, created_at, live_at, "
    "stores, declaration, published, events, seconds, source, selection"
)

ALL = f"SELECT {COLUMNS} FROM {{schema}}.generations ORDER BY view, generation"  # noqa: S608

LIVE = f"""
SELECT {COLUMNS} FROM {{schema}}.generations JOIN {{schema}}.live_views USING (view, generation) ORDER BY view
"""  # noqa: S608

BEGIN = f"""
WITH number AS (
    INSERT INTO {{schema}}.generation_numbers AS given (view, last)
    SELECT %(view)s, coalesce(max(generation), 0) + 1 FROM {{schema}}.generations WHERE view = %(view)s
    ON CONFLICT (view) DO UPDATE SET last = given.last + 1
    RETURNING last
)
INSERT INTO {{schema}}.generations
    (view, generation, version, tag, fingerprint, state, base, start, stores, declaration, published, source, selection)
SELECT %(view)s, last, %(version)s, %(tag)s, %(fingerprint)s,
       'building', %(base)s, %(start)s, %(stores)s, %(declaration)s, false, %(source)s, %(selection)s
FROM number
RETURNING {COLUMNS}
"""  # noqa: S608

RETIRE = "UPDATE {schema}.generations SET state = 'retired' WHERE view = %s AND state = 'live'"

MARK_LIVE = "UPDATE {schema}.generations SET state = 'live', live_at = now() WHERE view = %s AND generation = %s"

SWAP = """
INSERT INTO {schema}.live_views (view, generation) VALUES (%s, %s)
ON CONFLICT (view) DO UPDATE SET generation = excluded.generation
"""

PUBLISHED = "UPDATE {schema}.generations SET published = (generation = %s) WHERE view = %s"

WITHDRAW = "DELETE FROM {schema}.live_views WHERE view = %s"

FORGET = "DELETE FROM {schema}.generations WHERE view = %s AND generation = %s AND state <> 'live'"

MEASURED = "UPDATE {schema}.generations SET events = %s, seconds = %s WHERE view = %s AND generation = %s"

LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"

# an advisory lock on a bigint is listed by its two halves
HOLDER = """
SELECT application_name || ', since ' || to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
FROM pg_locks JOIN pg_stat_activity USING (pid), hashtextextended(%s, 0) AS held
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND (classid::bigint << 32 | objid::bigint) = held
"""


@dataclass(frozen=True)
class Generation:
    """One generation of a view, as the registry has it.

    base, start: offsets by partition (as text, from JSON). stores: where it was built. declaration: its lines.
    published: whether the plain names lead to it. events, seconds: what bulk read, and how long that took.
    source, selection: of a view of some of the events.
    """

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
    stores: Sequence[str]
    declaration: Sequence[str]
    published: bool
    events: int | None
    seconds: float | None
    source: str | None
    selection: str | None


class Right:
    """The right to rebuild one view; it goes with its connection."""

    def __init__(self, view: str, connection: psycopg.Connection[Any]) -> None:
        self._view, self._connection = view, connection

    def check(self) -> None:
        """Raise RebuildFailed where the connection broke meanwhile: another process may have taken the right."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            raise StoreUnavailable("PostgreSQL", f'the right to rebuild "{self._view}" was lost: {error}') from error


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
        return _by_view(self._generations(LIVE))

    def of(self, view: str) -> list[Generation]:
        """The generations of one view, oldest first."""
        return [each for each in self.all() if each.view == view]

    def begin(
        self,
        view: TableView,
        base: Mapping[int, int],
        start: Mapping[int, int],
        source: str | None = None,
        selection: str | None = None,
    ) -> Generation:
        """Register the next generation of `view`, as building; source, selection: see Generation."""
        values = {
            "view": view.name,
            "version": view.version,
            "tag": view.tag,
            "fingerprint": view.fingerprint,
            "base": Jsonb({str(partition): offset for partition, offset in base.items()}),
            "start": Jsonb({str(partition): offset for partition, offset in start.items()}),
            "stores": Jsonb([store.name for store in view.stores]),
            "declaration": Jsonb(view.declaration),
            "source": source,
            "selection": selection,
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

    def published(self, view: str, generation: int) -> None:
        """Note that the plain names lead to `generation` now."""
        with self._connect() as connection:
            connection.execute(self._sql(PUBLISHED), [generation, view])

    def measured(self, view: str, generation: int, events: int, seconds: float) -> None:
        """Note what bulk read and how long it took."""
        with self._connect() as connection:
            connection.execute(self._sql(MEASURED), [events, seconds, view, generation])

    def withdraw(self, view: str) -> None:
        """Let no generation of `view` be live any more."""
        with self._connect() as connection:
            connection.execute(self._sql(WITHDRAW), [view])
            connection.execute(self._sql(RETIRE), [view])

    def forget(self, view: str, generation: int) -> None:
        """Take a generation that is not live out of the registry."""
        with self._connect() as connection:
            connection.execute(self._sql(FORGET), [view, generation])

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[Right]:
        """Hold the right to rebuild `view`; raises RebuildFailed, with who holds it, where another process does."""
        lock = [self._lock_name(view)]
        # PostgreSQL shows 63 bytes of it to the one that is refused
        name = f"replay, process {os.getpid()} on {socket.gethostname()}"[:63]
        with self._connect(autocommit=True, application_name=name) as connection:
            cursor = connection.cursor(row_factory=scalar_row)
            if not cursor.execute(LOCK, lock).fetchone():
                holder = cursor.execute(HOLDER, lock).fetchone() or "one that has just ended"
                raise RebuildFailed(
                    view, "start", f"another rebuild of it is running ({holder}): wait for it or stop it"
                )
            yield Right(view, connection)

    def check(self, view: TableView) -> Generation | None:
        """The live generation of `view`, if any; raises ViewDeclarationError where it was declared otherwise.

        A live generation of another version is returned: it serves until the new version is built.
        """
        live = self.live().get(view.name)
        if live is not None and live.version == view.version and live.fingerprint != view.fingerprint:
            raise ViewDeclarationError(view.name, _changed(view, live))
        return live

    @contextmanager
    def followed(self) -> Iterator[Callable[[], dict[str, Generation]]]:
        """`live` for one who asks again and again: over a connection that stays open."""
        held: list[psycopg.Connection[Any]] = []

        def live() -> dict[str, Generation]:
            with self._answering():
                if not held:
                    held.append(psycopg.connect(self._url, connect_timeout=3, autocommit=True))
                try:
                    return _by_view(self._read(held[0], LIVE))
                except psycopg.OperationalError:
                    held.pop().close()
                    raise

        try:
            yield live
        finally:
            for connection in held:
                connection.close()

    def _generations(self, query: str) -> list[Generation]:
        with self._connect() as connection:
            return self._read(connection, query)

    def _read(self, connection: psycopg.Connection[Any], query: str) -> list[Generation]:
        with connection.cursor(row_factory=class_row(Generation)) as cursor:
            return cursor.execute(self._sql(query)).fetchall()

    @contextmanager
    def _connect(self, **options: Any) -> Iterator[psycopg.Connection[Any]]:
        with self._answering(), psycopg.connect(self._url, connect_timeout=3, **options) as connection:
            yield connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except psycopg.OperationalError as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._environment))

    def _lock_name(self, what: str) -> str:
        return f"headwater/{self._environment}/{what}"


def _by_view(generations: Iterable[Generation]) -> dict[str, Generation]:
    return {generation.view: generation for generation in generations}


def _changed(view: TableView, live: Generation) -> str:
    """Why a live generation of the same version, and another declaration, cannot be this view's."""
    if live.source is not None:
        return f'a view of this name was made from "{live.source}" with --as: remove it with `replay drop {view.name}`'
    lines = [line for line in difflib.ndiff(live.declaration, view.declaration) if line[0] in "-+"]
    changes = "".join(f"\n  {line}" for line in lines if live.declaration)
    return f"its declaration changed, but it is still version {view.version}: raise its version{changes}"
