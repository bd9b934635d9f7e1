"""The registry of generations, in PostgreSQL: which were built, and which are live. A swap is one transaction.

A view may have a live generation for each of two versions, so that code of the previous version serves until it ends:
code reads, loads and replays the generation of its own version. One of them is the current one: the aliases lead to
it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import psycopg
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb

from headwater.projections.errors import GenerationMissing, StoreUnavailable, ViewDeclarationError
from headwater.projections.generations.registry import statements
from headwater.projections.generations.registry.database import REGISTRY_S, QueryLocks, RebuildLock, RegistryDatabase
from headwater.projections.generations.registry.generation import (
    Generation,
    is_refused,
    served_by,
    why_refused,
)
from headwater.projections.generations.registry.state_files import StatePlace
from headwater.projections.stores.postgres.client import connect
from headwater.projections.view import View

NOTE_S: Final = 5.0
"""Seconds between two notes of a phase; each is a statement in PostgreSQL."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebuildProgress:
    """The progress of a rebuild that runs.

    phase, done, total: see Step; 0 of 0 if the phase counts nothing. changed_s: when they last changed, in seconds
    since 1970 by PostgreSQL's clock.
    """

    view: str
    phase: str
    done: int
    total: int
    changed_s: float


Note = Callable[[str, int, int], None]
"""Gets the phase, done and total; raises StoreUnavailable."""


