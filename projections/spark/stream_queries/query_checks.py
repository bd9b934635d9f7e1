"""Checks of what Spark has analysed of a query: it must be repeatable, and only copy personal fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stream.view import StreamView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUBQUERIES: Final = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})
"""The classes of expressions that have a plan of their own."""
_CLOCKS: Final = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentDate", "CurrentTime"})
_LIMITS: Final = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
_METRICS: Final = "CollectMetrics"
WHOLE: Final = frozenset[int]({-1})
"""The column is a ciphertext, or a list or a text with some. Otherwise: the places of such fields in a struct, or in
the structs of a list."""
CLEAR: Final = frozenset[int]()
COPYING: Final = (
    'copy it, with select, max_by("email", "time"), max(struct("time", "id", "email")) or collect_list, or leave it '
    "out with select, as before in_order and functions of Python"
)
_PICKING: Final = frozenset(
    {"First", "Last", "AnyValue", "CollectList", "CollectSet", "MaxBy", "MinBy", "Max", "Min", "SortArray"}
)
"""Functions that take values as they are."""
_ORDERING: Final = frozenset({"Max", "Min", "SortArray"})
"""Those of them that compare the values: structs, whose first field must be in plaintext."""
_PASSING: Final = frozenset(
    {
        "Filter", "Join", "SubqueryAlias", "EventTimeWatermark", "Deduplicate", "DeduplicateWithinWatermark", "Sort",
        "ResolvedHint", "Repartition", "RepartitionByExpression", "Generate", "View", _METRICS,
    }
)  # fmt: skip
"""Plans whose columns are those below them, as they are, and whose expressions only find or order rows."""
Columns = Mapping[int, frozenset[int]]
"""What is sealed of columns, by their ids; plaintext columns are left out."""


def analysed(frame: Any) -> Any:
    """The plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def elements(sequence: Any) -> list[Any]:
    """Those of a sequence of Scala."""
    return [sequence.apply(place) for place in range(sequence.size())]


def nodes(plan: Any) -> Iterator[Any]:
    """A plan and all plans below it."""
    yield plan
    for element in elements(plan.children()):
        yield from nodes(element)


def parts(expression: Any) -> Iterator[Any]:
    """An expression and all expressions in it, the inner ones last."""
    yield expression
    for element in elements(expression.children()):
        yield from parts(element)


def class_name(node: Any) -> str:
    """Spark's name of the class of an expression."""
    return str(node.getClass().getSimpleName())


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
        for expression in (part for top in elements(plan.expressions()) for part in parts(top)):
            problem = problem or _problem_in(expression)
            if class_name(expression) in SUBQUERIES:
                left.append(expression.plan())
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
    if not expression.deterministic() and all(element.deterministic() for element in elements(expression.children())):
        name = expression.toString().partition("(")[0]
        return (
            f"uses {name}(), which differs each time that it is computed: use what depends on the columns only, as in "
            "crc32(id)"
        )
    return ""


def check_sealed(view: StreamView, rows: DataFrame) -> None:
    """Raise ViewDeclarationError, with what to change, if these rows of its query are not what `view.sealed` says."""
    if not any(source.sealed for source in view.sources.values()):
        return  # nearly always; its declaration has no sealed columns
    plan = analysed(rows)
    try:
        columns = _Walk(view).sealed(plan)
    except ValueError as error:
        raise ViewDeclarationError(view.name, f"its query {error}") from error
    names = {element.name() for element in elements(plan.output()) if _expression_id(element) in columns}
    for name in sorted(names - view.personal):
        hint = (
            "leave it out of the key and deleted_by, which must be in plaintext"
            if name in (*view.key_columns, view.deleted_by)
            else f'add sealed=("{name}",), so that the API opens it for callers who may read it'
        )
        raise ViewDeclarationError(view.name, f'its column "{name}" has values of a personal field: {hint}')
    for name in sorted(view.personal - names):
        raise ViewDeclarationError(view.name, f'sealed names "{name}", but its query copies no personal field to it')


class _Walk:
    """Finds the sealed columns of plans of one view's query."""

    def __init__(self, view: StreamView) -> None:
        self._view = view

    def sealed(self, plan: Any) -> Columns:
        """Those of a plan; raises ValueError if it computes with one."""
        name = plan.nodeName()
        if name == _METRICS and plan.name() in self._view.sources:
            columns = self._view.sources[plan.name()].sealed
            return {_expression_id(element): WHOLE for element in elements(plan.output()) if element.name() in columns}
        children = elements(plan.children())
        below: dict[int, frozenset[int]] = {}
        for child in children:
            below |= self.sealed(child)
        for expression in (part for top in elements(plan.expressions()) for part in parts(top)):
            if class_name(expression) in SUBQUERIES and self.sealed(expression.plan()):
                raise ValueError("reads a personal field in a query within a query: join it, and copy the column")
        if not below:
            return below
        match name:
            case "Project":
                return _listed(plan.projectList(), below)
            case "Aggregate":
                _refuse_any(plan.groupingExpressions(), below, "groups by")
                return _listed(plan.aggregateExpressions(), below)
            case "Union":
                return _by_place(plan, [elements(child.output()) for child in children], below)
            case "Expand":
                return _by_place(plan, [elements(element) for element in elements(plan.projections())], below)
            case _ if name in _PASSING:
                _refuse_any(plan.expressions(), below, f"uses in what Spark calls {name}")
                return below
        columns_below = (column for child in children for column in elements(child.output()))
        names = ", ".join(f'"{column.name()}"' for column in columns_below if _expression_id(column) in below)
        raise ValueError(
            f"hands the personal field {names} to what Spark calls {name}, such as a function of "
            "Python, distinct, or WITH of SQL: leave it out before with select"
        )


