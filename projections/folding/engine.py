"""Folds the log for a rebuild: compiled views in worker processes, which Spark or a pool of local processes runs."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from eventlog.envelope import partition_of
from eventlog.kafka import KafkaLog
from eventlog.letters import Letter as DeadLetter
from eventlog.letters import time_of
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS
from projections.errors import BulkLoadFailed, PoisonEvent
from projections.folding import unclear
from projections.folding.compiled import OnlySpark, Program, combining, compiled
from projections.folding.erasures import Erasures, merged
from projections.folding.folder import Erased, Times, UnclearRecord, is_heartbeat
from projections.folding.slices import SLICE_OFFSETS, Slices, parts_of
from projections.folding.states import States
from projections.folding.tasks import MAX_UNCLEAR, FoldTask, Letter, Share, divided, share_of
from projections.folding.unclear import Unreadable
from projections.folding.workers import SparkWorkers, TaskFailed, Workers
from projections.generations.engine import BulkResult, Ranges, offsets_in, watched
from projections.generations.selection import Selection
from projections.loading.dead_letters import DeadLetters
from projections.stores.names import patch_key
from projections.stores.store import BulkWriter
from projections.table.patch import Patch
from projections.table.view import TableView

log = logging.getLogger(__name__)

MAX_PATCH_OFFSETS: Final = 50_000
"""More are read by Spark."""
TASK_OFFSETS: Final = 2_000_000
"""Offsets of a task, about; progress of Spark's tasks is reported at their end."""
FEW_OFFSETS: Final = 10_000
"""Fewer are not worth another process."""
BUCKET_OFFSETS: Final = 250_000
"""Rows of a bucket, at most; see `tasks.groups`."""
MAX_BUCKETS: Final = 1024


