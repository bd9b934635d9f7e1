"""The rows that a query returns as records of `patches`, and checks of these rows' columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from eventlog.settings import LogSettings
from eventlog.topics import PATCHES
from projections.errors import ViewDeclarationError
from projections.loading.decoding import BATCH as BATCH_MEMBER
from projections.spark.patch_sql import sendable
from projections.stream.view import BATCH, StreamView
from projections.table.expressions import identifier, literal
from projections.table.types import SPARK_TYPES, ColumnType

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
}
"""The types of Spark whose values a column can hold, each exactly."""
TIME_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
"""As `to_json` writes a time in UTC."""
NULL_KEY: Final = "%"
"""Of one of several key columns if it is null; no text is encoded like this."""


def check_output(view: StreamView, rows: DataFrame) -> None:
    """Raise ViewDeclarationError if these are not rows of `view`."""
    if not rows.isStreaming:
        raise ViewDeclarationError(view.name, "its query returns no stream: compute the rows from its arguments")
    found = dict(rows.dtypes)
    if len(found) < len(rows.columns):
        raise ViewDeclarationError(view.name, f"its query returns a column twice: {', '.join(rows.columns)}")
    missing, more = view.columns.keys() - found.keys(), found.keys() - view.columns.keys()
    if missing or more:
        problems = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        problems += [f"also has {', '.join(sorted(more))}"] if more else []
        raise ViewDeclarationError(
            view.name, f"its query must return the columns {', '.join(view.columns)}, but {' and '.join(problems)}"
        )
    for name, kind in view.columns.items():
        if found[name] not in _FITTING[kind]:
            raise ViewDeclarationError(
                view.name,
                f'column "{name}" is declared {kind.name}, but its query returns {found[name]}: add '
                f'.cast("{SPARK_TYPES[kind]}"), or declare another type',
            )


def row_records(rows: DataFrame, view: StreamView, tag: str, batch: int, settings: LogSettings) -> DataFrame:
    """The records of `patches` that replace these rows: `topic, key, value, partition`.

    tag: of the generation. batch: the number of the batch that computed them.

    If the key has one column, a row in which it is null is left out.
    """
    parts = [_key_text(name, view.columns[name], several=len(view.key_columns) > 1) for name in view.key_columns]
    fields = [f"{batch}L as {identifier(BATCH)}"]
    fields += [f"{_value(name, kind)} as {identifier(name)}" for name, kind in view.layout.types.items()]
    if len(parts) == 1:
        rows = rows.where(f"{identifier(view.key_columns[0])} is not null")
    keyed = rows.selectExpr(
        f"concat({literal(tag + '/')}, concat_ws('/', {', '.join(parts)})) as key",
        f"to_json(struct({batch}L as {BATCH_MEMBER}, unix_millis(current_timestamp()) as t, "
        f"struct({', '.join(fields)}) as c)) as value",
    )
    return sendable(
        keyed.selectExpr(
            f"{literal(settings.topic(PATCHES))} as topic",
            "key",
            "value",
            f"cast(crc32(cast(key as binary)) % {settings.patch_partitions} as int) as `partition`",
        )
    )


def _value(name: str, kind: ColumnType) -> str:
    column = identifier(name)
    if kind is ColumnType.FLOAT:
        return f"if(isnan({column}) or abs({column}) = double('infinity'), null, double({column}))"
    return f"cast({column} as {SPARK_TYPES[kind]})"


def _key_text(name: str, kind: ColumnType, *, several: bool) -> str:
    """The text of a key column; of several, it has no slash, so that different rows have different keys."""
    column = identifier(name)
    text = f"cast({column} as string)"
    if kind is ColumnType.TIME:
        text = f"date_format({column}, {literal(TIME_FORMAT)})"
    if several and kind is ColumnType.TEXT:
        text = f"replace(replace({text}, '%', '%25'), '/', '%2F')"
    return f"coalesce({text}, {literal(NULL_KEY)})" if several else text
