"""Views as Kafka topics: rows that other programs follow.

Each generation has a topic of its own, `<environment>.views.<view>.g<N>`, with its rows and ledgers. The rows of the
published generation are also in `<environment>.views.<view>`, in the same transactions. If another generation is
published, the owner of each partition brings the public topic to it: only rows that differ are written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import Fenced, LeftOpen, LogUnavailable
from headwater.eventlog.kafka.admin import empty_partition, prepare_topics, remove_topics
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.limits import MAX_ENTRY_BYTES, entry_size
from headwater.eventlog.ports import Entry, EventLog, abort_on_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.projections.errors import GenerationMissing, StoreUnavailable, TakenOver, Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.backend import Backend, Rows, Size, without_empty
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import partition_text, patch_partition
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, ViewStore, no_fault
from headwater.projections.stores.topic.latest import Latest
from headwater.projections.stores.topic.partition import OwnedPartition, PublishedMeanwhile, becomes_readable
from headwater.projections.stores.topic.records import (
    LEDGER,
    NAME,
    ROW,
    Progress,
    Publications,
    building_role,
    check_key,
    generation_topic,
    progress_from_json,
    progress_to_json,
    row_from_json,
    row_records,
    row_to_json,
    topics_of,
)
from headwater.projections.table.monoids import State

if TYPE_CHECKING:
    import pyarrow as pa


NOTED_S: Final = 60.0
"""How long Kafka may take until readers see what was committed while a generation is built."""
WRITE_S: Final = 60.0
"""How long Kafka may take for the rows of one chunk."""


@dataclass(frozen=True)
class TopicWriter:
    """Writes the rows of one Spark partition; a repeated task writes the same records again, which replace.

    one_partition: the text that gives the partition of all rows, if they are in one.
    """

    settings: LogSettings
    topic: str
    form: DocumentForm
    one_partition: str | None

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        written = 0
        try:
            with closing(KafkaLog(self.settings)) as log:
                for chunk in self.form.chunks(rows):
                    with loadable(NAME):
                        entries = [self._entry(key, row_to_json(0, state)) for key, state in chunk]
                    stored = [log.submit(entry, partition) for entry, partition in entries]
                    for future in stored:
                        future.result(WRITE_S)
                    written += len(chunk)
        except (LogUnavailable, TimeoutError) as error:
            raise StoreUnavailable(NAME, str(error)) from error
        return written

    def _entry(self, key: str, value: bytes) -> tuple[Entry, int]:
        """The record of a row, and its partition."""
        check_key(key)
        if (size := entry_size(key, value)) > MAX_ENTRY_BYTES:
            raise Unloadable(NAME, f"a record of the row has {size} bytes, more than {MAX_ENTRY_BYTES}")
        text = key if self.one_partition is None else self.one_partition
        return Entry(self.topic, ROW + key, value, now_ms()), partition_of(text, self.settings.patch_partitions)


class TopicStore(ViewStore):
    """Views in Kafka; for one thread.

    Batches come in order, and so do the records of each source of a real-time view. So a row is replaced without
    reading it: what is repeated writes the same rows again. Patches of a table view are combined into rows that are
    kept on disk, see FoldedRows.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "topic"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings.log, fault
        self._log = KafkaLog(settings.log)
        self._publications = Publications(self._log)
        self._owned: dict[tuple[str, int, int], OwnedPartition] = {}
        """By view, generation and partition."""

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        with translated():
            self._give_up(target)
            specs = topics_of(target, self._settings)
            for partition in patch_starts:
                empty_partition(self._settings, specs[-1], partition)
            prepare_topics(self._settings, specs)
            for partition, offset in patch_starts.items():
                ledger = ledgers.initial_ledger(bulk_ends, offset)
                self._note(target, partition, Progress(ledger, complete=target.view.has_own_query))

    def bulk_writer(self, target: Target) -> BulkWriter:
        retracts = target.view.layout.retraction is not None
        one = partition_text(target.view, target.tag, "") if retracts else None
        return TopicWriter(self._settings, generation_topic(target), DocumentForm.of(target.view), one)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        """Without bulk it is complete already: rows and ledgers are written together."""
        with translated():
            noted = read_progress(self._log, target)
            if not noted:
                raise GenerationMissing(*target.id)
            if all(progress.complete for progress in noted.values()):
                return ()
            ledgers.check_rows(NAME, target, sum(map(partial(self._count, target), noted)), at_least)
            for partition, progress in noted.items():
                self._note(target, partition, progress._replace(complete=True))
        return ()

    def _count(self, target: Target, partition: int) -> int:
        """The rows in a partition of a generation, also deleted ones."""
        with closing(Latest(self._settings.state)) as rows:
            rows.put((key, b"") for key, _ in row_records(self._log, target, partition))
            return len(rows)

    def publish(self, target: Target) -> None:
        """Returns at once: the loaders then bring the public topic to this generation."""
        with translated():
            self._publications.publish(*target.id)

    def shown(self, view: str) -> int | None:
        with translated():
            published = self._publications.of(view, fresh=True)
        return None if published is None else published.generation

    def drop(self, target: Target) -> None:
        with translated():
            self._give_up(target)
            *_, public, own = topics_of(target, self._settings)
            published = self._publications.of(target.view.name, fresh=True)
            if published is not None and published.generation == target.generation:
                self._publications.withdraw(target.view.name)
                remove_topics(self._settings, [public])
            remove_topics(self._settings, [own])

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        """See ViewStore. Each generation has a topic of its own, so each is asked for."""
        with translated():
            return [read_ledgers(self._log, target) for target in targets]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        with translated():
            served = {target.id for target in targets}
            for place in [owned for owned in self._owned if owned[:2] not in served]:
                self._owned.pop(place).close()
            for target in targets:
                for partition, batch in batches.items():
                    self._apply(target, partition, batch)

    def settle(self, *, now: bool = False) -> None:
        """Write the ledgers that `apply` delayed."""
        for place, owned in list(self._owned.items()):
            try:
                owned.settle(now=now)
                if now:
                    owned.wait_until_readable()
            except (Fenced, LeftOpen, LogUnavailable):  # the ledger is older than it could be, which does no harm
                self._owned.pop(place).close()

    def close(self) -> None:
        """Give all partitions up."""
        for owned in self._owned.values():
            owned.close()
        self._owned.clear()
        self._log.close()

    def _apply(self, target: Target, partition: int, batch: Batch) -> None:
        place = (*target.id, partition)
        owned = self._owned.pop(place, None)
        if owned is not None and not owned.is_current(self._publications.of(target.view.name)):
            owned.note()
            owned.close()
            owned = None
        if owned is None:
            owned = self._taken_over(target, partition)
        try:
            owned.apply(batch)
        except Unloadable:  # nothing of the refused patches was written, so it can go on
            self._owned[place] = owned
            raise
        except BaseException:
            owned.close()
            raise
        if owned.has_reached:
            try:
                owned.note()
            finally:
                owned.close()
            owned = self._taken_over(target, partition)
        self._owned[place] = owned

    def _note(self, target: Target, partition: int, progress: Progress) -> None:
        """Write the progress of a partition that no loader has; when it returns, readers see it.

        Else `finish` might miss what `create` wrote just before, and take the generation for a lost one.
        """
        writer = self._log.own(partition, building_role(target))
        with abort_on_error(writer.begin()) as begun:
            begun.append([Entry(generation_topic(target), LEDGER, progress_to_json(progress), now_ms())])
            begun.commit()
        writer.close()
        topic = generation_topic(target)
        if not becomes_readable(self._log, topic, partition, progress, NOTED_S):
            raise LogUnavailable(f'waiting for the end of a transaction in "{topic}"', f"none for {NOTED_S:g} s")

    def _taken_over(self, target: Target, partition: int) -> OwnedPartition:
        """Take a partition over, once again if another generation is published meanwhile."""
        folder = self._settings.state
        taken_over = partial(OwnedPartition, self._log, self._publications, target, partition, folder, self._fault)
        try:
            return taken_over()
        except PublishedMeanwhile:
            return taken_over()

    def _give_up(self, target: Target) -> None:
        for place in [owned for owned in self._owned if owned[:2] == target.id]:
            self._owned.pop(place).close()


