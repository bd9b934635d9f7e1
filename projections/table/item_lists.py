"""Lists in the data of events: how Python and Spark read their items, and what every item must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.expressions import attribute, from_json, identifier
from headwater.projections.table.types import (
    SPARK_TYPES,
    ColumnType,
    exact_value,
    fitting,
    is_exact,
    spark_exact,
    spark_time,
    within_years,
)

ITEM: Final = "item"
INDEX: Final = "i"
"""The names of an item and its index in Spark SQL, in a lambda and in a column."""


class FittingField(NamedTuple):
    """A field that may be null, but no value that is none of its type, such as a decimal with too many places."""

    name: str
    kind: ColumnType

    def __str__(self) -> str:
        return self.name

    def is_missing(self, data: Mapping[str, Any]) -> bool:
        """Whether it has such a value. data: as it was recorded."""
        value = data.get(self.name)
        return value is not None and exact_value(value, self.kind) is None


class ItemField(NamedTuple):
    """A field that every item of a list must have; written `list[].name`.

    nullable: it may be null, but see FittingField.
    """

    list: str
    name: str
    kind: ColumnType
    nullable: bool = False

    def __str__(self) -> str:
        return f"{self.list}[].{self.name}"

    def is_missing(self, data: Mapping[str, Any]) -> bool:
        """Whether the list, or the field of one of its items, is missing."""
        items = list_in(data, self.list)
        if self.nullable:
            one = FittingField(self.name, self.kind)
            return any(one.is_missing(each) for each in items or () if isinstance(each, dict))
        return items is None or any(
            not isinstance(each, dict) or fitting(each.get(self.name), self.kind) is None for each in items
        )


Required = str | FittingField | ItemField
"""What an event must have: a field by its name, or by what its value must be."""


def list_in(data: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """The list with this name; None if there is none."""
    return as_list(data.get(name))


def as_list(found: Any) -> Sequence[Any] | None:
    """A JSON value as a list; None if it is none. A text with a JSON list counts too, because of Spark."""
    if isinstance(found, str) and found.startswith("["):
        try:
            found = orjson.loads(found)
        except orjson.JSONDecodeError:
            return None
    return found if isinstance(found, list) else None


def items_python(name: str, event: type[Event] | None) -> str:
    """Python source of the items of the event's list `name`."""
    return f"{items_function(name, event)}(data.{attribute(name)})"


def items_function(name: str, event: type[Event] | None) -> str:
    """The name in compiled source of the function that decodes the items of this list."""
    return f"items_{attribute(event.type if event else '')}_{attribute(name)}"


def missing_items(required: Sequence[ItemField]) -> list[str]:
    """Spark SQL of the conditions, one per list, that the list, or one of these fields of its items, is missing."""
    lists: dict[str, dict[str, ItemField]] = {}
    for each in required:
        lists.setdefault(each.list, {})[each.name] = each
    conditions = []
    for name, fields in lists.items():
        absent = " or ".join(map(_is_absent, fields.values()))
        items = items_spark(name, {each.name: each.kind for each in fields.values()})
        without = "false" if all(each.nullable for each in fields.values()) else "true"
        conditions.append(f"coalesce(exists({items}, {ITEM} -> {absent}), {without})")
    return conditions


def _is_absent(field: ItemField) -> str:
    missing = f"{_read_item(field.name, field.kind)} is null"
    return f"({ITEM}.{identifier(field.name)} is not null and {missing})" if field.nullable else missing


def _read_item(name: str, kind: ColumnType) -> str:
    column = f"{ITEM}.{identifier(name)}"
    if is_exact(kind):
        return spark_exact(column, kind)
    return within_years(spark_time(column)) if kind is ColumnType.TIME else column


def items_spark(name: str, kinds: Mapping[str, ColumnType]) -> str:
    """Spark SQL of the event's list `name`, each item with these fields; null if it is not a list."""
    column = f"data.{identifier(name)}"
    parsed = from_json(column, f"array<{item_type(kinds)}>")
    return f"if(startswith({column}, '['), {parsed}, null)"


def single_item(kinds: Mapping[str, ColumnType]) -> str:
    """Spark SQL of the list of an event without one: one item, which is null."""
    return f"array(cast(null as {item_type(kinds)}))"


def item_type(kinds: Mapping[str, ColumnType]) -> str:
    """Spark's type of an item with these fields; times are texts, see `LogSchema.of`."""
    types = {name: "string" if kind is ColumnType.TIME else SPARK_TYPES[kind] for name, kind in sorted(kinds.items())}
    fields = ", ".join(f"{identifier(name)}: {kind}" for name, kind in types.items())
    return f"struct<{fields}>"
