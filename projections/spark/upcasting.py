"""The histories of events as Spark SQL: older versions are read as the current version.

This costs only rows of older versions. They are parsed a second time, for the changed fields, as variants: these keep
the JSON type, so one field may have had several. `commands/declaring/lineages.py` defines the semantics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

import orjson

from commands.declaring.lineages import NUMBER, WHOLE, Constant, Converted, Lineage, Part, Recorded
from commands.declaring.steps import (
    MAX_NUMBER_CHARACTERS,
    Conversion,
    Kind,
    Parsed,
    Recoded,
    Rounded,
    Scaled,
    Widened,
    Written,
)
from commands.declaring.times import TIME
from commands.declaring.upcasting import History
from projections.table.expressions import identifier, literal
from projections.table.types import PYTHON_TYPES, SPARK_TYPES, ColumnType

Lineages = Mapping[str, Lineage]
Older = Mapping[str, Mapping[int, Lineages]]
"""By event type and older version, the lineage of the changed fields."""

Histories = Mapping[str, History]
"""By event type."""

VARIANTS, TEXTS = "older_variants", "older_texts"
"""Columns with the fields of older versions: as variants, and as JSON texts if the field is not a scalar."""

_TYPE_OF: Final[Mapping[Kind, str]] = {
    str: "= 'STRING'",
    int: "= 'BIGINT'",
    float: "rlike '^(BIGINT|DOUBLE|DECIMAL)'",
    bool: "= 'BOOLEAN'",
}


def recorded_columns(older: Older, histories: Histories) -> list[str]:
    """The columns with the recorded fields of older versions; null in other rows."""
    names: dict[str, set[str]] = {VARIANTS: set(), TEXTS: set()}
    for event_type, versions in older.items():
        for lineages in versions.values():
            for name, lineage in lineages.items():
                for recorded, kind in _recorded(lineage, histories[event_type].fields[name]):
                    names[TEXTS if kind is object else VARIANTS].add(recorded)
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
                    made = _final(lineages[name], histories[event_type].fields[name])
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


def _recorded(lineage: Lineage, kind: Kind) -> Iterator[tuple[str, Kind]]:
    """The recorded fields that a lineage starts from, with their required kinds."""
    match lineage:
        case Recorded():
            yield lineage.name, kind
        case Constant():
            pass
        case Converted():
            yield from _recorded(lineage.of, lineage.source)
        case Part():
            yield from _recorded(lineage.of, str)
        case _:
            assert_never(lineage)


def _final(lineage: Lineage, kind: Kind) -> str:
    """Spark SQL of a field. Infinity passes through every step, and becomes null at the end."""
    made = compiled(lineage, kind)
    return f"if(abs({made}) <= 1.7976931348623157E308D, {made}, null)" if kind is float else made


def compiled(lineage: Lineage, kind: Kind) -> str:
    """Spark SQL of a lineage, which must result in this kind: null if it does not."""
    match lineage:
        case Recorded():
            return _typed(lineage.name, kind)
        case Constant():
            return _constant(lineage.value, kind)
        case Converted():
            return _converted(lineage.how, compiled(lineage.of, lineage.source), lineage.source)
        case Part():
            cut = literal("".join(c if c.isalnum() else "\\" + c for c in lineage.at))
            nothing = ", ".join(["''"] * lineage.parts)
            text = compiled(lineage.of, str)
            return f"get(concat(split({text}, {cut}, {lineage.parts}), array({nothing})), {lineage.number})"
        case _:
            assert_never(lineage)


def _typed(name: str, kind: Kind) -> str:
    if kind is object:
        return f"{TEXTS}.data.{identifier(name)}"
    if PYTHON_TYPES[kind] is ColumnType.TIME:
        return f"try_cast({_matching(_typed(name, str), TIME)} as timestamp)"
    column = f"{VARIANTS}.data.{identifier(name)}"
    own = SPARK_TYPES[PYTHON_TYPES[kind]]
    return f"if(schema_of_variant({column}) {_TYPE_OF[kind]}, try_cast({column} as {own}), null)"


def _constant(value: Any, kind: Kind) -> str:
    own = SPARK_TYPES[PYTHON_TYPES.get(kind, ColumnType.JSON)]
    if value is None:
        return f"cast(null as {own})"
    if isinstance(value, str):
        return f"cast({literal(value)} as {own})"
    return f"cast({literal(orjson.dumps(value).decode())} as {own})"


def _converted(how: Conversion, of: str, source: Kind) -> str:
    match how:
        case Scaled():
            if source is int:
                return f"try_multiply({of}, cast({literal(str(how.by))} as bigint))"
            return f"({of} * {_double(how.by)})"
        case Rounded():
            scaled = f"({of} * {_double(how.times)})"
            return f"if(abs({scaled}) < 9223372036854775808D, cast(rint({scaled}) as bigint), null)"
        case Parsed():
            pattern = WHOLE if how.kind is int else NUMBER
            number = _matching(of, f"(?=.{{1,{MAX_NUMBER_CHARACTERS}}}\\z){pattern}")
            return f"try_cast({number} as {SPARK_TYPES[PYTHON_TYPES[how.kind]]})"
        case Written():
            return f"cast({of} as string)"
        case Widened():
            return f"cast({of} as double)"
        case Recoded():
            words = " ".join(f"when {literal(old)} then {literal(new)}" for old, new in how.words)
            return f"(case {of} {words} else {of} end)" if words else of
        case _:
            assert_never(how)


def _double(number: float) -> str:
    return f"cast({literal(repr(float(number)))} as double)"


def _matching(text: str, pattern: str) -> str:
    """The text if all of it matches, else an empty text."""
    whole = literal(f"\\A(?:{pattern})\\z")
    return f"regexp_extract({text}, {whole}, 0)"