class TopicRows:
    """See RowReader. Kafka finds no record by its key: each partition is read once, and then what has come since."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings.log
        self._read: dict[tuple[str, int, int], tuple[Latest, int]] = {}
        """By view, generation and partition: its rows, and the offset up to which they were read."""

    def rows(self, target: Target) -> Rows:
        with translated(), closing(KafkaLog(self._settings)) as log:
            if not read_ledgers(log, target):
                raise GenerationMissing(*target.id)
            for partition in range(self._settings.patch_partitions):
                for key, value in self._latest(log, target, partition).items():
                    yield key, without_empty(row_from_json(value)[1])

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), closing(KafkaLog(self._settings)) as log:
            rows, partitions = dict[str, State](), self._settings.patch_partitions
            placed = {key: patch_partition(target.view, target.tag, key, partitions) for key in keys}
            latest = {partition: self._latest(log, target, partition) for partition in set(placed.values())}
            for key, partition in placed.items():
                if (value := latest[partition].get(key)) is not None:
                    rows[key] = without_empty(row_from_json(value)[1])
            return rows

    def _latest(self, log: EventLog, target: Target, partition: int) -> Latest:
        place = (*target.id, partition)
        latest, start = self._read.get(place) or (Latest(self._settings.state), 0)
        end = log.end(generation_topic(target), partition)
        latest.put(row_records(log, target, partition, start, end))
        self._read[place] = latest, end
        return latest

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Kafka counts records, and a row may have many


def read_ledgers(log: EventLog, target: Target) -> dict[int, Ledger]:
    """The ledger of each partition of a generation; empty if one is missing, or incomplete."""
    held = read_progress(log, target)
    is_complete = all(ledger.complete for ledger in held.values())
    return {partition: ledger.ledger for partition, ledger in held.items()} if is_complete else {}


def read_progress(log: EventLog, target: Target) -> dict[int, Progress]:
    """How far each partition of a generation is; empty if one is missing."""
    topic = generation_topic(target)
    try:
        values = {partition: log.last(topic, partition, LEDGER) for partition in log.stored_ends(topic)}
    except LogUnavailable:
        if log.stored_ends(topic):
            raise
        return {}  # its topic was removed while it was read
    held = {partition: progress_from_json(value) for partition, value in values.items() if value is not None}
    return held if len(held) == len(values) else {}


@contextmanager
def translated() -> Iterator[None]:
    """Raise the log's errors, and those of the copy of the rows, as StoreUnavailable."""
    try:
        yield
    except Fenced as error:
        raise TakenOver(NAME, str(error)) from error
    except (LeftOpen, LogUnavailable) as error:
        raise StoreUnavailable(NAME, str(error)) from error
    except sqlite3.Error as error:
        raise StoreUnavailable(NAME, f"its loader cannot keep rows in HEADWATER_STATE: {error}") from error


BACKEND: Final = Backend(TopicStore, TopicRows)
