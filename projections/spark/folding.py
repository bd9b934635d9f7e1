"""A view's rows as one Spark aggregation, in a single pass over the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from projections.spark.events import LogSchema, parse, unreadable_reason
from projections.spark.view_sql import Lifted, lifts
from projections.table.expressions import identifier, literal
from projections.table.items import INDEX, ITEM, single_item
from projections.table.monoids import Grouped, Keyed, Ranked, Scalar, StateField
from projections.table.view import TableView, item_kinds, required_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POISON = "_poison"
"""Column that is null in rows of the view; else the position of an unreadable record, `partition:offset`, or ERASES."""

ERASES = "erases"
"""In POISON: there are tombstones, which may erase folded events."""

MARKER = "_objects"
"""Column without meaning. Spark would sort before each aggregation of text; it hashes if one aggregate is a list. The
size, because a row without a list must have the same type, and a null list is slow on its way to Python.
"""

GROUPED_IN_MEMORY = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
MAX_GROUPS = 150_000
LISTED_BYTES = 16 * 1024 * 1024
"""Of one task, for the lists of its groups; more memory is not faster."""
ENTRY_BYTES = 16
"""Memory that Spark allocates for each possible entry of a list."""

_KIND, _AT = "_kind", "_at"


def folded(records: DataFrame, view: TableView) -> DataFrame:
    """Kafka's records of `events` as rows: the key, every state field by name, `POISON` and `MARKER`.

    Rows without a key are events that the view does not handle: drop them when writing. (A filter here would be pushed
    down to the scan, and every document parsed twice.)
    """
    schema = LogSchema.of([view])
    kinds = lifts(view, schema)
    return combined(_counted(_parsed(records, view, kinds, schema), kinds).selectExpr(*_lifted(view, kinds)), view)


def groups_in_memory(view: TableView) -> int:
    """Groups that one task may keep in memory before it sorts and spills (GROUPED_IN_MEMORY).

    A limited list takes memory for its limit in every group, however few entries it has.
    """
    limits = sum(monoid.limit for monoid in view.layout.monoids if isinstance(monoid, Ranked | Keyed))
    return max(100, min(MAX_GROUPS, LISTED_BYTES // (ENTRY_BYTES * limits))) if limits else MAX_GROUPS


def combined(lifted: DataFrame, view: TableView) -> DataFrame:
    """A row per key (and per POISON): events, or folds of them, combined by the view's monoids."""
    scalars = [monoid for monoid in view.layout.monoids if isinstance(monoid, Scalar)]
    if view.per_event and len(scalars) == len(view.layout.monoids):
        return _alone(lifted, view.key_name, scalars)
    lists = [monoid for monoid in view.layout.monoids if isinstance(monoid, Grouped)]
    if not lists:
        return _grouped(lifted, [view.key_name, POISON], _aggregates(view))
    # one row per event, and one per entry that it brings to a list: all grouped in the same pass
    others = [each.name for each in view.layout.fields if not any(each is monoid.field for monoid in lists)]
    exploded = lifted.selectExpr(
        identifier(view.key_name), POISON, *map(identifier, others), f"explode({_parts(lists)}) as part"
    ).selectExpr(
        identifier(view.key_name),
        POISON,
        *(f"if(part.at < 0, {identifier(name)}, null) as {identifier(name)}" for name in others),
        f"part.at as {_AT}",
        *(
            f"part.{_entry(at)}.{identifier(each.name)} as {_column(at, each.name)}"
            for at, monoid in enumerate(lists)
            for each in monoid.field.entry
        ),
    )
    keys = [_column(at, key.name) for at, monoid in enumerate(lists) for key in monoid.keys]
    combined = [
        f"{text} as {_column(at, name)}"
        for at, monoid in enumerate(lists)
        for name, text in monoid.spark_entry({each.name: _column(at, each.name) for each in monoid.field.entry}).items()
    ]
    entries = _grouped(exploded, [view.key_name, POISON, _AT, *keys], [*_aggregates(view), *combined])
    gathered = [_gathered(at, monoid) for at, monoid in enumerate(lists)]
    # other columns are complete in the one group without entries
    rest = [f"any_value(if({_AT} < 0, {identifier(name)}, null), true) as {identifier(name)}" for name in others]
    return _grouped(entries.drop(MARKER), [view.key_name, POISON], [*rest, *gathered])


def fault(records: DataFrame, view: TableView) -> str:
    """Why the first of `records` cannot be read."""
    schema = LogSchema.of([view])
    lacking = " ".join(
        f"when type = {literal(name)} then {unreadable_reason(event, required_fields(view, event))}"
        for name, event in view.events.items()
    )
    reason = f"case when refusal is not null then refusal {lacking} end as reason"
    (row,) = parse(records, schema).selectExpr(reason).limit(1).collect()
    return str(row["reason"])


def _kinds(kinds: Mapping[str | None, Lifted]) -> list[str]:
    """First columns of one event: its kind, as a number (null: the view ignores it), and POISON.

    A number, because every state field uses it: comparing the type's text each time costs a tenth of a replay.
    """
    unread = "tombstone or heartbeat"
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
        f"case when tombstone then {literal(ERASES)} "
        f"when not heartbeat and ({poison}) then concat(`partition`, ':', `offset`) end as {POISON}",
    ]


