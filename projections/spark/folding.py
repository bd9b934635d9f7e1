"""A view's rows as one Spark aggregation, in a single pass over the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from projections.expressions import identifier, literal
from projections.monoids import Tally
from projections.spark.events import HEARTBEAT_ROW, TOMBSTONE_ROW, LogSchema, parse, unreadable_reason
from projections.spark.lifting import Lifted, lifts
from projections.types import SPARK_TYPES
from projections.view import TableView, required_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POISON = "_poison"
"""Column with the position, `partition:offset`, of a record that cannot be read; null in rows of the view."""

MARKER = "_objects"
"""Column without meaning. Spark would sort before each aggregation of text; it hashes where one aggregate is a list."""

_KIND, _TALLY, _VALUE, _NUMBER = "_kind", "_tally", "_value", "_number"


def folded(records: DataFrame, view: TableView) -> DataFrame:
    """Kafka's records of `events` as rows: the key, every state field by name, `POISON` and `MARKER`.

    Rows without a key stand for what the view does not handle: drop them where they are written. (A filter here
    would be pushed down to the scan, and every document parsed twice.)
    """
    schema = LogSchema.of([view])
    kinds = lifts(view, schema)
    lifted = parse(records, schema).selectExpr(*_kinds(kinds)).selectExpr(*_lifted(view, kinds))
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


def fault(records: DataFrame, view: TableView) -> str:
    """Why the first of `records` cannot be read."""
    schema = LogSchema.of([view])
    lacking = " ".join(
        f"when type = {literal(name)} then {unreadable_reason(event, required_fields(view, event))}"
        for name, event in view.events.items()
    )
    told = f"case when refusal is not null then refusal {lacking} end as reason"
    (row,) = parse(records, schema).selectExpr(told).limit(1).collect()
    return str(row["reason"])


def _kinds(kinds: Mapping[str | None, Lifted]) -> list[str]:
    """First columns of one event: which kind it is, by number (null: nothing to this view), and POISON.

    A number, because every state field asks for it: comparing the type's text each time costs a tenth of a replay.
    """
    unread = f"{TOMBSTONE_ROW} or {HEARTBEAT_ROW}"
    named = " ".join(f"when {literal(name)} then {at}" for at, name in enumerate(kinds) if name is not None)
    rest = f"else {list(kinds).index(None)} " if None in kinds else ""
    kind = f"case type {named} {rest}end" if named else str(len(kinds) - 1)
    lacking = " ".join(
        f"when type = {literal(name)} then {each.unreadable}"
        for name, each in kinds.items()
        if name is not None and each.unreadable
    )
    poison = f"refusal is not null or {f'case {lacking} else false end' if lacking else 'false'}"
    return [
        "*",
        f"case when {unread} or refusal is not null then null else {kind} end as {_KIND}",
        f"if(not ({unread}) and ({poison}), concat(`partition`, ':', `offset`), null) as {POISON}",
    ]


def _lifted(view: TableView, kinds: Mapping[str | None, Lifted]) -> list[str]:
    """Columns of one event: the key, POISON, and each state field, null where it is untouched."""
    numbered = dict(enumerate(kinds.values()))
    columns = [f"{_by_kind({at: kind.key for at, kind in numbered.items()})} as {identifier(view.key_name)}", POISON]
    for each in view.layout.fields:
        values = {at: kind.fields[each.name] for at, kind in numbered.items() if each.name in kind.fields}
        columns.append(f"cast({_by_kind(values)} as {SPARK_TYPES[each.type]}) as {identifier(each.name)}")
    return columns


def _by_kind(texts: Mapping[int, str]) -> str:
    """`texts` by the event's kind as one expression; kinds with one text share a branch."""
    same: dict[str, list[str]] = {}
    for kind, text in texts.items():
        same.setdefault(text, []).append(str(kind))
    branches = " ".join(f"when {_KIND} in ({', '.join(found)}) then {text}" for text, found in same.items())
    return f"case {branches} end"


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
