"""The histories of events as Spark SQL: older versions are read as the current version.

This costs only rows of older versions. They are parsed a second time, for the changed fields, as variants: these keep
the JSON type, so one field may have had several. `commands/declaring/lineage_values.py` defines the semantics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from headwater.commands.declaring.lineages import (
    Changed,
    Constant,
    Converted,
    Gone,
    ItemItself,
    Items,
    Lineage,
    Member,
    Part,
    Recorded,
    With,
    leaves,
)
from headwater.commands.declaring.steps import Kind
from headwater.commands.declaring.upcasting import History
from headwater.projections.spark.lineage_sql import TEXTS, VARIANTS, field_sql
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import SPARK_TYPES, ColumnType

Lineages = Mapping[str, Lineage]
Older = Mapping[str, Mapping[int, Lineages]]
"""By event type and older version, the lineage of the changed fields."""

Histories = Mapping[str, History]
"""By event type."""


def recorded_columns(older: Older, histories: Histories) -> list[str]:
    """The columns with the recorded fields of older versions; null in other rows."""
    names: dict[str, set[str]] = {VARIANTS: set(), TEXTS: set()}
    for event_type, versions in older.items():
        for lineages in versions.values():
            for name, lineage in lineages.items():
                for recorded, column in _recorded(lineage, histories[event_type].fields[name]):
                    names[column].add(recorded)
    rows = " or ".join(
        _is_row(histories[event_type].types, version) for event_type, found in older.items() for version in found
    )
    columns = []
    for column, parsed_as in ((VARIANTS, "variant"), (TEXTS, "string")):
        if names[column]:
            fields = ", ".join(f"{identifier(name)}: {parsed_as}" for name in sorted(names[column]))
            ddl = literal(f"data struct<{fields}>")
            columns.append(f"case when {rows} then from_json(record, {ddl}) end as {column}")
    return columns


def current_data(older: Older, histories: Histories, parsed: Mapping[str, ColumnType], data: str) -> str:
    """Spark SQL of an event's data in the current version; `data` is that of the document, parsed as in `parsed`."""
    branches = []
    for event_type, versions in older.items():
        for version, lineages in versions.items():
            fields = []
            for name, kind in parsed.items():
                if name in lineages:
                    made = field_sql(lineages[name], histories[event_type].fields[name])
                    fields.append(f"cast({made} as {SPARK_TYPES[kind]}) as {identifier(name)}")
                else:
                    fields.append(f"{data}.{identifier(name)} as {identifier(name)}")
            branches.append(f"when {_is_row(histories[event_type].types, version)} then struct({', '.join(fields)})")
    return f"case {' '.join(branches)} else {data} end"


def is_type(column: str, types: Sequence[str]) -> str:
    """Spark SQL of the condition that a column has one of the types under which an event was recorded."""
    if len(types) == 1:
        return f"{column} = {literal(types[0])}"
    return f"{column} in ({', '.join(map(literal, types))})"


def _is_row(types: Sequence[str], version: int) -> str:
    return f"(document.dataversion = {version} and {is_type('document.type', types)})"


def _recorded(lineage: Lineage, kind: Kind) -> Iterator[tuple[str, str]]:
    """The recorded fields that a lineage starts from, and the columns that it needs them in."""
    match lineage:
        case Recorded():
            yield lineage.name, TEXTS if kind is object else VARIANTS
        case Constant() | Gone() | ItemItself():
            pass
        case Converted():
            yield from _recorded(lineage.of, lineage.source)
        case Part():
            yield from _recorded(lineage.of, str)
        case Member() | Changed() | Items():
            yield from _in_both(lineage.of)
        case With():
            yield from _in_both(lineage.of)
            for value in leaves(lineage.into):
                yield from _in_both(value)
        case _:
            assert_never(lineage)


def _in_both(lineage: Lineage) -> Iterator[tuple[str, str]]:
    for kind in (object, str):
        yield from _recorded(lineage, kind)
        if isinstance(lineage, Converted | Part):
            yield from _in_both(lineage.of)
