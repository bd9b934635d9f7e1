"""Routing of rows: the owner of a partition of a topic of rows copies their changes into `process-inbox`.

Each captured table and each view that a process handles is a role of its own, with a topic for its offsets. The work is
that of `router`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.reacting.causes import SourcePlace, placed
from headwater.commands.reacting.router import copied, or_dead_letter, places_topic, role_reading
from headwater.commands.reacting.row_changes import CapturedRows, PublishedRows, RowChange, change_envelope, read_row
from headwater.commands.reacting.starts import input_name
from headwater.eventlog.access import Program
from headwater.eventlog.capturing.naming import table_topic
from headwater.eventlog.envelope import encode
from headwater.eventlog.letters import ROUTED_BY
from headwater.eventlog.ports import Entry, EventLog, Record, Role
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import VIEWS, TopicSpec, view_topic
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Span, origin_of_change, span_of


def row_role(topic: str, patch_partitions: int) -> Role:
    """The role that routes the rows of a captured table or a view. patch_partitions: how many a view's topic has."""
    return role_reading(topic, ROUTED_BY, patch_partitions if topic.startswith(VIEWS) else None)


def process_topics(settings: LogSettings, processes: ProcessRegistry) -> list[TopicSpec]:
    """The topics of the rows that processes handle, and those of their roles; names are without the environment."""
    rows = list[TopicSpec]()
    for topic in processes.by_topic:
        table = processes.tables.get(topic)
        spec = view_topic(topic.removeprefix(VIEWS), settings) if table is None else table_topic(table, settings)
        rows.append(spec.read_by(Program.HANDLER))
    places = [
        places_topic(name, spec.partitions, settings)
        for spec in rows
        for name in row_role(spec.name, settings.patch_partitions).owns
    ]
    return [*rows, *places]


class RowRouter:
    """Decides what is copied for one record of a topic of rows, read in the order of a partition."""

    def __init__(self, log: EventLog, processes: ProcessRegistry, topic: str) -> None:
        self._processes = processes.by_topic.get(topic, ())
        rows = [(process.name, row) for process in self._processes for row in process.rows.values()]
        self.inputs = frozenset(input_name(process, row.name) for process, row in rows if row.topic == topic)
        self.incarnation: str | None = log.incarnation(topic)
        self.number = 0
        self._topic = topic
        table = processes.tables.get(topic)
        self._is_captured = table is not None
        self._rows = PublishedRows() if table is None else CapturedRows(log, table)

    def route(self, record: Record, accepts: Callable[[str], bool]) -> Sequence[Entry]:
        """See Routes.route."""
        return or_dead_letter(record, lambda: self._copies(record, accepts))

    def _copies(self, record: Record, accepts: Callable[[str], bool]) -> Iterator[Entry]:
        change = self._rows.read(record)
        if change is None:
            return
        span = begin_change(self._topic, record) if self._is_captured else None
        context = None if span is None else span.traceparent
        for process in self._processes:
            yield from self.copies(process, change, record.partition, accepts, context)
        if span is not None:
            span.end()

    def copies(
        self,
        process: AnyProcess,
        change: RowChange,
        partition: int,
        accepts: Callable[[str], bool] = lambda _: True,
        traceparent: str | None = None,
    ) -> Iterator[Entry]:
        """The copy for one process, if it handles the change; raises NotAnEnvelope if its class does not fit.

        partition: of the topic. accepts: see Routes.route. traceparent: of the trace that the change begins.
        """
        place = SourcePlace(f"{self._topic}@{self.incarnation}/{partition}", change.offset)
        for row in process.rows.values():
            if row.topic != self._topic or row.is_deletion is not (change.row is None):
                continue
            if not accepts(input_name(process.name, row.name)):
                continue
            envelope = change_envelope(row, change, self.incarnation, traceparent)
            read_row(row, envelope)
            key = change.instance_key(row)
            if key is not None:
                yield copied(process, key, placed(encode(envelope), place))


def begin_change(topic: str, record: Record) -> Span | None:
    """The span of the routing of a change of a captured row, which has the trace of the patches of the same change.
    None if that is not sampled."""
    context = origin_of_change(f"{topic}/{record.partition}", record.offset)
    if context is None:
        return None
    _, own = span_of(context, "route")
    return spans.first(f"route {topic}", own, "consumer", {"headwater.change": f"{record.partition}:{record.offset}"})
