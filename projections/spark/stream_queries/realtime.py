"""The query of a real-time view: from each record of its source to records of `patches`, without batches.

All versions of a row come from one partition of its topic, in the order of their offsets. So a patch has the place of
its record, as those of table views have: loaders remove duplicates by it, and heartbeats become progress.

A real-time query must say from which record each row comes, and how far it has read if a filter leaves nothing. Spark
has no second output of a query in real-time mode, and no order between two readers of one topic. So the analysed plan
of the query is written anew: each select also keeps the hidden columns, and each filter and join also keeps heartbeats.
That needs a query of which every row comes from one record, and all others are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.errors import StreamQueryFailed, ViewDeclarationError
from headwater.projections.spark.live import read_live, start_realtime
from headwater.projections.spark.patch_sql import exploded, output_record, partition_sql, progress_records, sendable
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.frames import HEARTBEAT, OFFSET, PLACED, placed_frame
from headwater.projections.spark.stream_queries.output import fields_of, key_text, returned
from headwater.projections.spark.stream_queries.query_checks import (
    SUBQUERIES,
    analysed,
    check_repeatable,
    check_sealed,
    class_name,
    elements,
    nodes,
    parts,
)
from headwater.projections.stream.view import StreamView
from headwater.projections.table.expressions import literal
from headwater.projections.table.patch import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MATCHED: Final = "_headwater_matched"
_EXPLODING: Final = frozenset({"Explode", "PosExplode", "Inline"})
_JOINS: Final = frozenset({"INNER", "LEFT OUTER"})
_MIRRORED: Final = frozenset({"INNER", "RIGHT OUTER"})
"""Those in which the stream may be on the right."""
BATCH: Final = "10 minutes"
"""How long Spark lets a query run before it stores offsets. They are not needed, but each time costs a short pause."""
_SHOWN: Final = ("`partition`", "`offset`", "timestamp_ms", "heartbeat")


def passing(
    rows: DataFrame, given: DataFrame, *, hidden: Sequence[str], keeping: str, identity: Collection[str]
) -> tuple[DataFrame, frozenset[str]]:
    """The rows of a query over `given.select(…)`, with the columns `hidden` of `given`; and the names of its columns
    that are the same as `identity`.

    keeping: the BOOLEAN one among `hidden`; rows in which it is true pass all filters and joins, whatever is in the
    other columns. identity: columns of `given`. Raises ValueError, with what to change, if a row of the query may come
    from none or several rows of `given`. The query is repeatable (see check_repeatable).
    """
    walk = _Walk(given, hidden, keeping, identity)
    plan, same = walk.passed(analysed(rows))
    names = {element.name(): _id(element) for element in elements(plan.output())}
    return walk.frame(plan), frozenset(name for name, number in names.items() if number in same)


class _Walk:
    """Writes the plan of one query anew, from its source up."""

    def __init__(self, given: DataFrame, hidden: Sequence[str], keeping: str, identity: Collection[str]) -> None:
        session: Any = given.sparkSession
        self._session = session
        self._jvm: Any = session._jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        output = {element.name(): element for element in elements(analysed(given).output())}
        self._hidden = [output[name] for name in hidden]
        self._keeping = output[keeping]
        self._identity = frozenset(_id(output[name]) for name in identity)

    def frame(self, plan: Any) -> DataFrame:
        """The rows of a plan."""
        from pyspark.sql import DataFrame  # noqa: PLC0415

        frame = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session._jsparkSession, plan)
        return DataFrame(frame, self._session)

    def passed(self, plan: Any) -> tuple[Any, frozenset[int]]:
        """The plan with the hidden columns, and the ids of its columns that are the same as the identity."""
        if _id(self._keeping) in {_id(column) for column in elements(plan.output())}:
            return plan, self._identity
        for name in (class_name(part) for top in elements(plan.expressions()) for part in parts(top)):
            if name.startswith("Python"):
                raise ValueError("it calls a function of Python, which Spark cannot run in real-time mode")
            if name in SUBQUERIES:
                raise ValueError("it has a query within a query")
        match plan.nodeName():
            case "Project":
                child, same = self.passed(plan.child())
                listed = plan.projectList()
                for hidden in self._hidden:
                    listed = listed.appended(hidden)
                renamed = frozenset(
                    _id(alias)
                    for alias in elements(plan.projectList())
                    if alias.nodeName() == "Alias"
                    and class_name(alias.child()) == "AttributeReference"
                    and _id(alias.child()) in same
                )
                return self._logical.Project(listed, child), same | renamed
            case "Filter":
                child, same = self.passed(plan.child())
                return self._kept(plan.condition(), child), same
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

    def _reads(self, plan: Any) -> bool:
        """By name: of a stream that is joined with itself, one side gets new ids."""
        return self._keeping.name() in {element.name() for node in nodes(plan) for element in elements(node.output())}

    def _kept(self, condition: Any, child: Any) -> Any:
        """The rows below that fulfil a condition, and heartbeats."""
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
            joined = self._kept(self._catalyst.expressions.IsNotNull(matched), joined)
        return joined, same

    def _local(self, table: Any) -> tuple[Any, Any]:
        """The rows of a table as they are now, in the plan itself; each also has a column that is never null."""
        from pyspark.sql.functions import broadcast, lit  # noqa: PLC0415

        marked: Any = self.frame(table).withColumn(_MATCHED, lit(True))
        output = analysed(marked).output()
        rows = self._jvm.PythonUtils.toSeq(marked._jdf.collectAsList())
        relation = self._logical.LocalRelation.fromExternalRows(output, rows)
        return analysed(broadcast(self.frame(relation))), output.last()


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


@dataclass(frozen=True)
class RealtimeQuery:
    """What runs for all generations of one version of a view. session: the application's."""

    session: SparkSession
    view: StreamView
    settings: LogSettings
    checkpoint: Checkpoint

    def start(self, starting_offsets: Mapping[str, int], batch: str = BATCH) -> StreamingQuery:
        """Start the query at an offset per source; it needs a thread for each of them, all the time.

        Raises ViewDeclarationError, and StreamQueryFailed if Spark refuses to start it.
        """
        self.checkpoint.create()
        records = read_live(self.session, self.settings, starting_offsets)
        to_send = sendable(realtime_records(records, self.view, self.settings))
        try:
            return start_realtime(to_send, self.view.tag, self.settings, self.checkpoint.location, batch)
        except PySparkException as error:
            raise StreamQueryFailed(self.view.tag, reason(error)) from error


