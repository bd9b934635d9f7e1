"""Records of captured tables, and of topics of views, as Spark SQL; `projections/table/changes.py` defines the
semantics.

Each column is parsed as text, and then read as its declared type, since Debezium writes many types as texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.columns import Column, Kind
from headwater.eventlog.capturing.values import INTERVAL, LONG_CHARACTERS, NOT_FINITE, PLACEHOLDER, stand_ins
from headwater.projections.table.changes import (
    BLANKS,
    MAX_DIGITS,
    NO_DATA,
    NOT_TEXT,
    NUMBER,
    READ_YEAR,
    SHORT,
    WHOLE,
    key_columns,
)
from headwater.projections.table.expressions import from_json, identifier, literal
from headwater.projections.table.rows import Deleted, RowClass, exact_type, row_of
from headwater.projections.table.types import (
    SPARK_TYPES,
    ColumnType,
    is_outside_years,
    spark_exact,
    spark_time,
    within_years,
)

CHANGE, KEY, TEXTS, ROW, LACKS = "change", "row_key", "row_texts", "row_values", "row_lacks"
"""Columns: the parsed record and key, the texts of the row, its values, and what it lacks."""
BACKSLASH: Final = r"\\\\"
"""A backslash in a JSON text, which stands for itself: what follows is no escape."""
HALF: Final = r"\\u[dD][89a-fA-F]"
PAIR: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""Escapes of half a character, and of a whole one."""
VIEW_KEY: Final = "if(is_valid_utf8(key), key, null)"
"""The key of a row of a view; null if the record has none."""
LARGE: Final = r"[eE]\+?[0-9]{3}|[0-9]{309}"
"""What may be a number that no float holds."""


@dataclass(frozen=True)
class TableRead:
    """What some views read of a captured table, or of another view. names: of columns, sorted."""

    table: RowClass
    names: tuple[str, ...]

    @property
    def columns(self) -> list[Column]:
        """The columns that are read."""
        return [self.table.columns[name] for name in self.names]

    @property
    def key(self) -> list[Column]:
        """The columns of its key; none of a view, whose records have the key of the row."""
        return key_columns(self.table)

    @property
    def is_of_view(self) -> bool:
        """Whether it is the topic of a view."""
        return issubclass(self.table, ViewRow)

    @property
    def is_deleted(self) -> str:
        """The condition that a record says that its row is deleted."""
        return "value is null" if self.is_of_view else f"(value is null or {CHANGE}.op = 'd')"


Tables = Mapping[str, TableRead]
"""By topic."""


def parsed_change(tables: Tables) -> list[str]:
    """The columns CHANGE and KEY of records with `topic`, `key` and `record`; both are null in records of events."""
    row = _struct({name for read in tables.values() for name in read.names})
    key = _struct({column.name for read in tables.values() for column in read.key})
    is_change = f"topic in ({', '.join(map(literal, tables))})"
    fields, held = f"op string, before {row}, after {row}", "'$.after'"
    if any(read.is_of_view for read in tables.values()):
        fields += f", data {row}"
        held = _by_topic({topic: "'$.data'" if read.is_of_view else "'$.after'" for topic, read in tables.items()})
    return [
        f"if({is_change}, {from_json('record', fields)}, null) as {CHANGE}",
        f"if({is_change}, {from_json(_within('key', 'key'), f'key {key}')}.key, null) as {KEY}",
        f"if({is_change}, json_object_keys(get_json_object(record, {held})), null) as present"
        if any(_has_default(column) for read in tables.values() for column in read.columns)
        else "cast(null as array<string>) as present",
    ]


def _struct(names: Iterable[str]) -> str:
    fields = ", ".join(f"{identifier(name)}: string" for name in sorted(names))
    return f"struct<{fields or '`_`: string'}>"


def row_texts(tables: Tables) -> str:
    """The column TEXTS: of each column its text, or PLACEHOLDER if the record does not contain it."""
    texts = dict[str, str]()
    for topic, read in tables.items():
        fields = []
        for name in sorted({name for table in tables.values() for name in table.names}):
            text = "cast(null as string)"
            if name in read.names and read.is_of_view:
                text = f"{CHANGE}.data.{identifier(name)}"
            elif name in read.names:
                text = _resolved(read.table.columns[name])
            fields.append(f"{text} as {identifier(name)}")
        texts[topic] = f"struct({', '.join(fields) or 'cast(null as string) as `_`'})"
    return f"{_by_topic(texts)} as {TEXTS}"


