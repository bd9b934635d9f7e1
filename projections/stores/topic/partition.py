"""One partition of one generation in Kafka, as its only writer has it."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog.envelope import decode, timestamp_ms
from headwater.eventlog.errors import LogUnavailable, NotAnEnvelope
from headwater.eventlog.limits import MAX_ENTRY_BYTES, MAX_TRANSACTION_BYTES, entry_size
from headwater.eventlog.ports import Entry, EventLog, abort_on_error
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.times import now_ms
from headwater.projections.errors import GenerationMissing, Unloadable
from headwater.projections.stores import ledgers
from headwater.projections.stores.store import LAST_NUMBER, Batch, Ledger, Target
from headwater.projections.stores.topic.latest import Latest
from headwater.projections.stores.topic.records import (
    LEDGER,
    NAME,
    ROW,
    Progress,
    Publication,
    Publications,
    PublicRows,
    building_role,
    check_key,
    generation_topic,
    progress_from_json,
    progress_to_json,
    public_topic,
    read_public,
    row_from_json,
    row_records,
    row_to_json,
    showing_role,
    topic_of,
)
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import BULK, Patch, Place

TOMBSTONE: Final = b"-"
"""In place of the digest of a row that is deleted."""
LEDGER_EVERY_S: Final = 1.0
"""Of a partition that gets no rows: its ledger alone is not worth a transaction for each batch."""
READABLE_S: Final = 2.0
"""How long Kafka may take until readers see a transaction that was committed: it tells partitions of it afterwards."""
TRANSACTION_ROWS: Final = 2_000
logger = logging.getLogger(__name__)


class FoldedRows:
    """A copy of the rows in the topic of a generation, on disk.

    The topic alone is the truth. The copy is made anew by whoever takes the partition over, and has what was committed
    since, so it cannot be behind the topic.
    """

    def __init__(self, log: EventLog, target: Target, partition: int, folder: Path) -> None:
        """Read the partition, which nobody else may write to any more. folder: see Latest.

        Raises EventLogError, and StoreUnavailable.
        """
        self._layout, self._held = target.view.layout, Latest(folder)
        self._held.put(
            (key, orjson.dumps(row_from_json(value)[1])) for key, value in row_records(log, target, partition)
        )

    def changed(self, patches: Sequence[Patch]) -> dict[str, tuple[State, State]]:
        """The rows that patches change, with their groups: each before and after them.

        Raises what `combine` raises if a patch does not fit its fields.
        """
        stored = self._states(patch.key for patch in patches)
        new = self._layout.with_groups(list(patches), stored)
        stored |= self._states(patch.key for patch in new if patch.key not in stored)
        after = ledgers.combined(self._layout, stored, new)
        return {key: (stored[key], state) for key, state in after.items()}

    def replace(self, rows: Mapping[str, State]) -> None:
        """Keep what the topic has now."""
        self._held.put((key, orjson.dumps(state)) for key, state in rows.items())

    def close(self) -> None:
        """Remove the copy."""
        self._held.close()

    def _states(self, keys: Iterable[str]) -> dict[str, State]:
        return {key: orjson.loads(self._held.get(key) or b"{}") for key in dict.fromkeys(keys)}


def becomes_readable(log: EventLog, topic: str, partition: int, noted: Progress, within_s: float) -> bool:
    """Wait until readers see this progress, which was committed, for at most `within_s`; raises LogUnavailable."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = log.last(topic, partition, LEDGER)
        if value is not None and progress_from_json(value) == noted:
            return True
        time.sleep(0.01)
    return False


class PublishedMeanwhile(LogUnavailable):
    """Another generation was published while a partition was taken over, as in each swap: take it over again."""

    def __init__(self, topic: str) -> None:
        super().__init__(f'taking over "{topic}"', "another generation was published meanwhile")