def realtime_records(records: DataFrame, view: StreamView, settings: LogSettings) -> DataFrame:
    """The output of the records of the view's topic: `topic, key, value, partition`, in the order of each partition.

    records: a stream or a batch in the form of Spark's Kafka source. Raises ViewDeclarationError.
    """
    (source,) = view.sources.values()
    place = "`partition`" if source.topic == EVENTS else f"concat({literal(source.topic + '/')}, `partition`)"
    row = f"if({HEARTBEAT}, null, {key_text(view)})"
    columns = [f"{hidden} as {shown}" for hidden, shown in zip(PLACED, _SHOWN, strict=True)]
    rows = placed_rows(records, view).selectExpr(f"{row} as row", f"{fields_of(view, OFFSET)} as c", *columns)
    head = f"{place} as p, `offset` as o, {WHOLE} as i, timestamp_ms as t"
    # without the tag: a row has the same partition in every generation, for stores that share a topic
    patch = output_record(
        PATCHES,
        f"concat({literal(view.tag + '/')}, row)",
        f"to_json(struct({head}, c))",
        partition_sql("row", settings),
        settings,
    )
    progress = progress_records(place, [view], settings)
    return exploded(rows, f"if(heartbeat, {progress}, array({patch}))").where("key is not null")


def placed_rows(records: DataFrame, view: StreamView) -> DataFrame:
    """The rows that the query of `view` returns, and heartbeats, with the columns PLACED.

    Raises ViewDeclarationError.
    """
    ((name, source),) = view.sources.items()
    given = placed_frame(records, name, source)
    rows = returned(view, {name: given.select(*source.columns)}, streaming=records.isStreaming)
    check_repeatable(view, rows)
    check_sealed(view, rows)
    try:
        rows, identifying = passing(rows, given, hidden=PLACED, keeping=HEARTBEAT, identity=source.ordering)
    except ValueError as error:
        raise ViewDeclarationError(
            view.name,
            f"its query cannot run in real-time mode, because {error}: use select, where, explode of arrays, and inner "
            "or left joins with tables that the query makes, or leave out realtime",
        ) from error
    if not identifying & set(view.key_columns):
        raise ViewDeclarationError(
            view.name,
            f"the key of a real-time view must contain a column with the {' or '.join(source.ordering)} of the record, "
            "so that all versions of a row come from one partition",
        )
    return rows