def _resolved(column: Column) -> str:
    new, old = (f"{CHANGE}.{side}.{identifier(column.name)}" for side in ("after", "before"))
    if column.kind in SHORT:
        return f"if({_is_stand_in(column, new)}, {literal(PLACEHOLDER)}, {new})"
    long = (
        f"startswith({_trimmed(old)}, '[') and {_trimmed(old)} <> '[]'"
        if column.kind is Kind.ARRAY
        else f"length({old}) > {LONG_CHARACTERS}"
    )
    filled = f"if(coalesce({long}, false) and not {_is_stand_in(column, old)}, {old}, {literal(PLACEHOLDER)})"
    return f"if({_is_stand_in(column, new)}, {filled}, {new})"


def _is_stand_in(column: Column, text: str) -> str:
    always = stand_ins(column, is_update=False)
    in_updates = [value for value in stand_ins(column) if value not in always]
    condition = f"{text} in ({', '.join(map(literal, always))})"
    if not in_updates:
        return condition
    texts = (update if isinstance(update, str) else orjson.dumps(update).decode() for update in in_updates)
    return f"({condition} or ({CHANGE}.op = 'u' and {text} in ({', '.join(map(literal, texts))})))"


def row_values(tables: Tables, parsed: Mapping[str, ColumnType]) -> str:
    """The column ROW: `type`, `key`, and `data` with the fields of `parsed`."""
    return _by_topic({topic: _values(read, parsed) for topic, read in tables.items()}) + f" as {ROW}"


def _values(read: TableRead, parsed: Mapping[str, ColumnType]) -> str:
    columns = {column.name: column for column in read.columns}
    values = {name: _value(read, columns[name]) if name in columns else "null" for name in parsed}
    data = ", ".join(
        f"cast({values[name]} as {SPARK_TYPES[kind]}) as {identifier(name)}" for name, kind in parsed.items()
    )
    kind = f"if({read.is_deleted}, {literal(Deleted(read.table).type)}, {literal(row_of(read.table).type)})"
    fields = [
        f"{kind} as type",
        f"{VIEW_KEY if read.is_of_view else _key(read.key)} as key",
        f"struct({data}) as data" if data else "cast(null as string) as data",
    ]
    return f"struct({', '.join(fields)})"


def row_lacks(tables: Tables) -> str:
    """The column LACKS: the names of columns without a value, `unfit` and `unchanged`.

    It reads ROW, which is a column already, so that Spark converts each value once.
    """
    lacks = dict[str, str]()
    for topic, read in tables.items():
        unfit = _names({column.name: _is_unfit(read, column) for column in read.columns})
        marked = () if read.is_of_view else read.columns
        unchanged = _names({column.name: f"{_text(column)} = {literal(PLACEHOLDER)}" for column in marked})
        lacks[topic] = f"struct({unfit} as unfit, {unchanged} as unchanged)"
    return f"{_by_topic(lacks)} as {LACKS}"


def _names(conditions: Mapping[str, str]) -> str:
    """The array of the names whose condition is true. Not `array_compact`: Spark interprets its arguments."""
    none = "cast(array() as array<string>)"
    names = ", ".join(f"if({condition}, array({literal(name)}), {none})" for name, condition in conditions.items())
    return f"concat({names})" if names else none


def _by_topic(cases: Mapping[str, str]) -> str:
    return f"case topic {' '.join(f'when {literal(topic)} then {case}' for topic, case in cases.items())} end"


def _text(column: Column) -> str:
    return f"{TEXTS}.{identifier(column.name)}"


def _has_default(column: Column) -> bool:
    return not column.required and column.default is not None


def _value(read: TableRead, column: Column) -> str:
    """The value of a column; null also where it is unchanged or unfit."""
    text = _text(column)
    value_read = _read(column, text)
    if not read.is_of_view:
        value_read = f"if({text} = {literal(PLACEHOLDER)}, null, {value_read})"
    if not _has_default(column):
        return value_read
    default = literal(column.default if isinstance(column.default, str) else orjson.dumps(column.default).decode())
    return f"if(array_contains(present, {literal(column.name)}), {value_read}, {_read(column, default)})"


