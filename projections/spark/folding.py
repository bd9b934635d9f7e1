"""A view's rows as one Spark aggregation, in a single pass over the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from projections.expressions import identifier, literal
from projections.monoids import Tally
from projections.spark.events import HEARTBEAT_ROW, TOMBSTONE_ROW, LogSchema, missing, missing_reason, parse
from projections.spark.lifting import Lifted, lifts
from projections.types import SPARK_TYPES
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POISON = "_poison"
"""Column of what cannot be read, `partition:offset reason` as key; null in rows of the view."""

MARKER = "_objects"
"""Column without meaning. Spark would sort before each aggregation of text; it hashes where one aggregate is a list."""

_TALLY, _VALUE, _NUMBER = "_tally", "_value", "_number"


def folded(records: DataFrame, view: TableView) -> DataFrame:
    """Kafka's records of `events` as rows: the key, every state field by name, `POISON` and `MARKER`.

    Rows without a key stand for what the view does not handle: drop them where they are written. (A filter here
    would be pushed down to the scan, and every document parsed twice.)
    """
    schema = LogSchema.of([view])
    kinds = lifts(view, schema)
    lifted = parse(records, schema).selectExpr(*_lifted(view, kinds))
    tallies = [monoid.field.name for monoid in view.layout.monoids if isinstance(monoid, Tally)]
    if not tallies:
        return _grouped(lifted, view, [view.key_name, POISON])
    # one row for the event, one for each value that it puts in or takes out: all grouped in the same pass
    parts = ["array(named_struct('t', -1, 'v', cast(null as bigint), 'n', cast(null as bigint)))"]
    for number, name in enumerate(tallies):
        entry = f"named_struct('t', {number}, 'v', held.v, 'n', held.n)"
        parts.append(f"transform(coalesce({identifier(name)}, array()), held -> {entry})")
    others = [each.name for each in view.layout.fields if each.name not in tallies]
    exploded = lifted.selectExpr(
        identifier(view.key_name), POISON, *map(identifier, others), f"explode(concat({', '.join(parts)})) as part"
    ).selectExpr(
        identifier(view.key_name),
        POISON,
        *(f"if(part.t < 0, {identifier(name)}, null) as {identifier(name)}" for name in others),
        f"part.t as {_TALLY}",
        f"part.v as {_VALUE}",
        f"part.n as {_NUMBER}",
    )
    counted = _grouped(exploded, view, [view.key_name, POISON, _TALLY, _VALUE], f"sum({_NUMBER}) as {_NUMBER}")
    return _grouped(
        counted.drop(MARKER), view, [view.key_name, POISON], *(_tally(name, at) for at, name in enumerate(tallies))
    )


def _lifted(view: TableView, kinds: Mapping[str | None, Lifted]) -> list[str]:
    """Columns of one event: the key, what is wrong with it, and each state field, null where it is untouched."""
    keys = _by_type({name: kind.key for name, kind in kinds.items()})
    faults = _by_type(
        {
            name: f"if({missing(kind.required)}, {missing_reason(name, kind.required)}, null)"
            for name, kind in kinds.items()
            if name and kind.required
        }
    )
    unread = f"{TOMBSTONE_ROW} or {HEARTBEAT_ROW}"
    fault = f"case when {unread} then null when refusal is not null then refusal else {faults} end"
    ok = f"not ({unread}) and refusal is null"
    columns = [
        f"if({ok}, {keys}, null) as {identifier(view.key_name)}",
        f"concat(`partition`, ':', `offset`, ' ', {fault}) as {POISON}",
    ]
    for each in view.layout.fields:
        values = {name: kind.fields[each.name] for name, kind in kinds.items() if each.name in kind.fields}
        columns.append(f"cast({_by_type(values)} as {SPARK_TYPES[each.type]}) as {identifier(each.name)}")
    return columns


def _by_type(texts: Mapping[str | None, str]) -> str:
    """`texts` by event type as one expression; types with one text share a branch."""
    rest = texts.get(None, "null")
    same: dict[str, list[str]] = {}
    for name, text in texts.items():
        if name is not None:
            same.setdefault(text, []).append(literal(name))
    if not same:
        return rest
    branches = " ".join(f"when type in ({', '.join(names)}) then {text}" for text, names in same.items())
    return f"case {branches} else {rest} end"


def _grouped(frame: DataFrame, view: TableView, keys: list[str], *also: str) -> DataFrame:
    """`frame` by `keys`, every state field combined by its monoid: a fold of events, or of folds."""
    names = {each.name: identifier(each.name) for each in view.layout.fields}
    made = [
        f"{text} as {identifier(name)}" for monoid in view.layout.monoids for name, text in monoid.spark(names).items()
    ]
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return frame.groupBy(*keys).agg(
        *(F.expr(each) for each in (*made, *also, f"collect_list(cast(null as boolean)) as {MARKER}"))
    )


def _tally(name: str, at: int) -> str:
    """The aggregate that gathers what is held of one tally; null where no event touched it."""
    entry = f"if({_TALLY} = {at} and {_NUMBER} <> 0, struct({_VALUE} as v, {_NUMBER} as n), null)"
    touched = f"count(if({_TALLY} = {at}, 1, null)) > 0"
    return f"if({touched}, collect_list({entry}), null) as {identifier(name)}"