def _lifted(view: TableView, kinds: Mapping[str | None, Lifted]) -> list[str]:
    """Columns of one event: the key, POISON, and each state field, null if the event does not change it."""
    numbered = dict(enumerate(kinds.values()))
    columns = [f"{_by_kind({at: kind.key for at, kind in numbered.items()})} as {identifier(view.key_name)}", POISON]
    for each in view.layout.fields:
        values = {at: kind.fields[each.name] for at, kind in numbered.items() if each.name in kind.fields}
        columns.append(f"cast({_by_kind(values)} as {each.spark_type}) as {identifier(each.name)}")
    return columns


def _by_kind(texts: Mapping[int, str]) -> str:
    """`texts` by the event's kind as one expression; kinds with the same text share a branch."""
    same: dict[str, list[str]] = {}
    for kind, text in texts.items():
        same.setdefault(text, []).append(str(kind))
    branches = " ".join(f"when {_KIND} in ({', '.join(found)}) then {text}" for text, found in same.items())
    return f"case {branches} end"


def _parsed(records: DataFrame, view: TableView, kinds: Mapping[str | None, Lifted], schema: LogSchema) -> DataFrame:
    """The log with a row per event; or per item of the event, with `ITEM` and `INDEX`, if its kind has items."""
    parsed = parse(records, schema).selectExpr(*_kinds(kinds))
    lists = {at: kind.items for at, kind in enumerate(kinds.values()) if kind.items is not None}
    if not lists:
        return parsed
    # a record that cannot be read stays, as one row
    items = f"coalesce({_by_kind(lists)}, array())"
    rows = f"if({POISON} is null and {_KIND} is not null, {items}, {single_item(item_kinds(view))})"
    return parsed.selectExpr("*", f"posexplode({rows}) as ({INDEX}, {ITEM})")


def _counted(parsed: DataFrame, kinds: Mapping[str | None, Lifted]) -> DataFrame:
    """The same, but events that the view filters out have no kind."""
    conditions = {at: kind.condition for at, kind in enumerate(kinds.values()) if kind.condition is not None}
    if not conditions:
        return parsed
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return parsed.withColumn(_KIND, F.expr(f"if(coalesce({_by_kind(conditions)}, true), {_KIND}, null)"))


def _grouped(frame: DataFrame, keys: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """`frame` by `keys`."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return frame.groupBy(*keys).agg(
        *(F.expr(each) for each in (*aggregates, f"size(collect_list(cast(null as boolean))) as {MARKER}"))
    )


def _alone(lifted: DataFrame, key: str, scalars: Sequence[Scalar]) -> DataFrame:
    """Each event as a row: nothing is grouped, and nothing is shuffled."""
    names = {each.name: identifier(each.name) for monoid in scalars for each in monoid.fields}
    columns = [
        f"{text} as {identifier(name)}" for monoid in scalars for name, text in monoid.spark_alone(names).items()
    ]
    return lifted.selectExpr(identifier(key), POISON, *columns, f"0 as {MARKER}")


def _aggregates(view: TableView) -> list[str]:
    """Every state field combined by its monoid, except lists that are grouped by their entries' keys."""
    names = {each.name: identifier(each.name) for each in view.layout.fields}
    return [
        f"{text} as {identifier(name)}" for monoid in view.layout.monoids for name, text in monoid.spark(names).items()
    ]


def _parts(lists: Sequence[Grouped]) -> str:
    """The array of rows of an event's row: itself, then one per entry, each with the number of its list."""

    def part(number: str, entry: int | None, text: str) -> str:
        fields = (
            f"'{_entry(at)}', " + (text if at == entry else f"cast(null as {_entry_type(monoid)})")
            for at, monoid in enumerate(lists)
        )
        return f"named_struct('at', {number}, {', '.join(fields)})"

    entries = (
        f"transform(coalesce({identifier(monoid.field.name)}, array()), held -> {part(str(at), at, 'held')})"
        for at, monoid in enumerate(lists)
    )
    return f"concat(array({part('-1', None, '')}), {', '.join(entries)})"


def _gathered(at: int, monoid: Grouped) -> str:
    """The aggregate that collects the entries of one list; null if no event brought any."""

    def struct(fields: Sequence[StateField]) -> str:
        members = ", ".join(f"{_column(at, each.name)} as {identifier(each.name)}" for each in fields)
        return f"if({_AT} = {at}, struct({members}), null)"

    gathered = monoid.spark_gather(struct(monoid.field.entry), struct(monoid.keys))
    touched = f"count(if({_AT} = {at}, 1, null)) > 0"
    return f"if({touched}, {gathered}, null) as {identifier(monoid.field.name)}"


def _entry(at: int) -> str:
    return f"entry{at}"


def _entry_type(monoid: Grouped) -> str:
    return monoid.field.spark_type.removeprefix("array<").removesuffix(">")


def _column(at: int, field: str) -> str:
    return identifier(f"_entry{at}_{field}")