class ProgressNotes:
    """Notes the progress of one rebuild from time to time; a note that fails is logged once, and stops nothing.

    Used by the threads of the rebuild.
    """

    def __init__(self, view: str, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._view, self._note, self._clock = view, note, clock
        self._lock = threading.Lock()
        self._noted: tuple[str, int, int] | None = None
        self._not_before = float("-inf")
        self._failed = False

    def take(self, phase: str, done: int, total: int) -> None:
        """Note this progress, if it is new, and it is time or the phase is another."""
        with self._lock:
            step, known = (phase, done, total), self._noted
            if step == known or (known is not None and known[0] == phase and self._clock() < self._not_before):
                return
            self._noted, self._not_before = step, self._clock() + NOTE_S
        try:
            self._note(*step)
        except StoreUnavailable as error:
            if not self._failed:
                log.warning("cannot note the progress of the rebuild of %s: %s", self._view, error)
            self._failed = True


class Generations(RegistryDatabase):
    """The registry of one deployment. Every method raises StoreUnavailable if PostgreSQL does not answer."""

    def all(self) -> list[Generation]:
        """Every generation, by view and number."""
        return self._generations(statements.ALL)

    def stores(self) -> set[str]:
        """The stores of all generations, also of kept ones that no view declares any more; none before the first."""
        try:
            return {store for generation in self.all() for store in generation.stores}
        except psycopg.errors.UndefinedTable:  # an erasure may come before the read side has made the registry
            return set()

    def live(self) -> dict[str, Generation]:
        """The current generation of each view, to which the aliases lead, by name."""
        return {generation.view: generation for generation in self._generations(statements.LIVE)}

    def serving(self, views: Iterable[View]) -> dict[str, Generation]:
        """By name, the generation that code with these declarations reads, for views that have one."""
        live = self._generations(statements.SERVED)
        serving = {view.name: served_by(view, live) for view in views}
        return {name: generation for name, generation in serving.items() if generation is not None}

    def being_built(self) -> list[Generation]:
        """The generations that a living process builds; other generations in that state are leftovers."""
        building = {
            generation.view: generation
            for generation in self._generations(statements.ALL)
            if generation.state == "building"
        }
        with self._connect() as connection:
            held = self._held(connection, building)
        # the holder of the lock drops earlier leftovers first, so the last one is its own
        return [building[view] for view in held]

    def rebuilds(self) -> list[RebuildProgress]:
        """How far the rebuilds are that run now, in any process."""
        with self._connect() as connection:
            with connection.cursor(row_factory=class_row(RebuildProgress)) as cursor:
                rows = cursor.execute(self._sql(statements.REBUILDS)).fetchall()
            held = self._held(connection, [rebuild.view for rebuild in rows]) if rows else []
        return [rebuild for rebuild in rows if rebuild.view in held]

    def note_rebuild(self, view: str, phase: str, done: int, total: int) -> None:
        """Record how far the rebuild of a view is."""
        self._note_about_rebuild(statements.NOTE_REBUILD, [view, phase, done, total])

    def forget_rebuild(self, view: str) -> None:
        """Record that the rebuild of a view has ended."""
        self._note_about_rebuild(statements.FORGET_REBUILD, [view])

    def _note_about_rebuild(self, statement: str, values: Sequence[object]) -> None:
        """Run a statement that only those who measure rebuilds need: nothing that PostgreSQL refuses stops one."""
        try:
            self._execute(statement, values)
        except psycopg.Error as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error

    def of(self, view: str) -> list[Generation]:
        """The generations of one view, oldest first."""
        return [generation for generation in self.all() if generation.view == view]

    def begin(
        self,
        view: View,
        bulk_ends: Mapping[str, int],
        patch_starts: Mapping[int, int],
        topics: Mapping[str, str],
        source: str | None = None,
        selection: str | None = None,
        above: int = 0,
    ) -> Generation:
        """Register the next generation of `view`, as building; topics, source, selection: see Generation.

        above: a number that is used in a store, which this registry may not know: a later one is given.
        """
        values = {
            "view": view.name,
            "above": above,
            "version": view.version,
            "tag": view.tag,
            "fingerprint": view.fingerprint,
            "base": Jsonb(dict(bulk_ends)),
            "start": Jsonb({str(partition): offset for partition, offset in patch_starts.items()}),
            "stores": Jsonb([store.name for store in view.stores]),
            "declaration": Jsonb(view.declaration),
            "row_types": Jsonb(view.row_types),
            "source": source,
            "selection": selection,
            "topics": Jsonb(dict(topics)),
        }
        with self._connect() as connection, connection.cursor(row_factory=class_row(Generation)) as cursor:
            begun = cursor.execute(self._sql(statements.BEGIN), values).fetchone()
        if begun is None:
            raise GenerationMissing(view.name)
        return begun

    def swap(self, view: str, generation: int, *, lock: RebuildLock | None = None, allow_older: bool = False) -> bool:
        """Make `generation` live for the code of its version, in one transaction; returns whether it is current now.

        The previous one is retired. A live generation of one other version stays, for running code of that version.
        lock: of the view, which must still be held. allow_older: make it the current one even if the current one has a
        later version.
        """
        with lock.transaction() if lock else self._connect() as connection:
            current = connection.execute(self._sql(statements.CURRENT), [view]).fetchone()
            names = {"view": view, "generation": generation, "current": current and current[0]}
            connection.execute(self._sql(statements.OUTDATE), names)
            marked = connection.execute(self._sql(statements.MARK_LIVE), names).fetchone()
            if marked is None:
                raise GenerationMissing(view, generation)
            takes_over = allow_older or current is None or current[1] <= marked[0]
            if takes_over:
                connection.execute(self._sql(statements.SWAP), names)
            return takes_over

    def note_published(self, view: str, generation: int) -> None:
        """Record that the aliases now lead to `generation`."""
        self._execute(statements.PUBLISHED, [generation, view])

    def note_unpublished(self, view: str, generation: int) -> None:
        """Record that an alias does not lead to `generation`."""
        self._execute(statements.UNPUBLISHED, [view, generation])

    def note_bulk(self, view: str, generation: int, events: int, seconds: float) -> None:
        """Record how many offsets bulk read and how long it took."""
        self._execute(statements.MEASURED, [events, seconds, view, generation])

    def note_replays(self, view: View, replays: int, pause_s: float) -> None:
        """Record that upkeep has replayed a view so often in a row, and does not do so again for some seconds."""
        values = {"view": view.name, "tag": view.tag, "replays": replays, "pause_s": pause_s}
        self._execute(statements.PUT_OFF, values)

    def pause(self, view: str) -> datetime:
        """Let no loader and no rebuild change `view` until `resume`; returns since when that is so.

        It takes the rebuild lock, so no rebuild runs at this moment; raises RebuildFailed, naming the process that
        holds it. It is one statement: whoever is killed has paused the view, or has not.
        """
        with self.rebuilding(view) as lock, lock.transaction() as connection:
            cursor = connection.cursor(row_factory=scalar_row)
            (since,) = cursor.execute(self._sql(statements.PAUSE), [view]).fetchall()
        return cast("datetime", since)

    def resume(self, view: str) -> datetime | None:
        """End the pause of `view`; returns since when it was paused, None if it was not."""
        with self._connect() as connection:
            cursor = connection.cursor(row_factory=scalar_row)
            resumed: datetime | None = cursor.execute(self._sql(statements.RESUME), [view]).fetchone()
        return resumed

    def paused(self) -> dict[str, datetime]:
        """By name, since when views are paused, also views without a generation."""
        with self._connect() as connection:
            return dict(connection.execute(self._sql(statements.PAUSED_VIEWS)).fetchall())

    def note_kept(self, view: str, generation: int, store: str, age_s: float) -> None:
        """Record that a generation had applied everything in a store that came up to so many seconds ago."""
        values = {"view": view, "generation": generation, "store": store, "age_s": age_s}
        self._execute(statements.KEPT, values)

    def note_state_place(self, place: StatePlace) -> None:
        """Record that a read side uses this folder now for the state of stream views."""
        self._execute(statements.NOTE_STATE_PLACE, [place.id, place.place])
        self._execute(statements.FORGET_STATE_PLACES, [])

    def state_places(self) -> list[StatePlace]:
        """The folders that read sides use or have used, the last one first; their age is by PostgreSQL's clock."""
        with self._connect() as connection, connection.cursor(row_factory=class_row(StatePlace)) as cursor:
            return cursor.execute(self._sql(statements.STATE_PLACES)).fetchall()

    def connections(self, program: str) -> int:
        """How many connections PostgreSQL has of a program, by the name that it gives."""
        with self._connect() as connection:
            rows = connection.execute(statements.CONNECTED, [program]).fetchone()
        return int(rows[0]) if rows else 0

    def follow_copy(self, topic: str, made_from: str, copy: str) -> None:
        """Let generations that were built from a topic belong to a copy of it with the same records and offsets.

        made_from, copy: the ids of the topics.
        """
        self._execute(statements.FOLLOW_COPY, {"topic": topic, "from": made_from, "copy": copy})

    def withdraw(self, view: str) -> None:
        """Make no generation of `view` live, and forget that it is paused."""
        with self._connect() as connection:
            connection.execute(self._sql(statements.WITHDRAW), [view])
            connection.execute(self._sql(statements.WITHDRAWN), [view])
            connection.execute(self._sql(statements.RESUME), [view])

    def retire(self, view: str, generations: Sequence[int]) -> None:
        """Make none of `generations` live, except the current one."""
        self._execute(statements.RETIRE, {"view": view, "generations": list(generations)})

    def forget(self, view: str, generation: int) -> None:
        """Remove a generation that is not live from the registry."""
        self._execute(statements.FORGET, [view, generation])

    def query_locks(self, program: str) -> QueryLocks:
        """Locks on queries of stream views, none held yet, to be closed; program: what this process is, for people."""
        return QueryLocks(self._url, self._environment, program)

    def of_this_code(self, view: View) -> Generation | None:
        """The generation that serves `view`, if any; raises ViewDeclarationError if it has another declaration.

        A generation of an earlier version is returned as well: it serves until the new version is built.
        """
        live = self.serving([view]).get(view.name)
        if live is not None and is_refused(live, view):
            raise ViewDeclarationError(view.name, why_refused(live, view))
        return live

    def refused(self, views: Iterable[View]) -> dict[str, ViewDeclarationError]:
        """By name, why this code cannot serve a view: its declaration changed without a new version."""
        views = list(views)
        live = self.serving(views)
        pairs = [(live[view.name], view) for view in views if view.name in live]
        return {
            view.name: ViewDeclarationError(view.name, why_refused(generation, view))
            for generation, view in pairs
            if is_refused(generation, view)
        }

    @contextmanager
    def reader(self) -> Iterator[Callable[[], list[Generation]]]:
        """Reads the live generations of every version, for frequent calls over a connection that stays open."""
        held: list[psycopg.Connection[Any]] = []

        def live() -> list[Generation]:
            with self._translated_errors():
                if not held:
                    held.append(connect(self._url, answer_s=REGISTRY_S, autocommit=True))
                try:
                    return self._read(held[0], statements.SERVED)
                except psycopg.OperationalError:
                    held.pop().close()
                    raise

        try:
            yield live
        finally:
            for connection in held:
                connection.close()

    def _execute(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> None:
        with self._connect() as connection:
            connection.execute(self._sql(statement), values)

    def _generations(self, query: str) -> list[Generation]:
        with self._connect() as connection:
            return self._read(connection, query)

    def _read(self, connection: psycopg.Connection[Any], query: str) -> list[Generation]:
        with connection.cursor(row_factory=class_row(Generation)) as cursor:
            return cursor.execute(self._sql(query)).fetchall()


WAIT_S: Final = 0.5
"""How long a call waits for PostgreSQL if the generations were read before."""


@contextmanager
def followed(generations: Generations) -> Iterator[Callable[[], list[Generation]]]:
    """The live generations of every version, for loaders and queries, which call this often: over a connection that
    stays open, and by a thread, so that a server that hangs delays nobody.

    A call raises StoreUnavailable if PostgreSQL does not answer; but for the first one, after WAIT_S.
    """
    reading: Future[list[Generation]] | None = None
    was_read = False

    def live() -> list[Generation]:
        nonlocal reading, was_read
        reading = current = reading or thread.submit(read)
        try:
            generation = current.result(WAIT_S if was_read else None)
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL", f"it has not answered for {WAIT_S:g} s") from error
        finally:
            if current.done():
                reading = None
        was_read = True
        return generation

    with generations.reader() as read, ThreadPoolExecutor(1, "registry") as thread:
        yield live
