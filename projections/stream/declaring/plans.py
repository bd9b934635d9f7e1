"""Reads what Spark has analysed of a query: its plan, the plan's expressions, and their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

SUBQUERIES: Final = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})
"""The classes of expressions that have a plan of their own."""


def analysed(frame: Any) -> Any:
    """The plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def elements(found: Any) -> list[Any]:
    """Those of a sequence of Scala."""
    return [found.apply(place) for place in range(found.size())]


def nodes(plan: Any) -> Iterator[Any]:
    """A plan and all plans below it."""
    yield plan
    for each in elements(plan.children()):
        yield from nodes(each)


def parts(expression: Any) -> Iterator[Any]:
    """An expression and all expressions in it, the inner ones last."""
    yield expression
    for each in elements(expression.children()):
        yield from parts(each)


def class_name(node: Any) -> str:
    """Spark's name of the class of an expression."""
    return str(node.getClass().getSimpleName())
