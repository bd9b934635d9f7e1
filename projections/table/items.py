"""Lists in the data of events, and what views read of their items: in Python, in Spark, and as entries of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import is_required
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, attribute, from_json, identifier, parts_in, typed
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.monoids import StateField, register_spark
from headwater.projections.table.types import (
    SPARK_TYPES,
    ColumnType,
    exact_value,
    field_types,
    fitting,
    in_milliseconds,
    is_exact,
    item_model,
    spark_exact,
    spark_stored,
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
        items = as_list(data.get(self.list))
        if self.nullable:
            one = FittingField(self.name, self.kind)
            return any(one.is_missing(element) for element in items or () if isinstance(element, dict))
        return items is None or any(
            not isinstance(element, dict) or fitting(element.get(self.name), self.kind) is None for element in items
        )


Required = str | FittingField | ItemField
"""What an event must have: a field by its name, or by what its value must be."""


def as_list(value: Any) -> Sequence[Any] | None:
    """A JSON value as a list; None if it is none. A text with a JSON list counts too, because of Spark."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    return value if isinstance(value, list) else None


def items_python(name: str, event: type[Event] | None) -> str:
    """Python source of the items of the event's list `name`."""
    return f"{items_function(name, event)}(data.{attribute(name)})"


def items_function(name: str, event: type[Event] | None) -> str:
    """The name in compiled source of the function that decodes the items of this list."""
    return f"items_{attribute(event.type if event else '')}_{attribute(name)}"


def missing_items(required: Sequence[ItemField]) -> list[str]:
    """Spark SQL of the conditions, one per list, that the list, or one of these fields of its items, is missing."""
    lists: dict[str, dict[str, ItemField]] = {}
    for missing in required:
        lists.setdefault(missing.list, {})[missing.name] = missing
    conditions = []
    for name, fields in lists.items():
        absent = []
        for field in fields.values():
            column = value = f"{ITEM}.{identifier(field.name)}"
            if is_exact(field.kind):
                value = spark_exact(column, field.kind)
            elif field.kind is ColumnType.TIME:
                value = within_years(spark_time(column))
            absent.append(f"({column} is not null and {value} is null)" if field.nullable else f"{value} is null")
        items = items_spark(name, {field.name: field.kind for field in fields.values()})
        without = "false" if all(field.nullable for field in fields.values()) else "true"
        conditions.append(f"coalesce(exists({items}, {ITEM} -> {' or '.join(absent)}), {without})")
    return conditions


def items_spark(name: str, kinds: Mapping[str, ColumnType]) -> str:
    """Spark SQL of the event's list `name`, each item with these fields; null if it is not a list."""
    column = f"data.{identifier(name)}"
    parsed = from_json(column, f"array<{item_type(kinds)}>")
    return f"if(startswith({column}, '['), {parsed}, null)"


def item_type(kinds: Mapping[str, ColumnType]) -> str:
    """Spark's type of an item with these fields; times are texts, see `LogSchema.of`."""
    types = {name: "string" if kind is ColumnType.TIME else SPARK_TYPES[kind] for name, kind in sorted(kinds.items())}
    fields = ", ".join(f"{identifier(name)}: {kind}" for name, kind in types.items())
    return f"struct<{fields}>"


@storage_word("Item")
@dataclass(frozen=True, slots=True)
class Item:
    """A field of one item in a list of the event."""

    list: str
    name: str

    def kind(self, event: type[Event] | None) -> ColumnType:
        if event is None:
            raise ValueError(f'items of "{self.list}" need an event class: not every event has them')
        known = field_types(item_model(event, self.list))
        if self.name not in known:
            raise ValueError(f'items of "{self.list}" have {", ".join(sorted(known))}, but no "{self.name}"')
        return known[self.name]

    def fields(self) -> frozenset[str]:
        return frozenset({self.list})

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        column, own = f"{ITEM}.{identifier(self.name)}", self.kind(event)
        if is_exact(own):
            return spark_exact(column, own)
        return in_milliseconds(spark_time(column)) if own is ColumnType.TIME else column

    def python(self, event: type[Event] | None) -> str:
        kind, read = self.kind(event), f"item.{attribute(self.name)}"
        if kind is ColumnType.TIME and event is not None and not is_required(item_model(event, self.list), self.name):
            return f"time_or_null({read})"
        return typed(read, kind)


@storage_word("LogPlace")
@dataclass(frozen=True, slots=True)
class LogPlace(Expression):
    """The order of events across streams: time, then position in the log, as text that sorts bytewise."""

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.TEXT

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return "format_string('%015d|%05d|%019d', timestamp_ms, `partition`, `offset`)"

    def python(self, event: type[Event] | None) -> str:
        return "log_place(timestamp_ms, partition, offset)"