def _is_unfit(read: TableRead, column: Column) -> str:
    text, value = _text(column), f"{ROW}.data.{identifier(column.name)}"
    known = "true" if read.is_of_view else f"coalesce({text}, '') <> {literal(PLACEHOLDER)}"
    if not column.nullable:
        return f"({known} and {value} is null)"
    return f"({known} and {text} is not null and {value} is null and not {_is_null(column, text)})"


def _is_null(column: Column, text: str) -> str:
    """Whether a value is null for views although the record has one."""
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return _is_not_finite(text)
        case Kind.FLOAT:
            return f"({_is_not_finite(text)} or {_matches(text, NUMBER)})"
        case Kind.TIMESTAMP:
            return f"(not {_matches(text, READ_YEAR + '(?s:.*)')} or {is_outside_years(spark_time(text))})"
        case Kind.DATE:
            return f"not {_matches(text, READ_YEAR + '(?s:.*)')}"
        case Kind.JSON:
            return f"trim({text}) = 'null'"
        case _:
            return "false"


def _read(column: Column, text: str) -> str:
    match column.kind:
        case Kind.INTEGER:
            return f"if({_matches(text, WHOLE)} and length({text}) <= {MAX_DIGITS}, try_cast({text} as bigint), null)"
        case Kind.FLOAT:
            number = f"if({_matches(text, NUMBER)}, try_cast({text} as double), null)"
            return f"if(abs({number}) <= 1.7976931348623157E308D, {number}, null)"
        case Kind.BOOLEAN:
            return f"case {text} when 'true' then true when 'false' then false end"
        case Kind.DECIMAL:
            return f"if({_is_not_finite(text)}, null, {_checked(column, text)})"
        case Kind.TIMESTAMP:
            return within_years(spark_time(text))
        case Kind.DATE:
            return f"if({_matches(text, READ_YEAR + '(?s:.*)')}, {_checked(column, _without_zone(text))}, null)"
        case Kind.TIME:
            return _without_zone(text)
        case Kind.INTERVAL:
            return _interval(text)
        case Kind.ENUM:
            return f"if({text} in ({', '.join(map(literal, column.choices))}), {text}, null)"
        case Kind.JSON:
            return f"if({_has_no_value(text)}, null, {_parsed(text)})"
        case Kind.ARRAY:
            is_list = f"startswith({_trimmed(text)}, '[') and not coalesce({_has_no_value(text)}, false)"
            return f"if({is_list}, {_trimmed(text)}, null)"
        case _:
            return text


def _checked(column: Column, text: str) -> str:
    """The text of a decimal or a day; null if it is none that its column may have."""
    kind = exact_type(column)
    return text if kind is None else f"if({spark_exact(text, kind)} is null, null, {text})"


def _trimmed(text: str) -> str:
    return f"ltrim({literal(BLANKS)}, {text})"


def _parsed(text: str) -> str:
    return f"{from_json(_within('v', text), 'v string')}.v"


def _within(name: str, text: str) -> str:
    return f"concat('{{\"{name}\":', {text}, '}}')"


def _has_no_value(text: str) -> str:
    """Whether a JSON text has what Python refuses, and Spark falsifies: half of a surrogate pair becomes a question
    mark, and a number that no float holds the text "Infinity"."""
    halves = (f"regexp_replace({text}, {literal(BACKSLASH)}, '')", literal(PAIR), literal(HALF))
    has_half = f"{text} rlike {halves[2]} and regexp_replace({halves[0]}, {halves[1]}, '') rlike {halves[2]}"
    after, before = (f"(length({json}) - length(replace({json}, 'Infinity', '')))" for json in (_parsed(text), text))
    is_infinite = f"{after} > {before}"
    return f"(({has_half}) or ({text} rlike {literal(LARGE)} and {is_infinite}))"


def _is_not_finite(text: str) -> str:
    return f"{text} in ({', '.join(map(literal, sorted(NOT_FINITE)))})"


def _matches(text: str, pattern: str) -> str:
    whole = literal(f"\\A(?:{pattern})\\z")
    return f"{text} rlike {whole}"


