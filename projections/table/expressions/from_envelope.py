"""What every event has, whatever its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions.generated_text import identifier
from headwater.projections.table.types import ColumnType

ENVELOPE_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": ColumnType.TEXT,
    "type": ColumnType.TEXT,
    "stream": ColumnType.TEXT,
    "sequence": ColumnType.INTEGER,
    "time": ColumnType.TIME,
    "partition": ColumnType.INTEGER,
    "offset": ColumnType.INTEGER,
    "record": ColumnType.JSON,
}


@storage_word("FromEnvelope")
@dataclass(frozen=True, slots=True)
class FromEnvelope:
    """A value that every event has, whatever its type: one of `ENVELOPE_TYPES`; `record` is the whole document.

    In Spark these are columns of the parsed log with the same names, next to `data`.
    """

    name: str

    def kind(self, event: type[Event] | None) -> ColumnType:
        if self.name not in ENVELOPE_TYPES:
            raise ValueError(f'an envelope has no "{self.name}"; it has {", ".join(ENVELOPE_TYPES)}')
        return ENVELOPE_TYPES[self.name]

    def fields(self) -> frozenset[str]:
        return frozenset()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return identifier(self.name)

    def python(self, event: type[Event] | None) -> str:
        match self.name:
            case "time":
                return "format_milliseconds(timestamp_ms)"
            case "partition" | "offset":
                return self.name
            case "record":
                return "value.decode()"
            case "stream":
                return "head.subject"
            case _:
                return f"head.{self.name}"


def format_milliseconds(timestamp_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; events of one second share all but these."""
    seconds, rest = divmod(timestamp_ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
