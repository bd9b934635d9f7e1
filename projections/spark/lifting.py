"""A view's declaration as Spark SQL: the key of an event's row, and the state fields that the event brings."""

from __future__ import annotations

from dataclasses import dataclass

from commands.aggregate import Event
from projections.folds import EVERY, Case
from projections.monoids import ORDERING_KEY_SPARK, Pick
from projections.spark.events import LogSchema, unreadable
from projections.types import ColumnType
from projections.view import TableView, lifted_cases, required_fields


@dataclass(frozen=True, slots=True)
class Lifted:
    """What one kind of event does to a row of a view, as Spark SQL over the parsed log.

    key: of the row. fields: by state field, in the layout's order; untouched ones are absent. event: its class (None:
    any that the view does not name). required: fields of `data` that must not be null.
    """

    key: str
    fields: dict[str, str]
    event: type[Event] | None
    required: tuple[str, ...]

    @property
    def unreadable(self) -> str | None:
        """The condition that the event cannot be read; None where any can."""
        return None if self.event is None else unreadable(self.event, self.required)


def lift(view: TableView, event: type[Event] | None, schema: LogSchema) -> Lifted:
    """What `event` (None: any that the view does not name) does to its row. `reference.lift` is its meaning."""
    case: Case = EVERY if event is None else event
    key = view.key_expression().spark(event, schema.parsed)
    fields: dict[str, str] = {}
    for name, read in lifted_cases(view, case).items():
        if isinstance(read, tuple):
            members = (
                f"struct({part.spark(event, schema.parsed)} as v, cast({number} as bigint) as n)"
                for number, part in read
            )
            fields[name] = f"filter(array({', '.join(members)}), held -> held.v is not null)"
        else:
            fields[name] = read.spark(event, schema.parsed)
    order = "sequence" if view.per_stream else ORDERING_KEY_SPARK
    for monoid in view.layout.monoids:
        if isinstance(monoid, Pick) and any(value.name in fields for value in monoid.values):
            fields[monoid.order.name] = order
    in_order = {each.name: fields[each.name] for each in view.layout.fields if each.name in fields}
    return Lifted(key, in_order, event, required_fields(view, event) if event else ())


def lifts(view: TableView, schema: LogSchema) -> dict[str | None, Lifted]:
    """Every kind of event that the view handles, by type; None stands for all others, where it handles every."""
    found: dict[str | None, Lifted] = {name: lift(view, event, schema) for name, event in view.events.items()}
    return found | {None: lift(view, None, schema)} if view.handles_every else found


def is_tally(kind: ColumnType) -> bool:
    """Whether a state field of this type is a tally: counted value by value."""
    return kind is ColumnType.COUNTS
