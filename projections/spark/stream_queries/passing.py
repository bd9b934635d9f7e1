"""Lets more columns and rows pass a query than its author names: the place of each record, and heartbeats.

A real-time query must say from which record each row comes, and how far it has read if a filter leaves nothing. Spark
has no second output of a query in real-time mode, and no order between two readers of one topic. So the analysed plan
of the query is written anew: each select also keeps the hidden columns, and each filter and join also keeps heartbeats.
That needs a query of which every row comes from one record, and all others are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.projections.stream.declaring.plans import SUBQUERIES, analysed, class_name, elements, nodes, parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MATCHED: Final = "_headwater_matched"
_EXPLODING: Final = frozenset({"Explode", "PosExplode", "Inline"})
_JOINS: Final = frozenset({"INNER", "LEFT OUTER"})
_MIRRORED: Final = frozenset({"INNER", "RIGHT OUTER"})
"""Those in which the stream may be on the right."""


@dataclass(frozen=True)
class Passed:
    """What a query returns, with the hidden columns. identifying: its columns that are the same as `identity`."""

    rows: DataFrame
    identifying: frozenset[str]


def passing(
    rows: DataFrame, given: DataFrame, *, hidden: Sequence[str], keeping: str, identity: Collection[str]
) -> Passed:
    """The rows of a query over `given.select(…)`, with the columns `hidden` of `given`.

    keeping: the BOOLEAN one among `hidden`; rows in which it is true pass all filters and joins, whatever is in the
    other columns. identity: columns of `given`. Raises ValueError, with what to change, if a row of the query may come
    from none or several rows of `given`. The query is repeatable (see check_repeatable).
    """
    walk = _Walk(given, hidden, keeping, identity)
    plan, same = walk.passed(analysed(rows))
    found = {each.name(): _id(each) for each in elements(plan.output())}
    return Passed(walk.frame(plan), frozenset(name for name, number in found.items() if number in same))


class _Walk:
    """Writes the plan of one query anew, from its source up."""

    def __init__(self, given: DataFrame, hidden: Sequence[str], keeping: str, identity: Collection[str]) -> None:
        session: Any = given.sparkSession
        self._session = session
        self._jvm: Any = session._jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        output = {each.name(): each for each in elements(analysed(given).output())}
        self._hidden = [output[name] for name in hidden]
        self._keeping = output[keeping]
        self._identity = frozenset(_id(output[name]) for name in identity)

    def frame(self, plan: Any) -> DataFrame:
        """The rows of a plan."""
        from pyspark.sql import DataFrame  # noqa: PLC0415

        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session._jsparkSession, plan)
        return DataFrame(made, self._session)

    def passed(self, plan: Any) -> tuple[Any, frozenset[int]]:
        """The plan with the hidden columns, and the ids of its columns that are the same as the identity."""
        if self._has_hidden(plan):
            return plan, self._identity
        self._check_expressions(plan)
        match plan.nodeName():
            case "Project":
                child, same = self.passed(plan.child())
                listed = plan.projectList()
                for each in self._hidden:
                    listed = listed.appended(each)
                return self._logical.Project(listed, child), same | _renamed(plan.projectList(), same)
            case "Filter":
                child, same = self.passed(plan.child())
                return self._filter(plan.condition(), child), same
            case "Generate":
                child, same = self.passed(plan.child())
                return self._generate(plan, child), same
            case "Join":
                return self._join(plan)
            case "SubqueryAlias" | "ResolvedHint":
                child, same = self.passed(plan.child())
                return plan.withNewChildren(plan.children().updated(0, child)), same
            case other:
                raise ValueError(f"it has what Spark calls {other}")

    @property
    def _logical(self) -> Any:
        return self._catalyst.plans.logical

    def _has_hidden(self, plan: Any) -> bool:
        return _id(self._keeping) in {_id(each) for each in elements(plan.output())}

    def _reads(self, plan: Any) -> bool:
        """By name: of a stream that is joined with itself, one side gets new ids."""
        return self._keeping.name() in {each.name() for node in nodes(plan) for each in elements(node.output())}

    def _filter(self, condition: Any, child: Any) -> Any:
        return self._logical.Filter(self._catalyst.expressions.Or(condition, self._keeping), child)

    def _generate(self, plan: Any, child: Any) -> Any:
        """A heartbeat has one item, null, in place of a list that it does not have."""
        generator, expressions = plan.generator(), self._catalyst.expressions
        name = class_name(generator)
        listed = generator.children().apply(0)
        kind = listed.dataType().typeName()
        if name not in _EXPLODING or kind != "array":
            raise ValueError(f"it has {generator.prettyName()} of {kind}, which is no explode of an array")
        nothing = expressions.Literal.create(None, listed.dataType().elementType())
        one = expressions.CreateArray(self._jvm.PythonUtils.toSeq([nothing]))
        kept = expressions.If(self._keeping, one, listed)
        return self._logical.Generate(
            generator.withNewChildren(generator.children().updated(0, kept)),
            plan.unrequiredChildIndex(), plan.outer(), plan.qualifier(), plan.generatorOutput(), child,
        )  # fmt: skip

    def _join(self, plan: Any) -> tuple[Any, frozenset[int]]:
        """A left join, after which rows without a match are left out again, unless it is a heartbeat."""
        kind, stream, table = plan.joinType().sql(), plan.left(), plan.right()
        joins = _JOINS
        if self._reads(table):
            stream, table, joins = table, stream, _MIRRORED
        if self._reads(table) or table.isStreaming():
            raise ValueError("it joins two streams")
        if kind not in joins:
            raise ValueError(f"it has the join {kind}")
        if self._catalyst.planning.ExtractEquiJoinKeys.unapply(plan).isEmpty():
            raise ValueError("it has a join without a column that is equal on both sides")
        child, same = self.passed(stream)
        local, matched = self._local(table)
        left_outer = self._catalyst.plans.JoinType.apply("left_outer")
        joined = self._logical.Join(child, local, left_outer, plan.condition(), self._logical.JoinHint.NONE())
        if kind == "INNER":
            joined = self._filter(self._catalyst.expressions.IsNotNull(matched), joined)
        return joined, same

    def _local(self, table: Any) -> tuple[Any, Any]:
        """The rows of a table as they are now, in the plan itself; each also has a column that is never null."""
        from pyspark.sql.functions import broadcast, lit  # noqa: PLC0415

        marked: Any = self.frame(table).withColumn(_MATCHED, lit(True))
        output = analysed(marked).output()
        rows = self._jvm.PythonUtils.toSeq(marked._jdf.collectAsList())
        relation = self._logical.LocalRelation.fromExternalRows(output, rows)
        return analysed(broadcast(self.frame(relation))), output.last()

    def _check_expressions(self, plan: Any) -> None:
        for name in (class_name(each) for top in elements(plan.expressions()) for each in parts(top)):
            if name.startswith("Python"):
                raise ValueError("it calls a function of Python, which Spark cannot run in real-time mode")
            if name in SUBQUERIES:
                raise ValueError("it has a query within a query")


def _renamed(listed: Any, same: frozenset[int]) -> frozenset[int]:
    """The ids of new names in a select for columns that are in `same`."""
    return frozenset(
        _id(each)
        for each in elements(listed)
        if each.nodeName() == "Alias" and class_name(each.child()) == "AttributeReference" and _id(each.child()) in same
    )


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
