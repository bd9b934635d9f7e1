"""Expressions of a change of a captured row: the key of its contribution, and that of the group that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Field, literal
from headwater.projections.table.retraction import contribution_key
from headwater.projections.table.types import ColumnType, spark_stored

GROUP_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.DATE)


@storage_word("ContributionKey")
@dataclass(frozen=True, slots=True)
class ContributionKey:
    """The key of a row's contribution. topic: of its table."""

    topic: str
    name: str = "stream"

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"concat({literal(self._prefix)}, `stream`)"

    def python(self, event: type[Event] | None) -> str:
        return f"{self._prefix!r} + head.subject"

    def of(self, envelope: Envelope) -> str:
        """The key for a change of a row."""
        return self._prefix + envelope.stream

    @property
    def _prefix(self) -> str:
        return contribution_key(self.topic, "")


@storage_word("GroupKey")
@dataclass(frozen=True, slots=True)
class GroupKey:
    """The text of a column; null if it is null, or if the condition is not true (None: it always counts)."""

    column: str
    condition: Expression | None

    def kind(self, event: type[Event] | None) -> ColumnType:
        kind = Field(self.column).kind(event)
        if kind not in GROUP_TYPES and not kind.is_decimal:
            raise ValueError(
                f'"{self.column}" is {kind.value}: group by a column of texts, integers, booleans, decimals or days'
            )
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset({self.column}) | (frozenset() if self.condition is None else self.condition.fields())

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        column = Field(self.column)
        text = f"cast({spark_stored(column.spark(event, parsed), column.kind(event))} as string)"
        if self.condition is None:
            return text
        return f"if(coalesce({self.condition.spark(event, parsed)}, false), {text}, cast(null as string))"

    def python(self, event: type[Event] | None) -> str:
        column = Field(self.column)
        kind, text = column.kind(event), column.python(event)
        if kind.is_decimal:
            text = f"decimal_in_rows({text}, {kind.places})"
        elif kind is not ColumnType.TEXT:
            text = f"group_text({text})"
        return text if self.condition is None else f"({text} if {self.condition.python(event)} else None)"


def group_text(value: Any) -> str | None:
    """The key of the rows with this value in their column."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
