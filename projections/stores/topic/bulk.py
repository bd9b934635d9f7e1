"""The bulk path of folded rows into the topic of a generation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.limits import MAX_ENTRY_BYTES, entry_size
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.projections.errors import StoreUnavailable, Unloadable
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import partition_text
from headwater.projections.stores.store import Target
from headwater.projections.stores.topic.records import NAME, ROW, check_key, generation_topic, row_to_json

if TYPE_CHECKING:
    import pyarrow as pa

WRITE_S = 60.0
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

    @classmethod
    def of(cls, settings: LogSettings, target: Target) -> TopicWriter:
        """The writer of a generation."""
        retracts = target.view.layout.retraction is not None
        one = partition_text(target.view, target.tag, "") if retracts else None
        return cls(settings, generation_topic(target), DocumentForm.of(target.view), one)

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        written = 0
        try:
            with closing(KafkaLog(self.settings)) as log:
                for chunk in self.form.chunks(rows):
                    with loadable(NAME):
                        entries = [self._entry(key, row_to_json(0, state)) for key, state in chunk]
                    stored = [log.submit(entry, partition) for entry, partition in entries]
                    for each in stored:
                        each.result(WRITE_S)
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


def count_rows(log: EventLog, target: Target, partition: int) -> int:
    """The rows in a partition of a generation, also deleted ones."""
    return len({each.key for each in log.read(generation_topic(target), partition, 0) if each.key.startswith(ROW)})
