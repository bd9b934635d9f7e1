"""Refuses queries that would give other rows in a replay, because they read the clock, chance or the order of arrival.

Live, a record is computed when it arrives; in a replay all are computed later, at once, and in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stream.declaring.plans import SUBQUERIES, analysed, class_name, elements, parts
from headwater.projections.stream.declaring.view import StreamView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CLOCKS: Final = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentDate", "CurrentTime"})
_LIMITS: Final = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
_METRICS: Final = "CollectMetrics"


def check_repeatable(view: StreamView, rows: DataFrame) -> None:
    """Raise ViewDeclarationError, with what to change, if these rows of its query could be others in a replay.

    Functions of Python are taken for what they say they are: see `asNondeterministic` of PySpark.
    """
    left = [analysed(rows)]
    while left:
        plan = left.pop()
        if plan.nodeName() == _METRICS and plan.name() in view.sources:
            continue  # what is below is no part of the query; its filter is not deterministic, for a reason
        problem = _problem_of(plan)
        for each in (part for top in elements(plan.expressions()) for part in parts(top)):
            problem = problem or _problem_in(each)
            if class_name(each) in SUBQUERIES:
                left.append(each.plan())
        if problem:
            raise ViewDeclarationError(view.name, f"its query {problem}")
        left += elements(plan.children())


def _problem_of(plan: Any) -> str:
    name = plan.nodeName()
    if name in _LIMITS and plan.isStreaming():
        return (
            "takes only some rows of a stream (limit or offset), which depends on the order of their arrival: filter "
            "by their columns, or let readers ask for so many (?sort=…&limit=…)"
        )
    if name == "Sample":
        return "takes a sample by chance, so a replay would take another one: filter by a hash, as in crc32(id) % 9 = 0"
    return ""


def _problem_in(expression: Any) -> str:
    if class_name(expression) in _CLOCKS:
        return (
            f"reads the clock ({expression.prettyName()}()), which is another time in a replay: use the columns time "
            "or recordedtime, or let readers filter by a time (?time.gte=…)"
        )
    if not expression.deterministic() and all(each.deterministic() for each in elements(expression.children())):
        name = expression.toString().partition("(")[0]
        return (
            f"uses {name}(), which differs each time that it is computed: use what depends on the columns only, as in "
            "crc32(id)"
        )
    return ""
