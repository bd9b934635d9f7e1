"""The rows of a generation in Kafka, as states."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.errors import GenerationMissing
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.rows import Rows, Size, without_empty
from headwater.projections.stores.store import Target
from headwater.projections.stores.topic.records import read_rows
from headwater.projections.stores.topic.store import read_ledgers, translated
from headwater.projections.table.monoids import State


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
