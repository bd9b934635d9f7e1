"""The rows that a query returns as records of `patches`, and checks of these rows' columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.loading.decoding import BATCH as BATCH_MEMBER
from headwater.projections.spark.patch_sql import partition_sql, sendable
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.stream.view import BATCH, StreamView
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.layout import DELETED
from headwater.projections.table.types import ColumnType, finite, spark_stored, spark_value_type, within_years

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FITTING: Final[Mapping[ColumnType, frozenset[str]]] = {
    ColumnType.TEXT: frozenset({"string"}),
    ColumnType.INTEGER: frozenset({"tinyint", "smallint", "int", "bigint"}),
    ColumnType.FLOAT: frozenset({"float", "double"}),
    ColumnType.BOOLEAN: frozenset({"boolean"}),
    ColumnType.TIME: frozenset({"timestamp"}),
    ColumnType.POINT: frozenset({"struct<lat:double,lon:double>"}),
    ColumnType.JSON: frozenset({"string"}),
    ColumnType.DATE: frozenset({"date"}),
}
"""The types of Spark whose values a column can hold, each exactly."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_FIRST_DATE, _LAST_DATE = "date'0001-01-01'", "date'9999-12-31'"
TIME_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
"""As `to_json` writes a time in UTC."""
_UNNUMBERED: Final = f'{{"{BATCH}":0'
"""How the fields of every row begin before their batch has a number."""
NULL_KEY: Final = "%"
"""Of one of several key columns if it is null; no text is encoded like this."""


def returned(view: StreamView, frames: Mapping[str, DataFrame], *, streaming: bool = True) -> DataFrame:
    """The rows that the query of `view` returns for these sources, with the columns of the view.

    streaming: whether the sources are streams. Raises ViewDeclarationError.
    """
    try:
        rows = view.query(**frames)
    except Exception as error:  # a user's function may raise anything
        raise ViewDeclarationError(view.name, f"its query fails: {reason(error, of_user=True)}") from error
    check_output(view, rows, streaming=streaming)
    return rows


def check_output(view: StreamView, rows: DataFrame, *, streaming: bool) -> None:
    """Raise ViewDeclarationError if these are not rows of `view`. streaming: whether they must be a stream."""
    if streaming and not rows.isStreaming:
        raise ViewDeclarationError(view.name, "its query returns no stream: compute the rows from its arguments")
    columns = dict(rows.dtypes)
    if len(columns) < len(rows.columns):
        raise ViewDeclarationError(view.name, f"its query returns a column twice: {', '.join(rows.columns)}")
    missing, more = view.returned.keys() - columns.keys(), columns.keys() - view.returned.keys()
    if missing or more:
        problems = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        problems += [f"also has {', '.join(sorted(more))}"] if more else []
        raise ViewDeclarationError(
            view.name, f"its query must return the columns {', '.join(view.returned)}, but {' and '.join(problems)}"
        )
    for name, kind in view.returned.items():
        if not _holds(kind, columns[name]):
            spark_type = "date" if kind is ColumnType.DATE else spark_value_type(kind)
            raise ViewDeclarationError(
                view.name,
                f'column "{name}" is declared {kind.name}, but its query returns {columns[name]}: add '
                f'.cast("{spark_type}"), or declare another type'
                if name in view.columns
                else f'column "{name}" deletes rows (deleted_by), so it must be BOOLEAN, but its query returns '
                f"{columns[name]}",
            )


def _holds(kind: ColumnType, spark_type: str) -> bool:
    """Whether a column of a view holds every value of this type of Spark, exactly."""
    if not kind.is_decimal:
        return spark_type in _FITTING[kind]
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is None:
        return False
    digits, places = map(int, decimal.groups())
    return places <= kind.places and digits - places <= kind.digits - kind.places


def row_texts(rows: DataFrame, view: StreamView, tag: str, settings: LogSettings) -> DataFrame:
    """These rows as `key, fields, partition` of their records; `numbered` adds what each batch has of its own.

    tag: of the generation. If the key has one column, a row in which it is null is left out.
    """
    if len(names := view.key_columns) == 1:
        rows = rows.where(f"{_key_text(names[0], view.columns[names[0]], several=False)} is not null")
    keyed = rows.selectExpr(
        f"{key_text(view)} as row",
        f"substring(to_json({fields_of(view, '0')}), {len(_UNNUMBERED) + 1}) as fields",
    )
    # without the tag: a row has the same partition in every generation, for stores that share a topic
    partition = f"{partition_sql('row', settings)} as `partition`"
    return keyed.selectExpr(f"concat({literal(tag + '/')}, row) as key", "fields", partition)


def numbered(texts: DataFrame, batch: int, settings: LogSettings) -> DataFrame:
    """The records of `patches` of one batch of `row_texts`: `topic, key, value, partition`.

    batch: its number. It is in the value as text: Spark compiles a query again for each new number in it, but not for
    a new text.
    """
    member = json.dumps({BATCH_MEMBER: batch, "t": now_ms()}, separators=(",", ":"))[:-1]
    start = f'{member},"c":{_UNNUMBERED[:-1]}{batch}'
    return sendable(
        texts.selectExpr(
            f"{literal(settings.topic(PATCHES))} as topic",
            "key",
            f"concat({literal(start)}, fields, '}}') as value",
            "`partition`",
        )
    )


def key_text(view: StreamView) -> str:
    """Spark SQL of the key of a row."""
    parts = [_key_text(name, view.columns[name], several=len(view.key_columns) > 1) for name in view.key_columns]
    return f"concat_ws('/', {', '.join(parts)})"


def fields_of(view: StreamView, order: str) -> str:
    """Spark SQL of the state fields of a row, as a struct. order: its number among the versions of the row."""
    fields = [f"{order} as {identifier(BATCH)}"]
    fields += [f"{_value(name, kind)} as {identifier(name)}" for name, kind in view.layout.types.items()]
    if view.deleted_by:  # `to_json` leaves out a null: only rows that are deleted say so
        fields.append(f"if({identifier(view.deleted_by)}, true, null) as {identifier(DELETED)}")
    return f"struct({', '.join(fields)})"


def _value(name: str, kind: ColumnType) -> str:
    """Spark SQL of a value; null if it is one that JSON or a store cannot have.

    Nothing is cast that is in JSON what it should be: if an expression of the user failed, Spark would show the cast.
    """
    column = identifier(name)
    match kind:
        case ColumnType.FLOAT:
            return finite(column)
        case ColumnType.TIME:
            return within_years(column)
        case ColumnType.DATE:
            return f"if({column} between {_FIRST_DATE} and {_LAST_DATE}, cast({column} as string), null)"
        case _ if kind.is_decimal:
            return spark_stored(column, kind)
        case ColumnType.POINT:
            return f"if({finite(f'{column}.lat')} is null or {finite(f'{column}.lon')} is null, null, {column})"
    return column


def _key_text(name: str, kind: ColumnType, *, several: bool) -> str:
    """The text of a key column; of several, it has no slash, so that different rows have different keys."""
    column = identifier(name)
    match kind:
        case ColumnType.TEXT:
            text = f"replace(replace({column}, '%', '%25'), '/', '%2F')" if several else column
        case ColumnType.TIME:
            text = f"date_format({within_years(column)}, {literal(TIME_FORMAT)})"
        case _ if kind is ColumnType.DATE or kind.is_decimal:
            text = _value(name, kind)
        case _:
            text = f"cast({column} as string)"
    return f"coalesce({text}, {literal(NULL_KEY)})" if several else text