def _listed(listed: Any, below: Columns) -> Columns:
    """The sealed columns of a select."""
    copied = {_expression_id(element): _copied(element, below) for element in elements(listed)}
    return {number: places for number, places in copied.items() if places}


def _by_place(plan: Any, rows: list[list[Any]], below: Columns) -> Columns:
    """The sealed columns of a plan that puts these lists of expressions into the same columns."""
    copied: dict[int, frozenset[int]] = {}
    for row in rows:
        for column, expression in zip(elements(plan.output()), row, strict=True):
            if places := _copied(expression, below):
                copied[_expression_id(column)] = copied.get(_expression_id(column), CLEAR) | places
    return copied


def _refuse_any(expressions: Any, below: Columns, how: str) -> None:
    for element in elements(expressions):
        if personal := next(_read(element, below), None):
            raise ValueError(
                f'{how} the personal field "{personal}": rows hold its ciphertext, so keys, conditions, '
                "windows and joins must be of plaintext fields"
            )


def _read(expression: Any, below: Columns) -> Iterator[str]:
    """The names of sealed columns that an expression reads, at any depth."""
    for part in parts(expression):
        if class_name(part) in _REFERENCES and _expression_id(part) in below:
            yield str(part.name())


def _copied(expression: Any, below: Columns) -> frozenset[int]:
    """What is sealed of an expression that copies; raises ValueError if it computes with a sealed column."""
    name = class_name(expression)
    if name in _REFERENCES:
        return below.get(_expression_id(expression), CLEAR)
    read = next(_read(expression, below), None)
    if read is None:
        return CLEAR
    if name in _COPIES and (places := _COPIES[name](expression, below)) is not None:
        return places
    if name in _PICKING:
        places = _only_first(expression, below)
        if places is not None and (name not in _ORDERING or places.isdisjoint({-1, 0})):
            return places
    raise ValueError(
        f'computes {expression.prettyName()}() of the personal field "{read}": rows hold its ciphertext; {COPYING}'
    )


def _only_first(expression: Any, below: Columns) -> frozenset[int] | None:
    """Those of the first part, if the others are in plaintext."""
    first, *others = elements(expression.children())
    if any(next(_read(other, below), None) for other in others):
        return None
    return _copied(first, below)


def _struct(expression: Any, below: Columns) -> frozenset[int]:
    values = elements(expression.children())[1::2]
    return frozenset(place for place, value in enumerate(values) if _copied(value, below))


def _array(expression: Any, below: Columns) -> frozenset[int] | None:
    """A list of texts; one of structs only if all have the same fields sealed."""
    copied = {_copied(element, below) for element in elements(expression.children())}
    return copied.pop() if len(copied) == 1 else WHOLE if copied == {WHOLE, CLEAR} else None


def _field(expression: Any, below: Columns) -> frozenset[int]:
    """A field of a struct, or of each struct in a list."""
    places = _copied(elements(expression.children())[0], below)
    return WHOLE if places == WHOLE or int(expression.ordinal()) in places else CLEAR


def _whole(expression: Any, below: Columns) -> frozenset[int] | None:
    return None if _only_first(expression, below) is None else WHOLE


def _cast(expression: Any, below: Columns) -> frozenset[int] | None:
    """A cast that changes nothing."""
    child = elements(expression.children())[0]
    same = child.dataType().catalogString() == expression.dataType().catalogString()
    return _copied(child, below) if same else None


_REFERENCES: Final = frozenset({"AttributeReference", "OuterReference"})
_COPIES: Final[Mapping[str, Callable[[Any, Columns], frozenset[int] | None]]] = {
    "Alias": _only_first,
    "AggregateExpression": _only_first,
    "CreateNamedStruct": _struct,
    "CreateArray": _array,
    "GetStructField": _field,
    "GetArrayStructFields": _field,
    "StructsToJson": _whole,
    "Cast": _cast,
}
"""Expressions that copy, and what is sealed of each; None if it computes."""


def _expression_id(attribute: Any) -> int:
    return int(attribute.exprId().id())