class OwnedPartition:
    """Writes the rows of a partition of `patches` to the topic of a generation, and to the public one if it is shown.

    Rows and ledger are one transaction. Whoever takes the partition over fences this writer: then its next write raises
    Fenced, and it must be opened again.
    """

    def __init__(
        self,
        log: EventLog,
        publications: Publications,
        target: Target,
        partition: int,
        folder: Path,
        fault: Callable[[str], None],
    ) -> None:
        """Take the partition over. folder: for temporary files.

        Raises EventLogError, and GenerationMissing if the generation has no ledger.
        """
        self._log, self._target, self._partition, self._fault = log, target, partition, fault
        self._folder = folder
        self._topic, self._public = generation_topic(target), public_topic(target.view.name)
        self._rows = PublicRows(target)
        if not log.stored_ends(self._topic):
            raise GenerationMissing(*target.id)
        published = publications.of(target.view.name, fresh=True)
        self._shows = _shown(published, target)
        self._writer = log.own(partition, building_role(target) if self._shows is None else showing_role(target))
        self._folded: FoldedRows | None = None
        try:
            if self._shows is not None:  # a builder that does not know yet that it is published must end
                log.own(partition, building_role(target)).close()
            # whoever shows a later publication has fenced this writer already, or it would be known here
            if publications.of(target.view.name, fresh=True) != published:
                raise PublishedMeanwhile(self._topic)
            value = log.last(self._topic, partition, LEDGER)
            if value is None or not (progress := progress_from_json(value)).complete:
                raise GenerationMissing(*target.id)
            self._progress = self._noted = progress
            self._noted_at = time.monotonic()
            if not target.view.has_own_query:
                self._folded = FoldedRows(log, target, partition, folder)
            self._awaited = self._places_to_reach()
            if self._shows is not None and self.has_reached:
                self._show_all(self._shows)
                self._awaited = None
        except BaseException:
            self.close()
            raise

    def is_current(self, publication: Publication | None) -> bool:
        """Whether it shows what it should, now that this is the publication of its view."""
        return self._shows == _shown(publication, self._target)

    @property
    def has_reached(self) -> bool:
        """Whether it can show now what it did not show yet. Open it again for that: its last rows may not be readable
        before."""
        if self._awaited is None:
            return False
        return all(self._progress.ledger.has(source, place) for source, place in self._awaited.items())

    def apply(self, batch: Batch) -> None:
        """Write the new rows of `batch`, and advance the ledger. See ViewStore.apply."""
        before = self._progress
        ledgers.check(NAME, self._target, {self._partition: before.ledger}, {self._partition: batch})
        ledger = Ledger(before.ledger.next_offset, dict(before.ledger.applied))
        patches = ledgers.take_new(ledger, batch, self._target.tag)
        if self._folded is not None:
            for first in range(0, len(patches), TRANSACTION_ROWS):
                self._fold(self._folded, patches[first : first + TRANSACTION_ROWS])
            self._progress = self._progress._replace(ledger=ledger)
            self.settle()
            return
        parts = self._by_batch(patches) if self._target.view.has_state else self._by_place(patches)
        for progress, part in parts[:-1]:
            self._progress = progress
            self._write(part)
        self._progress = (parts[-1][0] if parts else before)._replace(ledger=ledger)
        if parts:
            self._write(parts[-1][1])
        else:
            self.settle()

    def _by_batch(self, patches: Sequence[Patch]) -> list[tuple[Progress, list[_Written]]]:
        """The rows of each transaction, and the progress with it, if batches come in order.

        They may be read again: a row never goes back to an earlier one.
        """
        before = self._progress
        rows = {patch.key: patch for patch in patches if _number(patch) >= before.batch}
        parts = _parts(map(self._of_whole, sorted(rows.values(), key=_number)))
        return [(before._replace(batch=part[-1].batch), part) for part in parts]

    def _by_place(self, patches: Sequence[Patch]) -> list[tuple[Progress, list[_Written]]]:
        """Likewise if the ledger has removed what was read again, and each source is in order.

        Each transaction has the places of its own rows: after a crash, no earlier row comes again.
        """
        before, written = self._progress, list[tuple[Progress, list[_Written]]]()
        applied, left = dict(before.ledger.applied), iter(patches)
        for part in _parts(map(self._of_whole, patches)):
            applied |= {patch.source: patch.place for patch in islice(left, len(part))}
            ledger = Ledger(before.ledger.next_offset, dict(applied))
            written.append((before._replace(ledger=ledger), list({row.key: row for row in part}.values())))
        return written

    def _fold(self, folded: FoldedRows, patches: Sequence[Patch]) -> None:
        """Combine patches into their rows and write these, in one transaction with the places of the patches."""
        with ledgers.loadable(NAME):
            changed = folded.changed(patches)
        number = self._progress.batch + 1
        rows = [self._written(key, number, after, before) for key, (before, after) in changed.items()]
        if len(patches) > 1 and sum(row.size_bytes for row in rows) > MAX_TRANSACTION_BYTES:
            half = len(patches) // 2
            self._fold(folded, patches[:half])
            self._fold(folded, patches[half:])
            return
        held = self._progress.ledger
        applied = dict(held.applied) | {patch.source: patch.place for patch in patches}
        self._progress = self._progress._replace(ledger=Ledger(held.next_offset, applied), batch=number)
        self._write(rows)
        folded.replace({key: after for key, (_, after) in changed.items()})

    def settle(self, *, now: bool = False) -> None:
        """Write the ledger if that is due, or `now`."""
        if now or time.monotonic() - self._noted_at >= LEDGER_EVERY_S:
            self.note()

    def note(self) -> None:
        """Write the ledger if it is ahead of the written one."""
        if self._progress != self._noted:
            self._write([])

    def wait_until_readable(self) -> None:
        """Return once readers see the ledger that was written last, or after READABLE_S; raises LogUnavailable."""
        becomes_readable(self._log, self._topic, self._partition, self._noted, READABLE_S)

    def close(self) -> None:
        """Give the partition up."""
        if self._folded is not None:
            self._folded.close()
        self._writer.close()

    def _of_whole(self, patch: Patch) -> _Written:
        """The records of a row that is a patch."""
        return self._written(patch.key, _number(patch), patch.fields)

    def _written(self, key: str, batch: int, state: State, before: State | None = None) -> _Written:
        """The records of a row. Raises Unloadable if it is too large, or does not fit its columns.

        before: the row before, if it is known: then nothing is shown of a change that nobody can see.
        """
        check_key(key)
        with ledgers.loadable(NAME):  # such as a sum of more than 64 bits
            entries = [Entry(self._topic, ROW + key, row_to_json(batch, state), now_ms())]
            if self._shows is not None and self._awaited is None:
                data = self._rows.data(key, state)
                if before is None or data != (self._rows.data(key, before) if before else None):
                    entries.append(self._public_entry(key, data, batch))
        if (largest := max(entry_size(entry.key, entry.value) for entry in entries)) > MAX_ENTRY_BYTES:
            raise Unloadable(NAME, f"a record of the row has {largest} bytes, more than {MAX_ENTRY_BYTES}")
        return _Written(key, batch, entries)

    def _public_entry(self, key: str, data: dict[str, Any] | None, batch: int) -> Entry:
        now = datetime.now(UTC)
        value = None if data is None else self._rows.value(key, data, batch, now)
        return Entry(self._public, key, value, timestamp_ms(now))

    def _write(self, rows: Sequence[_Written]) -> None:
        """Write rows and the ledger in one transaction."""
        ledger = Entry(self._topic, LEDGER, progress_to_json(self._progress), now_ms())
        entries = [ledger, *(entry for row in rows for entry in row.entries)]
        with abort_on_error(self._writer.begin()) as begun:
            begun.append(sorted(entries, key=attrgetter("topic")))
            self._fault("rows written")
            begun.commit()
        self._noted, self._noted_at = self._progress, time.monotonic()

    def _places_to_reach(self) -> dict[str, Place] | None:
        """By source, the place from which on the public topic shows this generation; None: it does already.

        Before, rows of a view without a state of its own would be older than those that generations before it have
        shown. These have lost the partition, so their ledgers are final. A log that was made anew may end before their
        places.
        """
        if self._shows is None or self._progress.shown == self._shows.offset:
            return None
        places: dict[str, Place] = {}
        for generation in () if self._target.view.has_state else self._shows.before:
            held = topic_of(self._target.view.name, generation)
            value = self._log.last(held, self._partition, LEDGER) if self._log.stored_ends(held) else None
            for source, place in progress_from_json(value).ledger.applied.items() if value else ():
                if source == BULK:
                    continue  # its events are those of the other sources
                topic, number = topic_and_partition(source)
                if self._folded is not None and topic not in self._target.view.topics:
                    continue  # an earlier version read it
                if number not in self._log.stored_ends(topic):
                    continue  # its log is gone, as of a table that is captured no more
                last = min(place.offset, self._log.end(topic, number) - 1)
                # all rows of that record, which have one place
                places[source] = max(places.get(source, Place(last, 0)), Place(last, LAST_NUMBER))
        return places

    def _show_all(self, publication: Publication) -> None:
        """Bring the public topic to this generation: write rows that differ, delete those that it does not have."""
        began, number = time.monotonic(), 0
        with closing(Latest(self._folder)) as public, closing(Latest(self._folder)) as rows:
            published = read_public(self._log, self._target.view.name, self._partition)
            public.put((key, _digest_of(value)) for key, value in published)
            rows.put(row_records(self._log, self._target, self._partition))
            for part in _parts(self._differing(public, rows)):
                self._write(part)
                number += len(part)
        self._progress = self._progress._replace(shown=publication.offset)
        self._write([])
        logger.info(
            "%s g%d: partition %d of its topic got %d changes in %.2f s",
            *self._target.id, self._partition, number, time.monotonic() - began,
        )  # fmt: skip

    def _differing(self, public: Latest, rows: Latest) -> Iterator[_Written]:
        """What the public topic lacks, and what only it has. public: digests, which are removed on the way."""
        for key, value in rows.items():
            batch, state = row_from_json(value)
            data = self._rows.data(key, state)
            if data is not None and public.pop(key) != _digest(data):
                yield _Written(key, batch, [self._public_entry(key, data, batch)])
        for key, digest in public.items():
            if digest != TOMBSTONE:
                yield _Written(key, 0, [self._public_entry(key, None, 0)])


