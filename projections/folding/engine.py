"""Folds the log for a rebuild: compiled views in worker processes, which Spark or a pool of local processes runs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import orjson

from headwater.eventlog.errors import EventLogError, LogUnavailable
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import BulkLoadFailed, ProjectionError
from headwater.projections.folding import unclear
from headwater.projections.folding.combining import DiskFull
from headwater.projections.folding.compiled import combining, compiled
from headwater.projections.folding.decoders import decoders
from headwater.projections.folding.erasures import Erasures, Tombstones, merged
from headwater.projections.folding.fold_records import ALWAYS, Erased, Times, UnclearRecord, is_heartbeat
from headwater.projections.folding.passes import Outcome, Pass, letter_of, times_of, together
from headwater.projections.folding.program import OnlySpark, Program
from headwater.projections.folding.tasks import Letter
from headwater.projections.folding.unclear import Unreadable
from headwater.projections.folding.workers import SparkWorkers, TaskFailed, Workers
from headwater.projections.generations.rebuild.engine import FAILURES, BulkResult, Failure, Load, Ranges, offsets_in
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.kinds import table_view
from headwater.projections.limits import MAX_PATCH_OFFSETS, SLICE_OFFSETS
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.stores.names import patch_key, patch_partition, table_key
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from headwater.projections.view import View

log = logging.getLogger(__name__)


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

    def bulk_load(self, loads: Sequence[Load[View]]) -> list[BulkResult | Failure]:
        """See Engine.bulk_load."""
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
        outcomes = [_program(load.view, load.selection) for load in loads]
        programs = {number: each for number, each in enumerate(outcomes) if isinstance(each, Program)}
        passed: dict[int, Outcome] = {}
        if programs:
            found = self._folded([loads[number] for number in programs], total, list(programs.values()))
            passed = dict(zip(programs, found, strict=True))
        return [
            self._settled(load, passed.get(number, outcome))
            for number, (load, outcome) in enumerate(zip(loads, outcomes, strict=True))
        ]

    def _folded(self, loads: Sequence[Load[TableView]], total: int, programs: Sequence[Program]) -> list[Outcome]:
        try:
            with self.workers(total) as workers:
                reasons = [workers.refuses(program) for program in programs]
                taken = [number for number, reason in enumerate(reasons) if not reason]
                passed = self._pass([loads[each] for each in taken], workers, [programs[each] for each in taken])
                found = dict(zip(taken, passed, strict=True))
                return [found.get(number, OnlySpark(reason)) for number, reason in enumerate(reasons)]
        except FAILURES as error:
            return [error] * len(loads)

    def _pass(
        self,
        loads: Sequence[Load[TableView]],
        workers: Workers,
        programs: Sequence[Program],
        patches: SparkWorkers | None = None,
    ) -> list[Outcome]:
        """One pass; if it fails, one for each half of the views: one of them may be the reason."""
        if not loads:
            return []
        views = [] if patches else [load.view for load in loads]
        alone = [decoders([view]) for view in views] if len(views) > 1 else []
        one = Pass(
            self.settings, loads, workers, programs, decoders(views), alone, self.slice_offsets, self.spark_for, patches
        )
        try:
            return one.run()
        except (TaskFailed, *FAILURES) as error:
            half = len(loads) // 2
            if _disk_is_full(error):
                one.forget()
            if not half or _log_is_away(error):
                return [error] * len(loads)
            log.warning(
                "folding %s and %s apart, since together they failed: %s",
                _tags(loads[:half]), _tags(loads[half:]), error,
            )  # fmt: skip
            one.forget()
        return [
            *self._pass(loads[:half], workers, programs[:half]),
            *self._pass(loads[half:], workers, programs[half:]),
        ]

    def _settled(self, load: Load[TableView], outcome: Outcome | Program) -> BulkResult | Failure:
        """The result of a load; if only Spark can read the events, that of a pass with Spark."""
        match outcome:
            case OnlySpark():
                try:
                    spark = self.spark_for(load.view, str(outcome))
                except FAILURES as error:
                    return error
                return self._settled(load, *self._pass([load], spark, [combining(load.view)], spark))
            case TaskFailed():
                return BulkLoadFailed(load.view.name, str(outcome))
            case BulkResult() | ProjectionError() | EventLogError() | OSError():
                return outcome
        raise AssertionError(outcome)

    def patches(self, view: View, ranges: Ranges) -> Iterator[tuple[str, str, int]]:
        """See Engine.patches."""
        if view.has_own_query:
            yield from self.spark_for(view, "it is a real-time view").patches(view, ranges)
            return
        folded = table_view(view)
        if self.spark is not None and offsets_in(ranges) > MAX_PATCH_OFFSETS:
            yield from self.spark().patches(folded, ranges)
            return
        try:
            if self.spark is not None:
                deque(self._made(folded, ranges), maxlen=0)  # so that one of both makes all, and none is kept in memory
            yield from self._patches(folded, ranges)
        except OnlySpark as error:
            yield from self.spark_for(folded, str(error)).patches(folded, ranges)

    def row_patches(self, load: Load[View], keys: Set[str], streams: Collection[str] | None = None) -> Iterator[Patch]:
        """See Engine.row_patches."""
        view, ranges, selection = table_view(load.view), load.ranges, load.selection
        if view.layout.retraction is not None:
            shown = ", ".join(f'"{key}"' for key in sorted(keys)[:3])
            raise BulkLoadFailed(
                view.name,
                f"a store refused {len(keys)} of its groups, such as {shown}: a sum has more than 64 bits, or a key is "
                "too long; group by another column, or leave these rows out with `where`",
            )
        known, reason = Erasures(self.settings).known(), "its condition is Spark SQL"
        wanted = {table_key(key) for key in keys}  # PostgreSQL names them so
        some = None if streams is None else _KeysOf(streams)
        few = self.spark is None or some is not None or offsets_in(ranges) <= MAX_PATCH_OFFSETS
        if selection.where is None and few:
            read = _Read(load, passes=3 if self.spark is not None else 2, some=some)
            made = partial(
                self._made,
                view,
                ranges,
                merged([known, self._tombstones(ranges, read)]),
                times_of(selection),
                read=read,
            )
            try:
                if self.spark is not None:
                    deque(made(), maxlen=0)  # before the first patch is taken, it is known who makes all of them
                yield from (patch for _, patch in made() if table_key(patch.key) in wanted)
            except OnlySpark as error:
                reason = str(error)
            else:
                return
        elif selection.where is None:
            reason = f"{offsets_in(ranges):,} offsets are more than {MAX_PATCH_OFFSETS:,}"
        spark = self.spark_for(view, reason)
        try:
            erased = merged([known, spark.tombstones(ranges)])
            yield from spark.row_patches(view, ranges, selection, erased, wanted)
        except TaskFailed as error:
            raise BulkLoadFailed(view.name, str(error)) from error

    def _tombstones(self, ranges: Ranges, read: _Read) -> Tombstones:
        return merged(
            {source: {record.key: record.offset}}
            for source in ranges
            if topic_and_partition(source)[0] == EVENTS
            for record in self._records(source, ranges, read)
            if record.value is None and record.key is not None
        )

    def _patches(self, view: TableView, ranges: Ranges) -> Iterator[tuple[str, str, int]]:
        letters = DeadLetters(self.settings)
        for record, patch in self._made(view, ranges, on_letter=lambda each: letters.put(each.key, each.text)):
            name = patch_key(view.tag, patch.key)
            partition = patch_partition(view, view.tag, patch.key, self.settings.patch_partitions)
            yield name, _patch_text(patch, record), partition
        letters.flush()

    def _made(
        self,
        view: TableView,
        ranges: Ranges,
        erased: Erased | None = None,
        times: Times = ALWAYS,
        on_letter: Callable[[Letter], None] = lambda _: None,
        read: _Read | None = None,
    ) -> Iterator[tuple[UnclearRecord, Patch]]:
        """The patches of these records. on_letter: called for each that nobody can read; by default nothing is done,
        because bulk has read these records and written their dead letters, or a second pass will.
        """
        for source in ranges:
            is_event, gone = topic_and_partition(source)[0] == EVENTS, (erased or {}).get(source, {})
            for record in self._records(source, ranges, read):
                if (record.value is None and is_event) or is_heartbeat(source, record.key):
                    continue
                if not times.has(record.timestamp_ms) or gone.get(record.key or b"", -1) > record.offset:
                    continue
                try:
                    made = unclear.patches(view, record)
                except Unreadable as error:
                    on_letter(letter_of(record, str(error)))
                    continue
                yield from ((record, patch) for patch in made)

    def _records(self, source: str, ranges: Ranges, read: _Read | None = None) -> Iterator[UnclearRecord]:
        wanted = None if read is None else read.some
        for messages in self.log.batches(*topic_and_partition(source), *ranges[source]):
            for each in messages:
                if wanted is None or wanted.has(each.key()):
                    yield UnclearRecord(source, each.offset() or 0, each.timestamp()[1], each.key(), each.value())
            if read is not None:
                read.note(len(messages))

    def spark_for(self, view: View, reason: str) -> SparkWorkers:
        """Workers that read what compiled Python does not; raises BulkLoadFailed if there is no Spark."""
        if self.spark is None:
            raise BulkLoadFailed(view.name, f"local processes cannot fold it: {reason}; use --engine spark")
        log.info("%s: Spark reads the events: %s", view.tag, reason)
        try:
            return self.spark()
        except FAILURES:
            raise
        except Exception as error:  # without Java, for example: other views need no Spark
            raise BulkLoadFailed(view.name, f"Spark does not start: {error}") from error


class _KeysOf:
    """The keys of the events of some streams."""

    def __init__(self, streams: Collection[str]) -> None:
        self._streams = {each.encode() for each in streams}

    def has(self, key: bytes | None) -> bool:
        """Whether an event with this record key, `type/id/version`, is of one of the streams."""
        return key is not None and key.rpartition(b"/")[0] in self._streams


@dataclass
class _Read:
    """Counts the records that are read for a load in several passes. some: the records to use; None: all."""

    load: Load[View]
    passes: int
    some: _KeysOf | None = None
    records: int = 0

    def note(self, records: int) -> None:
        """Report that so many more were read; offsets that have no record are not counted."""
        self.records += records
        total = self.passes * offsets_in(self.load.ranges)
        self.load.on_progress(min(self.records, total), total)


def only_spark(view: View, selection: Selection) -> str | None:
    """Why only Spark can read the events of a fold; None if compiled Python can."""
    found = _program(table_view(view), selection)
    return str(found) if isinstance(found, OnlySpark) else None


def _program(view: TableView, selection: Selection) -> Program | OnlySpark:
    if selection.where is not None:
        return OnlySpark("its condition is Spark SQL")
    try:
        return compiled(view)
    except OnlySpark as error:
        return error


def _of_table(load: Load[View]) -> Load[TableView]:
    view = table_view(load.view)
    return Load(view, load.ranges, load.writers, load.on_progress, load.selection, load.skip_poison)


def _log_is_away(error: Exception) -> bool:
    """Whether a task or this process could not read the log; a task's error is only text."""
    return isinstance(error, EventLogError) or LogUnavailable.__name__ in str(error)


def _disk_is_full(error: Exception) -> bool:
    return isinstance(error, DiskFull) or DiskFull.__name__ in str(error)


def _tags(loads: Sequence[Load[TableView]]) -> str:
    return ", ".join(load.view.tag for load in loads)


def _patch_text(patch: Patch, record: UnclearRecord) -> str:
    fields = {name: value for name, value in patch.fields.items() if value is not None}
    place = patch.place
    source = int(patch.source) if patch.source.isdigit() else patch.source
    body = {"p": source, "o": place.offset, "i": place.number, "t": record.timestamp_ms, "c": fields}
    return orjson.dumps(body).decode()
