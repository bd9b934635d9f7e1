"""Folds the log for a rebuild: compiled views in worker processes, which Spark or a pool of local processes runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass

import orjson
from confluent_kafka import Message

from headwater.eventlog.errors import EventLogError, LogUnavailable
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import BulkLoadFailed
from headwater.projections.folding.combining import DiskFull
from headwater.projections.folding.passes import Erasures, Outcome, Pass, merged, times_of, together
from headwater.projections.folding.tasks import SparkWorkers, TaskFailed, Workers
from headwater.projections.generations.rebuild.engine import FAILURES, BulkResult, Failure, Load, Ranges, offsets_in
from headwater.projections.kinds import table_view
from headwater.projections.limits import SLICE_OFFSETS
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.program import Program, decoders
from headwater.projections.reading.reader import Reader
from headwater.projections.stores.names import patch_key, patch_partition, table_key
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from headwater.projections.view import View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoldingEngine:
    """An Engine.

    workers: those that fold so many offsets. spark: those in Spark, which starts if it has not started; None: without
    Spark. slice_offsets: see Slices.
    """

    settings: LogSettings
    log: KafkaLog
    workers: Callable[[int], AbstractContextManager[Workers]]
    spark: Callable[[], SparkWorkers] | None
    slice_offsets: int = SLICE_OFFSETS

    def bulk_load(self, loads: Sequence[Load[View]]) -> list[BulkResult | Failure]:
        results: dict[int, BulkResult | Failure] = {}
        folded = [_of_table(load) for load in loads]
        for numbers in together(folded):
            results |= zip(numbers, self._load([folded[number] for number in numbers]), strict=True)
        return [results[number] for number in range(len(loads))]

    def _load(self, loads: Sequence[Load[TableView]]) -> list[BulkResult | Failure]:
        """Load views that are folded together."""
        total = offsets_in({source: part for load in loads for source, part in load.ranges.items()})
        if not total:
            for load in loads:
                load.on_progress(0, 0)
            return [BulkResult(0, 0, 0.0, events=0) for _ in loads]
        programs = [compiled(load.view) for load in loads]
        try:
            with self.workers(total) as workers:
                reasons = [
                    workers.refuses(program, decoders([load.view]))
                    for load, program in zip(loads, programs, strict=True)
                ]
                taken = [number for number, reason in enumerate(reasons) if not reason]
                passed = self._pass([loads[index] for index in taken], workers, [programs[index] for index in taken])
        except FAILURES as error:
            return [error] * len(loads)
        outcomes: dict[int, Outcome] = dict(zip(taken, passed, strict=True))
        for number, reason in enumerate(reasons):
            if reason:  # local processes cannot have this view
                load = loads[number]
                try:
                    (outcomes[number],) = self._pass([load], self.spark_for(load.view, reason), [programs[number]])
                except FAILURES as error:
                    outcomes[number] = error
        return [
            BulkLoadFailed(load.view.name, str(outcome)) if isinstance(outcome, TaskFailed) else outcome
            for load, outcome in ((load, outcomes[number]) for number, load in enumerate(loads))
        ]

    def _pass(self, loads: Sequence[Load[TableView]], workers: Workers, programs: Sequence[Program]) -> list[Outcome]:
        """One pass; if it fails, one for each half of the views: one of them may be the reason."""
        if not loads:
            return []
        views = [load.view for load in loads]
        alone = [decoders([view]) for view in views] if len(views) > 1 else []
        one = Pass(self.settings, loads, workers, programs, decoders(views), alone, self.slice_offsets)
        try:
            return one.run()
        except (TaskFailed, *FAILURES) as error:
            half, text = len(loads) // 2, str(error)  # a task's error is only text
            if isinstance(error, DiskFull) or DiskFull.__name__ in text:
                one.forget()
            if not half or isinstance(error, EventLogError) or LogUnavailable.__name__ in text:
                return [error] * len(loads)
            tags = (", ".join(view.tag for view in part) for part in (views[:half], views[half:]))
            log.warning("folding %s and %s apart, since together they failed: %s", *tags, error)
            one.forget()
        return [
            *self._pass(loads[:half], workers, programs[:half]),
            *self._pass(loads[half:], workers, programs[half:]),
        ]

    def patches(self, view: View, ranges: Ranges) -> Iterator[tuple[str, str, int]]:
        if view.has_own_query:
            yield from self.spark_for(view, "it is a real-time view").patches(view, ranges)
            return
        made_of, letters = table_view(view), DeadLetters(self.settings)
        reader = Reader(made_of)
        for source, records in self._records(ranges):
            row_patches, unreadable = reader.read(source, records)
            for letter in unreadable:
                letters.put(letter.key, letter.text)
            for record, patch in row_patches:
                partition = patch_partition(made_of, view.tag, patch.key, self.settings.patch_partitions)
                fields = {name: value for name, value in patch.fields.items() if value is not None}
                body = {
                    "p": int(patch.source) if patch.source.isdigit() else patch.source,
                    "o": patch.place.offset,
                    "i": patch.place.number,
                    "t": record.timestamp()[1],
                    "c": fields,
                }
                yield patch_key(view.tag, patch.key), orjson.dumps(body).decode(), partition
        letters.flush()

    def row_patches(
        self, load: Load[View], keys: Set[str] | None, streams: Collection[str] | None = None
    ) -> Iterator[Patch]:
        view = table_view(load.view)
        wanted = None if keys is None else {table_key(key) for key in keys}  # PostgreSQL names them so
        some = None if streams is None else {stream.encode() for stream in streams}
        total, read = 2 * offsets_in(load.ranges), 0

        def records() -> Iterator[tuple[str, Sequence[Message]]]:
            nonlocal read
            for source, message in self._records(load.ranges):
                read += len(message)  # offsets that have no record are not counted
                load.on_progress(min(read, total), total)
                yield source, message if some is None else [one for one in message if _stream_of(one) in some]

        tombstones = merged(
            {source: {key: one.offset() or 0}}
            for source, message in records()
            if topic_and_partition(source)[0] == EVENTS
            for one in message
            if one.value() is None and (key := one.key()) is not None
        )
        reader = Reader(view, times_of(load.selection), merged([Erasures(self.settings).known(), tombstones]))
        for source, message in records():
            made, _ = reader.read(source, message)  # bulk has written the dead letters of these records
            yield from (patch for _, patch in made if wanted is None or table_key(patch.key) in wanted)

    def _records(self, ranges: Ranges) -> Iterator[tuple[str, Sequence[Message]]]:
        """Records by source, a batch at a time."""
        for source, part in ranges.items():
            for messages in self.log.batches(*topic_and_partition(source), *part):
                yield source, messages

    def spark_for(self, view: View, reason: str) -> SparkWorkers:
        """Workers that do what local processes cannot; raises BulkLoadFailed if there is no Spark."""
        if self.spark is None:
            raise BulkLoadFailed(view.name, f"local processes cannot fold it: {reason}; use --engine spark")
        log.info("%s: Spark reads the events: %s", view.tag, reason)
        try:
            return self.spark()
        except FAILURES:
            raise
        except Exception as error:  # without Java, for example: other views need no Spark
            raise BulkLoadFailed(view.name, f"Spark does not start: {error}") from error


def _stream_of(message: Message) -> bytes | None:
    """Of an event, by its record's key, `type/id/version`."""
    key = message.key()
    return key.rpartition(b"/")[0] if isinstance(key, bytes) else None


def _of_table(load: Load[View]) -> Load[TableView]:
    view = table_view(load.view)
    return Load(view, load.ranges, load.writers, load.on_progress, load.selection, load.skip_poison)
