"""The rows of a generation in Kafka, as states."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from eventlog.kafka.log import KafkaLog
from projections.errors import GenerationMissing
from projections.settings import StoreSettings
from projections.stores.names import patch_partition
from projections.stores.rows import Rows, Size, without_empty
from projections.stores.store import Target
from projections.stores.topic.records import read_rows
from projections.stores.topic.store import read_ledgers, translated
from projections.table.monoids import State


class TopicRows:
    """See RowReader. It reads whole partitions: Kafka finds no record by its key."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings.log

    def rows(self, target: Target) -> Rows:
        with translated(), closing(KafkaLog(self._settings)) as log:
            if not read_ledgers(log, target):
                raise GenerationMissing(*target.id)
            for partition in range(self._settings.patch_partitions):
                for key, (_, state) in read_rows(log, target, partition).items():
                    yield key, without_empty(state)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), closing(KafkaLog(self._settings)) as log:
            found: dict[str, State] = {}
            partitions = self._settings.patch_partitions
            for partition in {patch_partition(target.view, target.tag, key, partitions) for key in keys}:
                rows = read_rows(log, target, partition)
                found |= {key: without_empty(rows[key][1]) for key in keys if key in rows}
            return found

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Kafka counts records, and a row may have many