@storage_word("ItemIndex")
@dataclass(frozen=True, slots=True)
class ItemIndex(Expression):
    """The order of items in one event."""

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.INTEGER

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"cast({INDEX} as bigint)"

    def python(self, event: type[Event] | None) -> str:
        return "index"


@storage_word("Entries")
@dataclass(frozen=True, slots=True)
class Entries:
    """The entries that an event adds to a list of a row, one from each of `parts`, by the names of their fields.

    entry: every field of an entry; one that a part lacks is null. keys: the fields without which there is no entry.
    each: the list whose items each add such entries.
    """

    entry: tuple[StateField, ...]
    parts: tuple[Mapping[str, Expression], ...]
    keys: tuple[str, ...]
    each: str | None = None

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.ENTRIES

    def fields(self) -> frozenset[str]:
        return frozenset({self.each} if self.each else ()).union(*(expression.fields() for expression in self._read()))

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        entries = ", ".join(self._entry(part, event, parsed) for part in self.parts)
        if self.each is None:
            return f"array_compact(array({entries}))"
        kinds = {member.name: member.kind(event) for member in items_read(self._read()) if member.list == self.each}
        entries_sql = f"transform({items_spark(self.each, kinds)}, ({ITEM}, {INDEX}) -> array({entries}))"
        return f"array_compact(flatten(coalesce({entries_sql}, array())))"

    def python(self, event: type[Event] | None) -> str:
        parts = ""
        for part in self.parts:
            texts = {name: read.python(event) for name, read in part.items()}
            for name in texts.keys() & self.decimals.keys():
                texts[name] = f"decimal_in_rows({texts[name]}, {self.decimals[name].places})"
            parts += "{" + ", ".join(f"{name!r}: {text}" for name, text in texts.items()) + "}, "
        if self.each is None:
            return f"kept(({parts}), {self.keys!r})"
        through = f"for index, item in enumerate({items_python(self.each, event)})"
        return f"kept([entry {through} for entry in ({parts})], {self.keys!r})"

    @property
    def decimals(self) -> Mapping[str, ColumnType]:
        """The type of each field that is a decimal."""
        return {member.name: member.type for member in self.entry if member.type.is_decimal}

    def _entry(
        self, part: Mapping[str, Expression], event: type[Event] | None, parsed: Mapping[str, ColumnType]
    ) -> str:
        texts = {name: expression.spark(event, parsed) for name, expression in part.items()}
        stored = {
            member.name: spark_stored(texts[member.name], member.type) for member in self.entry if member.name in texts
        }
        fields = (
            f"cast({stored.get(member.name, 'null')} as {member.spark_type}) as {identifier(member.name)}"
            for member in self.entry
        )
        return f"if({' or '.join(f'{texts[key]} is null' for key in self.keys)}, null, struct({', '.join(fields)}))"

    def _read(self) -> list[Expression]:
        return [expression for part in self.parts for expression in part.values()]


@storage_word("Register")
@dataclass(frozen=True, slots=True)
class Register(Expression):
    """The register that a value sets in a sketch; none if it is null."""

    of: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.SKETCH

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        value = self.of.spark(event, parsed)
        return f"array_compact(array(if({value} is null, null, {register_spark(value)})))"

    def python(self, event: type[Event] | None) -> str:
        return f"registers({self.of.python(event)})"


@in_views('item("lines", "sku")')
def item(list: str, name: str) -> Item:
    """A field of each item of the event's list `list`, as in `item("lines", "sku")`.

    Use it if items are handled one by one: in a view with `each`, and in the key and the columns of `nested`.
    """
    return Item(list, name)


def items_read(expressions: Sequence[Expression]) -> frozenset[Item]:
    """The fields of items that these read, at any depth."""
    return frozenset(part for part in parts_of(expressions) if isinstance(part, Item))


def parts_of(expressions: Sequence[Expression]) -> Iterator[Expression]:
    """These expressions, and those that they read, at any depth."""
    for expression in expressions:
        yield expression
        yield from parts_of(parts_in(expression))


def items_required(read: frozenset[Item], event: type[Event], keys: Sequence[Expression]) -> tuple[ItemField, ...]:
    """The read fields that every item must have: keys of rows, and those that may be neither null nor missing.

    Also those of which a wrong value is refused.
    """
    ordered = sorted(read, key=lambda one: (one.list, one.name))
    fields = (
        ItemField(
            one.list,
            one.name,
            one.kind(event),
            not (one in keys or is_required(item_model(event, one.list), one.name)),
        )
        for one in ordered
    )
    return tuple(field for field in fields if not field.nullable or is_exact(field.kind))