class _Written(NamedTuple):
    """The records of a row. batch: the number of the one that computed it, or the offset of its record."""

    key: str
    batch: int
    entries: list[Entry]

    @property
    def size_bytes(self) -> int:
        return sum(len(entry.value or b"") for entry in self.entries)


def _parts(rows: Iterable[_Written]) -> Iterator[list[_Written]]:
    """The rows in order, divided into transactions."""
    part, size_bytes = list[_Written](), 0
    for row in rows:
        if part and (len(part) == TRANSACTION_ROWS or size_bytes + row.size_bytes > MAX_TRANSACTION_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(row)
        size_bytes += row.size_bytes
    if part:
        yield part


def _number(patch: Patch) -> int:
    """The number of the batch that computed the row, or the offset of its record."""
    return patch.place.offset


def _shown(publication: Publication | None, target: Target) -> Publication | None:
    """The publication, if it is of this generation."""
    return publication if publication is not None and publication.generation == target.generation else None


def _digest(data: dict[str, Any]) -> bytes:
    return hashlib.blake2b(orjson.dumps(data, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _digest_of(value: bytes | None) -> bytes:
    """Of the row in a record; TOMBSTONE for none, b"" if somebody else wrote it."""
    if value is None:
        return TOMBSTONE
    try:
        return _digest(dict(decode(value).data))
    except NotAnEnvelope:
        return b""