@dataclass(frozen=True)
class FoldingEngine:
    """An Engine.

    workers: those that fold so many offsets. spark: those that also read what only the live query reads; starts Spark
    if it has not started. None: without Spark. slice_offsets: see Slices.
    """

    settings: LogSettings
    log: KafkaLog
    workers: Callable[[int], AbstractContextManager[Workers]]
    spark: Callable[[], SparkWorkers] | None
    slice_offsets: int = SLICE_OFFSETS

    def bulk_load(
        self,
        view: TableView,
        ranges: Ranges,
        writers: Sequence[BulkWriter],
        on_progress: Callable[[int, int], None],
        *,
        selection: Selection,
        skip_poison: bool,
    ) -> BulkResult:
        """See Engine.bulk_load."""
        total = offsets_in(ranges)
        if not total:
            on_progress(0, 0)
            return BulkResult(0, 0, 0.0)
        began = time.monotonic()
        load = partial(_Load, self, view, ranges, writers, on_progress, selection, skip_poison)
        try:
            try:
                program = _program(view, selection)
                with self.workers(total) as workers:
                    written, poison = load(workers, program).run()
            except OnlySpark as error:
                spark = self.spark_for(view, str(error))
                written, poison = load(spark, combining(view), spark).run()
        except TaskFailed as error:
            raise BulkLoadFailed(view.name, str(error)) from error
        return BulkResult(total, written, time.monotonic() - began, poison)

    def patches(self, view: TableView, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """See Engine.patches."""
        if self.spark is not None and offsets_in(ranges) > MAX_PATCH_OFFSETS:
            return self.spark().patches(view, ranges)
        try:
            return list(self._patches(view, ranges))
        except OnlySpark as error:
            return self.spark_for(view, str(error)).patches(view, ranges)

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

    def spark_for(self, view: TableView, reason: str) -> SparkWorkers:
        if self.spark is None:
            raise BulkLoadFailed(view.name, f"local processes cannot fold it: {reason}; use --engine spark")
        log.info("%s: Spark reads the events: %s", view.tag, reason)
        return self.spark()


def only_spark(view: TableView, selection: Selection) -> str | None:
    """Why only Spark can read the events of a fold; None if compiled Python can."""
    try:
        _program(view, selection)
    except OnlySpark as error:
        return str(error)
    return None


def _program(view: TableView, selection: Selection) -> Program:
    if selection.where is not None:
        raise OnlySpark("its condition is Spark SQL")
    return compiled(view)


@dataclass(frozen=True)
class _Load:
    """One bulk load; see `Engine.bulk_load`. patches: the workers, if they fold the live query's patches."""

    engine: FoldingEngine
    view: TableView
    ranges: Ranges
    writers: Sequence[BulkWriter]
    on_progress: Callable[[int, int], None]
    selection: Selection
    skip_poison: bool
    workers: Workers
    program: Program
    patches: SparkWorkers | None = None

    def run(self) -> tuple[int, int]:
        """Fold, then write; returns the number of rows, and of unreadable records.

        Raises OnlySpark, before anything is written, and TaskFailed.
        """
        size = self.engine.slice_offsets if self.workers.on_one_disk else sys.maxsize
        slices = Slices(self.engine.settings, self.view, self.selection, size)
        total, before = offsets_in(self.ranges), self.workers.read
        with watched(lambda: self.workers.read - before, total, self.on_progress), slices.folding() as rest:
            shares = self._fold(slices, rest)
            found, letters = self._unclear(shares)
            states = States(self.program)
            states.add(found)
            shares.append(share_of(states.drain(), self._buckets))
            written = self.workers.write(self.program, shares, self.writers)
        letters += [letter for share in shares for letter in share.letters]
        poison = len(letters) + sum(share.poison - len(share.letters) for share in shares)
        if poison:
            self._report(sorted(letters), poison)
        slices.forget()
        return written, poison

    def _fold(self, slices: Slices, rest: Path) -> list[Share]:
        """Fold; again if there are tombstones that were not known, without what they erase."""
        erasures = Erasures(self.engine.settings)
        known = erasures.known()
        if self.patches is not None:
            known = merged([known, self.patches.tombstones(self.ranges)])
        while True:
            shares = slices.fold(self.ranges, known, self._buckets, rest, partial(self._fold_part, known))
            if any(share.gave_up for share in shares):
                raise OnlySpark(f"more than {MAX_UNCLEAR:,} records are not as declared")
            found = merged(share.tombstones for share in shares)
            erased = merged([known, found])
            if erased == known:
                break
            log.info("%s: folding again without the events that tombstones erase", self.view.tag)
            known = erased
            erasures.keep(known)
            slices.forget()
        if known != found and self.selection.is_all and self.patches is None:
            erasures.keep(found)  # compaction has removed some
        return shares

    def _fold_part(self, erased: Erased, part: Ranges, folder: Path) -> list[Share]:
        offsets, size = offsets_in(part), self.workers.size
        if not offsets:
            return []
        path = folder if self.workers.on_one_disk else None
        task = FoldTask(self.program, self.engine.settings, (), _times(self.selection), erased, self._buckets, path)
        if self.patches is not None:
            return self.patches.fold_patches(self.view, part, self.selection, task)
        wanted = size * -(-offsets // (size * TASK_OFFSETS))
        parts = divided(parts_of(part), min(wanted, -(-offsets // FEW_OFFSETS)))
        return self.workers.fold(
            [replace(task, parts=each, path=path and path / str(number)) for number, each in enumerate(parts)]
        )

    @property
    def _buckets(self) -> int:
        """Enough that the rows of each fit into memory; a power of two, so that it is the same for a longer log."""
        needed = -(-offsets_in(self.ranges) // BUCKET_OFFSETS)
        return max(self.workers.size, min(MAX_BUCKETS, 1 << (needed - 1).bit_length()))

    def _unclear(self, shares: Sequence[Share]) -> tuple[list[Patch], list[Letter]]:
        """The patches of records that the compiled view did not read, and those that nobody can read."""
        made: list[Patch] = []
        letters: list[Letter] = []
        others: list[UnclearRecord] = []
        reason = ""
        for record in sorted(record for share in shares for record in share.unclear):
            try:
                made += unclear.patches(self.view, record)
            except Unreadable as error:
                letters.append(_letter(record, str(error)))
            except OnlySpark as error:
                others.append(record)
                reason = str(error)
        if others:
            more, unreadable = self.engine.spark_for(self.view, reason).patches_of(self.view, others)
            made, letters = made + more, letters + unreadable
        return made, letters

    def _report(self, letters: Sequence[Letter], poison: int) -> None:
        """Raise PoisonEvent, or write the dead letters that the live query writes for these records."""
        if not self.skip_poison:
            partition, offset, text = letters[0]
            letter = DeadLetter.from_json(text)
            key, value = ((each or b"").decode(errors="replace") for each in (letter.key, letter.value))
            raise PoisonEvent(self.view.name, f"{partition}:{offset}", letter.reason, poison - 1, f"{key} {value}")
        written = DeadLetters(self.engine.settings)
        for partition, offset, text in letters:
            written.put(f"{EVENTS}/{partition}/{offset}", text)
        written.flush()


def _letter(record: UnclearRecord, reason: str) -> Letter:
    partition, offset = record.partition, record.offset
    letter = DeadLetter(reason, time_of(record.timestamp_ms), record.key, record.value)
    return Letter(partition, offset, letter.to_json(topic=EVENTS, partition=partition, offset=offset))


def _times(selection: Selection) -> Times:
    since, until = selection.since, selection.until
    return Times(since.time_ms if since else None, until.time_ms if until else None)


def _patch_text(patch: Patch, record: UnclearRecord) -> str:
    fields = {name: value for name, value in patch.fields.items() if value is not None}
    place = patch.place
    body = {"p": patch.source, "o": place.offset, "i": place.number, "t": record.timestamp_ms, "c": fields}
    return orjson.dumps(body).decode()