def _without_zone(text: str) -> str:
    return f"if(endswith({text}, 'Z'), left({text}, length({text}) - 1), {text})"


def _interval(text: str) -> str:
    """The parts that are not zero, the seconds with up to six digits behind the point."""
    whole = literal(f"\\A(?:{INTERVAL})\\z")

    def part(number: int) -> str:
        return f"regexp_extract({text}, {whole}, {number})"

    def shown(number: int, unit: str) -> str:
        return f"if(cast({part(number)} as bigint) = 0, '', concat({part(number)}, '{unit}'))"

    digits = f"format_string('%.6f', cast({part(6)} as double))"
    rounded = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {digits}))"
    seconds = f"if(cast({part(6)} as double) = 0, '', concat({rounded}, 'S'))"
    days = f"concat({shown(1, 'Y')}, {shown(2, 'M')}, {shown(3, 'D')})"
    times = f"concat({shown(4, 'H')}, {shown(5, 'M')}, {seconds})"
    duration = f"if({times} = '', if({days} = '', 'PT0S', concat('P', {days})), concat('P', {days}, 'T', {times}))"
    return f"if({text} rlike {whole}, {duration}, null)"


def _key(columns: Sequence[Column]) -> str:
    """The key as text; null if the record has none."""
    texts = [_key_text(column, f"{KEY}.{identifier(column.name)}") for column in columns]
    if len(columns) == 1:
        return texts[0]
    parts = []
    for column, text in zip(columns, texts, strict=True):
        array = f"to_json(array({text}))"
        quoted = f"if({text} is null, null, substring({array}, 2, length({array}) - 2))"
        parts.append(text if column.kind in (Kind.INTEGER, Kind.BOOLEAN) else quoted)
    listed = ", ',', ".join(parts)
    return f"concat('[', {listed}, ']')"


def _key_text(column: Column, text: str) -> str:
    value = _read(column, text)
    return f"if({value} is null, null, {text})" if column.kind is Kind.TIMESTAMP else f"cast({value} as string)"


def columns(tables: Tables, *, with_data: bool) -> dict[str, str]:
    """The columns of a change, with the names of those of an event, and the names of columns without a value."""
    return {
        "refusal": refusal(tables),
        "id": "concat(topic, '/', `partition`, ':', `offset`)",
        "type": f"{ROW}.type",
        "stream": f"{ROW}.key",
        "sequence": "`offset`",
        "data_version": "cast(1 as bigint)",
        **({"data": f"{ROW}.data"} if with_data else {}),
        "unfit": f"{LACKS}.unfit",
        "unchanged": f"{LACKS}.unchanged",
    }


def refusal(tables: Tables) -> str:
    """Why a record is not a change of a row of its table or view; null if it is."""
    views = [topic for topic, read in tables.items() if read.is_of_view]
    if not views:
        return _table_refusal(tables)
    of_tables = {topic: read for topic, read in tables.items() if topic not in views}
    of_views = f"""
case
  when value is not null and not is_text then 'not a row of a view: the record is not UTF-8 text'
  when {ROW}.key is null then {literal(NOT_TEXT)}
  when value is not null and {CHANGE}.data is null then {literal(NO_DATA)}
end"""
    if not of_tables:
        return of_views
    return f"if(topic in ({', '.join(map(literal, views))}), {of_views}, {_table_refusal(of_tables)})"


def _table_refusal(tables: Tables) -> str:
    keys = dict[str, str]()
    for topic, read in tables.items():
        names = ", ".join(f'"{column.name}"' for column in read.key)
        keys[topic] = literal(f"not a change: its key lacks {names}, or has it with another type")
    is_deleted = f"(value is null or {CHANGE}.op = 'd')"
    return f"""
case
  when value is not null and not is_text then 'not a change: the record is not UTF-8 text'
  when value is not null and {CHANGE}.op is null then 'not a change: malformed JSON, or no "op"'
  when value is not null and {CHANGE}.op not in ('c', 'r', 'u', 'd') then 'not a change: "op" is not c, r, u or d'
  when {ROW}.key is null then {_by_topic(keys)}
  when not {is_deleted} and {CHANGE}.after is null then 'not a change: "after" is missing'
end"""
