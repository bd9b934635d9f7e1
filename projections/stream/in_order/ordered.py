"""Rows of a stream in the order of their time, per key, for a Python function that keeps a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Final

from headwater.projections.durations import duration
from headwater.projections.stream.declaring.checks import is_column_type, is_key_type
from headwater.projections.stream.in_order.steps import OnTime, Step, Steps
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import SPARK_TYPES, ColumnType, finite, spark_value_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READABLE: Final[Mapping[str, ColumnType]] = {
    "string": ColumnType.TEXT,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), ColumnType.INTEGER),
    **dict.fromkeys(("float", "double"), ColumnType.FLOAT),
    "boolean": ColumnType.BOOLEAN,
    "timestamp": ColumnType.TIME,
}
"""The types of Spark that a step can be given, and what they are in Python."""
_SENT: Final = {ColumnType.TIME: "bigint"}
"""How some types are written in what Python returns, if not as in Spark."""
_NEEDED: Final = {"id": ColumnType.TEXT, "time": ColumnType.TIME}


def in_order(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    step: Step,
    columns: Mapping[str, ColumnType],
    forget_after: str,
    on_time: OnTime | None = None,
) -> DataFrame:
    """The rows that `step` returns when it is given `rows` in the order of `(time, id)`, per key, each once.

    For the query of a view with `final=True`: a row is given to `step` when no admitted row can come before it any
    more. Of rows with the same `id` and `time`, the one that was recorded last counts, if they have `recordedtime`;
    else the one whose JSON text is the greatest. Rows whose key is null are left out.

    rows: has at least `id` and `time`, as every source has; of observations, keep `recordedtime` too.
    key: its column or columns.
    step: `step(state, row)` returns the new state and a list of rows, each a dict with the names in `columns`. `state`
    is the value that it returned for the previous row of this key, or None; it must be made of dicts, lists, texts,
    numbers, booleans and None. `row` has the columns of `rows` as attributes; times are datetimes in UTC.
    columns: what `step` returns, with their types. A TIME is a datetime with a time zone, a POINT is
    `(latitude, longitude)`, and JSON is any value of which a JSON text can be made.
    forget_after: such as "30d". A row that comes longer than this after the previous one of its key finds the state
    None; so the state of a key is not kept for longer.
    on_time: `on_time(state, time)` is called at the time that `step` returned as a third value, after all rows up to it
    and before any later one, unless the step has returned another time, or none, since. It returns what a step does.
    A step that returns two values asks for no time, but with UNCHANGED it stays.

    Raises ValueError that says what to change. What `step` raises stops the query of this view.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    kinds = _kinds(rows)
    _check(kinds, keys, columns)
    steps = Steps(step, dict(kinds), dict(columns), duration(forget_after), on_time)
    values = ", ".join(f"{_plain(name, kind)} as {identifier(name)}" for name, kind in kinds.items())
    found = rows.where(" and ".join(f"{identifier(each)} is not null" for each in keys)).selectExpr(
        f"to_json(struct({', '.join(map(identifier, keys))})) as key",
        "time",
        f"to_json(struct({values}), map('ignoreNullFields', 'false')) as record",
    )
    ddl = ", ".join(f"{identifier(name)} {_SENT.get(kind, SPARK_TYPES[kind])}" for name, kind in columns.items())
    read = _in_windows(found, steps).selectExpr(f"from_json(made, {literal(ddl)}) as made")
    return read.selectExpr(*(f"{_typed(name, kind)} as {identifier(name)}" for name, kind in columns.items()))


def _in_windows(found: DataFrame, steps: Steps) -> DataFrame:
    """What the steps make of rows that are complete, as JSON."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    from headwater.projections.stream.in_order.ordered_state import WINDOW_S, OrderedRows  # noqa: PLC0415

    windows = (
        found.groupBy("key", f.window("time", f"{WINDOW_S} seconds").alias("seconds"))
        .agg(f.collect_list("record").alias("records"))
        .selectExpr(
            "key",
            "window_time(seconds) as time",
            "unix_millis(seconds.start) as start_ms",
            "concat_ws(',', records) as records",
        )
    )
    return windows.groupBy("key").transformWithState(OrderedRows(steps), "made string", "Append", "EventTime")


def _kinds(rows: DataFrame) -> dict[str, ColumnType]:
    """The columns of `rows` with their types; raises ValueError for those that a step cannot be given."""
    found = dict(rows.dtypes)
    for name, kind in found.items():
        if kind not in _READABLE:
            raise ValueError(
                f'in_order cannot pass column "{name}" of type {kind} to its step: cast it, or select other columns'
            )
        if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            raise ValueError(f'in_order cannot pass column "{name}" to its step: rename it to a Python name')
    if len(found) < len(rows.columns):
        raise ValueError(f"in_order is given a column twice: {', '.join(rows.columns)}")
    return {name: _READABLE[kind] for name, kind in found.items()}


def _check(kinds: Mapping[str, ColumnType], keys: Sequence[str], columns: Mapping[str, ColumnType]) -> None:
    for name, kind in _NEEDED.items():
        if kinds.get(name) is not kind:
            raise ValueError(f'in_order needs the columns "id" and "time" of the source: keep "{name}"')
    if not keys:
        raise ValueError("in_order has no key: name the column whose rows belong together")
    for name in keys:
        if name not in kinds:
            raise ValueError(f'in_order has the key "{name}", but its rows have {", ".join(kinds)}')
        if not is_key_type(kinds[name]):
            raise ValueError(f'in_order cannot take column "{name}" as key: its type is {kinds[name].name}')
    if not columns:
        raise ValueError("in_order has no columns: name what its step returns")
    for name, column in columns.items():
        if not is_column_type(column):
            raise ValueError(f'column "{name}" of in_order has the type {column!r}: use TEXT, INTEGER, FLOAT and such')


def _plain(name: str, kind: ColumnType) -> str:
    """Spark SQL of a column's value in JSON."""
    column = identifier(name)
    if kind is ColumnType.TIME:
        return f"unix_micros({column})"
    if kind is ColumnType.FLOAT:
        return finite(column)
    return column


def _typed(name: str, kind: ColumnType) -> str:
    column = f"made.{identifier(name)}"
    if kind is ColumnType.DATE or kind.is_decimal:
        return f"cast({column} as {'date' if kind is ColumnType.DATE else spark_value_type(kind)})"
    return f"timestamp_micros({column})" if kind is ColumnType.TIME else column
