"""Keys of several fields, such as `("tenant", "day")`, or of one that is no text: their texts, joined by a slash.

Stream views have them in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Field, literal
from headwater.projections.table.folds.fold import Cases, Ordering, Stored, one_kind
from headwater.projections.table.monoids import Extreme, StateField
from headwater.projections.table.types import ColumnType

PART_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.DATE, ColumnType.UUID)
TYPED_PARTS: Final = frozenset(PART_TYPES) - {ColumnType.TEXT}
"""Those that are no texts, so that the text of a key beside them is a column of its own."""
SEPARATOR: Final = "/"


@storage_word("KeyParts")
@dataclass(frozen=True, slots=True)
class KeyParts:
    """The key of a row that several fields identify. None of them is null: an event without one cannot be read."""

    names: tuple[str, ...]

    def kind(self, event: type[Event] | None) -> ColumnType:
        for name in self.names:
            kind = Field(name).kind(event)
            if kind not in PART_TYPES:
                raise ValueError(
                    f'"{name}" is {kind.value}, but a part of a key is a text, an integer, a boolean, a date or a UUID'
                )
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset(self.names)

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        parts = []
        for name in self.names:
            text = f"cast({Field(name).spark(event, parsed)} as string)"
            is_text = Field(name).kind(event) is ColumnType.TEXT
            parts.append(f"replace(replace({text}, '%', '%25'), '/', '%2F')" if is_text else text)
        return f"concat({f', {literal(SEPARATOR)}, '.join(parts)})"

    def python(self, event: type[Event] | None) -> str:
        return f"key_of_parts({', '.join(Field(name).python(event) for name in self.names)})"

    def of_data(self, data: Mapping[str, Any]) -> str:
        """The key of an event with this data."""
        return key_of_parts(*(data[name] for name in self.names))

    def parts_of(self, key: str) -> dict[str, str]:
        """The texts of the fields in a key; empty if it has not as many parts."""
        parts = key.split(SEPARATOR)
        if len(parts) != len(self.names):
            return {}
        return {name: unquote(part) for name, part in zip(self.names, parts, strict=True)}


@dataclass(frozen=True, eq=False)
class KeyPart:
    """A column with one of the fields of the key: all events of a row have the same value."""

    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        field = StateField(name, self.kind())
        return Stored(Extreme(field, highest=True), {case: {name: each} for case, each in self.cases.items()})


def key_of_parts(*values: Any) -> str:
    """The key of these values. The text of each has no slash, so that different rows have different keys."""
    return SEPARATOR.join(map(_text, values))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("%", "%25").replace("/", "%2F")
    return str(value).lower() if isinstance(value, bool) else str(value)
