"""`Topic`, as a view declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.eventlog.declaring import word
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.types import ColumnType


@word("Topic()")
@dataclass(frozen=True)
class Topic(DeclaredStore):
    """The rows of a view as a Kafka topic, `<environment>.views.<view>`, for programs that follow it.

    It is compacted: the last record of a key is the row, a tombstone a deleted row. Another store answers queries.
    """

    name = "topic"
    answers = False
    keeps_partitions = True

    @property
    def declaration(self) -> str:
        return "Topic()"

    def check(self, types: Mapping[str, ColumnType]) -> None:
        """It names no columns."""
