"""The engine for logs that are folded before a JVM would be up: a pool of local processes, without Spark."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final

import orjson

from eventlog.envelope import partition_of
from eventlog.kafka import KafkaLog
from eventlog.letters import Letter, time_of
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS
from projections.errors import BulkLoadFailed, PoisonEvent
from projections.folding import pool, unclear
from projections.folding.compiled import Program, compiled
from projections.folding.folder import MAX_ROWS, Erased, Part, Times, TooMuch, UnclearRecord, by_share, is_heartbeat
from projections.folding.pool import Progress, Share, TaskFailed
from projections.folding.unclear import Unreadable
from projections.generations.engine import BulkResult, Engine, Ranges, watched
from projections.generations.selection import Selection
from projections.loading.dead_letters import DeadLetters
from projections.stores.names import patch_key
from projections.stores.store import BulkWriter
from projections.table.patch import Patch
from projections.table.view import TableView

log = logging.getLogger(__name__)

MAX_OFFSETS: Final = 5_000_000
"""More are folded by Spark, which writes to disk what does not fit into memory, and keeps slices over a kill."""
MAX_PATCH_OFFSETS: Final = 50_000


@dataclass(frozen=True)
class LocalEngine:
    """Folds in local processes what is small enough for them; `large` folds the rest.

    large: None: everything is folded here, if it can be. processes: at a time; None: one per core.
    """

    settings: LogSettings
    log: KafkaLog
    large: Engine | None
    processes: int | None = None

    def bulk_load(
        self,
        view: TableView,
        ranges: Ranges,
        writers: Sequence[BulkWriter],
        on_progress: Callable[[int, int], None],
        *,
        selection: Selection,
        skip_poison: bool,
        start_over: Callable[[], None],
    ) -> BulkResult:
        """See Engine.bulk_load."""
        total = sum(end - start for start, end in ranges.values())
        if not total:
            on_progress(0, 0)
            return BulkResult(0, 0, 0.0)
        reason = unsuited(view, total, selection)
        if reason is None or (self.large is None and selection.where is None):
            try:
                load = _Load(self, view, ranges, writers, on_progress, _times(selection), skip_poison)
                return load.run()
            except TooMuch as error:
                reason = str(error)
        if self.large is None:
            raise _only_spark(view, reason)
        log.info("%s: Spark folds it: %s", view.tag, reason)
        return self.large.bulk_load(
            view,
            ranges,
            writers,
            on_progress,
            selection=selection,
            skip_poison=skip_poison,
            start_over=start_over,
        )

    def patches(self, view: TableView, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """See Engine.patches."""
        if self.large is not None and sum(end - start for start, end in ranges.values()) > MAX_PATCH_OFFSETS:
            return self.large.patches(view, ranges)
        try:
            return list(self._patches(view, ranges))
        except TooMuch as error:
            if self.large is None:
                raise _only_spark(view, str(error)) from error
            log.info("%s: Spark reads the events: %s", view.tag, error)
            return self.large.patches(view, ranges)

    def _patches(self, view: TableView, ranges: Ranges) -> Iterator[tuple[str, str, int]]:
        for partition, (start, end) in ranges.items():
            for messages in self.log.batches(EVENTS, partition, start, end):
                for message in messages:
                    key, value = message.key(), message.value()
                    if value is None or is_heartbeat(partition, key):
                        continue
                    record = UnclearRecord(partition, message.offset() or 0, message.timestamp()[1], key, value)
                    try:
                        made = unclear.patches(view, record)
                    except Unreadable:
                        continue  # the live query has made it a dead letter
                    for patch in made:
                        name = patch_key(view.tag, patch.key)
                        yield name, _patch_text(patch, record), partition_of(name, self.settings.patch_partitions)


def _only_spark(view: TableView, reason: str) -> BulkLoadFailed:
    return BulkLoadFailed(view.name, f"local processes cannot fold it: {reason}; use --engine spark")


def unsuited(view: TableView, offsets: int, selection: Selection) -> str | None:
    """Why a fold of so many offsets is not for local processes; None if it is."""
    most = MAX_ROWS if view.per_event else MAX_OFFSETS
    if offsets > most:
        return f"{offsets:,} offsets are more than {most:,}"
    if selection.where is not None:
        return "its condition is Spark SQL"
    return None


@dataclass(frozen=True)
class _Load:
    """One bulk load; see `Engine.bulk_load`."""

    engine: LocalEngine
    view: TableView
    ranges: Ranges
    writers: Sequence[BulkWriter]
    on_progress: Callable[[int, int], None]
    times: Times
    skip_poison: bool

    def run(self) -> BulkResult:
        """Fold, then write; a second fold leaves out what tombstones erase.

        Raises TooMuch; then nothing was written.
        """
        began, program = time.monotonic(), self._program()
        total = sum(end - start for start, end in self.ranges.values())
        progress, processes = Progress(), self.engine.processes or pool.cores()
        try:
            with watched(lambda: progress.read, total, self.on_progress), pool.new_pool(processes, progress) as workers:
                shares = self._fold(workers, program, processes, None)
                tombstones = _together(shares)
                if tombstones:
                    shares = self._fold(workers, program, processes, tombstones)
                found, poison = self._unclear(shares)
                written = self._write(workers, program, shares, found, processes)
        except BrokenProcessPool as error:
            raise BulkLoadFailed(self.view.name, "a process was killed, maybe for lack of memory") from error
        except TaskFailed as error:
            raise BulkLoadFailed(self.view.name, str(error)) from error
        if poison:
            self._report(poison)
        return BulkResult(total, written, time.monotonic() - began, len(poison))

    def _fold(
        self, workers: ProcessPoolExecutor, program: Program, processes: int, erased: Erased | None
    ) -> list[Share]:
        parts = [Part(partition, start, end) for partition, (start, end) in self.ranges.items()]
        tasks = [
            workers.submit(pool.fold, program, self.engine.settings, each, self.times, erased, processes)
            for each in pool.divided(parts, processes)
        ]
        return [task.result() for task in tasks]

    def _program(self) -> Program:
        try:
            program = compiled(self.view)
        except AttributeError as error:
            raise TooMuch(f"one of its expressions has no Python source ({error})") from error
        try:
            pickle.dumps(program)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TooMuch(f"one of its folds cannot be sent to another process ({error})") from error
        return program

    def _unclear(self, shares: Sequence[Share]) -> tuple[list[Patch], list[tuple[UnclearRecord, str]]]:
        """The patches of records that the compiled view did not read, and those that nobody can read."""
        made: list[Patch] = []
        poison: list[tuple[UnclearRecord, str]] = []
        for record in sorted(record for share in shares for record in share.unclear):
            try:
                made += unclear.patches(self.view, record)
            except Unreadable as error:
                poison.append((record, str(error)))
        return made, poison

    def _write(
        self,
        workers: ProcessPoolExecutor,
        program: Program,
        shares: Sequence[Share],
        found: Sequence[Patch],
        processes: int,
    ) -> int:
        encoded = [[share.rows[at] for share in shares] for at in range(processes)]
        if found:
            more = by_share(unclear.rows_of(self.view, found), processes)
            encoded = [[*ours, theirs] for ours, theirs in zip(encoded, more, strict=True)]
        tasks = [workers.submit(pool.write, program, each, self.writers) for each in encoded]
        return sum(task.result() for task in tasks)

    def _report(self, poison: Sequence[tuple[UnclearRecord, str]]) -> None:
        """Raise PoisonEvent, or write the dead letters that the live query writes for these records."""
        first, reason = poison[0]
        if not self.skip_poison:
            key, value = (text.decode(errors="replace") for text in (first.key or b"", first.value))
            place, shown = f"{first.partition}:{first.offset}", f"{key} {value}"
            raise PoisonEvent(self.view.name, place, reason, len(poison) - 1, shown)
        letters = DeadLetters(self.engine.settings)
        for record, why in poison:
            letter = Letter(why, time_of(record.timestamp_ms), record.key, record.value)
            letters.put_record(EVENTS, record.partition, record.offset, letter)
        letters.flush()


def _times(selection: Selection) -> Times:
    since, until = selection.since, selection.until
    return Times(since.time_ms if since else None, until.time_ms if until else None)


def _together(shares: Sequence[Share]) -> dict[int, dict[bytes, int]]:
    """The last tombstone of each key, by partition."""
    found: dict[int, dict[bytes, int]] = {}
    for share in shares:
        for partition, keys in share.tombstones.items():
            held = found.setdefault(partition, {})
            for key, offset in keys.items():
                held[key] = max(offset, held.get(key, -1))
    return found


def _patch_text(patch: Patch, record: UnclearRecord) -> str:
    fields = {name: value for name, value in patch.fields.items() if value is not None}
    place = patch.place
    body = {"p": patch.source, "o": place.offset, "i": place.number, "t": record.timestamp_ms, "c": fields}
    return orjson.dumps(body).decode()
