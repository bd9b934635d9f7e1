"""Stream views over what passes gates, as a package of a deployment under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater import INTEGER, TEXT, TIME, Cache, Postgres, Topic, in_order
from tests.support.gate_events import Entered, entered_view
from tests.support.observed import Passed, gate_view
from tests.support.recording import recording

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Passed", "entered", "gates"]

COLUMNS = {"gate": TEXT, "minute": TIME, "number": INTEGER, "weight": INTEGER}


def by_minute_at_once(passed: DataFrame) -> DataFrame:
    """The rows of `gates`, counted one by one."""
    return in_order(
        passed,
        key="gate",
        step=count,
        columns=COLUMNS,
        forget_after="30d",
        early=("gate", "minute"),
        deleted_by="taken_back",
    )


def count(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The state is the number and weight of a minute, and the minute."""
    minute = row.time.replace(second=0, microsecond=0)
    before, number, weight = state or (None, 0, 0)
    if before != minute.isoformat():
        number, weight = 0, 0
    number, weight = number + 1, weight + row.weight
    return [minute.isoformat(), number, weight], [
        {"gate": row.gate, "minute": minute, "number": number, "weight": weight}
    ]


gate = recording("gate", "gate", Entered)
gates = gate_view(late="amend", keep_state="1d", stores=(Postgres(), Cache(), Topic()))
entered = entered_view(name="entered", late="amend", keep_state="1d", query=by_minute_at_once, deleted_by="taken_back")
