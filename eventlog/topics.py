"""The topics that a deployment owns, with the settings that they need; created and checked at start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from headwater.eventlog.access import Program
from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.settings import LogSettings

DAY_MS = 24 * 60 * 60 * 1000

COMMANDS_DAYS = 7
PATCHES_DAYS = 2
ERASED_DAYS = 7
"""After this time, a record whose key has a tombstone is on no broker's disk. To remove it, Kafka rewrites the whole
partition, so a shorter time costs more.
"""
TOMBSTONES_DAYS = 7
"""So long a compacted topic keeps a tombstone at least; whoever reads it later does not learn of the deletion."""
COMPACTION_LAG = "max.compaction.lag.ms"
RETENTION = "retention.ms"
RETENTION_BYTES = "retention.bytes"
FOR_EVER = "-1"
UNLIMITED = "-1"

COMMANDS = "commands"
EVENTS = "events"
SNAPSHOTS = "snapshots"
RECEIPTS = "receipts"
PATCHES = "patches"
DEAD_LETTERS = "dead-letters"
INBOX = "process-inbox"
PROCESSES = "processes"
ROUTED = "routed"
"""How far the events of each partition have been routed to processes."""
STARTS = "process-starts"
"""Where in `events` each process begins; the first record of a process counts, so it is not compacted. And to which
topics the offsets of partition owners belong."""

SLOW_CODE = "slow-code"
"""Code of the user that does not return, by role and partition: written by handlers while it runs."""

AUDIT = "audit"
"""What operators did."""

BY_KEY = frozenset({COMMANDS, INBOX})
"""Topics to which owners of any partition append; a record's key decides its partition."""
SINGLE = frozenset({DEAD_LETTERS, STARTS})
"""Topics of one partition to which all owners append."""
OBSERVATIONS = "observations"
CAPTURED = "cdc."
"""Topics of captured tables begin with this: `cdc.shop.public.customers`."""
VIEWS = "views."
"""Topics of views begin with this: `views.card_alerts`."""
RESEALED = (EVENTS, OBSERVATIONS)
"""Topics that `replay reseal` copies."""
RESEALING = ".resealing"
"""The copy is beside its topic, as `events.resealing`, while `replay reseal` is unfinished."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as Headwater needs it: its short name, partitions, and Kafka settings.

    readers, writers: the programs that need to read it, and to append to it; `headwater grants` allows nothing else.
    """

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    readers: Set[Program] = frozenset()
    writers: Set[Program] = frozenset()

    def read_by(self, program: Program) -> TopicSpec:
        """The same topic, read by this program, too."""
        return replace(self, readers=self.readers | {program})

    def written_by(self, program: Program) -> TopicSpec:
        """The same topic, appended to by this program, too."""
        return replace(self, writers=self.writers | {program})


def topic_specs(settings: LogSettings) -> tuple[TopicSpec, ...]:
    """Every topic of the deployment.

    `delete.retention.ms` of `events` must exceed the longest replay: a replay that outlives a tombstone would bring
    back erased rows. A record's time is its event's, so the broker must accept any. `commands` are deleted before their
    receipts, so that a command that is read again still has its receipt. Daily segments limit how long a record
    outlives its time. COMPACTION_LAG limits how long an erased record stays in a topic that is only compacted; the
    other topics delete it with the rest.
    """
    written = _written(settings)
    commands_days = min(COMMANDS_DAYS, settings.receipts_days)
    retention = {RETENTION: str(commands_days * DAY_MS), "segment.ms": str(DAY_MS)}
    kept = {"cleanup.policy": "delete", **retention, **_safe(settings)}
    inbox = delete_settings(settings, COMMANDS_DAYS * DAY_MS)
    compact = compact_settings(settings)
    receipts_ms = (settings.receipts_days + 2) * DAY_MS
    receipts = {"cleanup.policy": "compact,delete", RETENTION: str(receipts_ms), **written}
    patches = delete_settings(settings, PATCHES_DAYS * DAY_MS)
    api, handler, projections, operator = Program.API, Program.HANDLER, Program.PROJECTIONS, Program.OPERATOR
    return (
        TopicSpec(COMMANDS, settings.partitions, kept, {handler, operator}, {api, handler, operator}),
        TopicSpec(EVENTS, settings.partitions, compact, {api, handler, projections, operator}, {handler}),
        TopicSpec(SNAPSHOTS, settings.partitions, compact, {handler, operator}, {handler}),
        TopicSpec(RECEIPTS, settings.partitions, receipts, {api, handler, operator}, {handler}),
        TopicSpec(INBOX, settings.partitions, inbox, {handler, operator}, {handler, operator}),
        # the console of the API shows instances
        TopicSpec(PROCESSES, settings.partitions, compact, {api, handler, operator}, {handler}),
        TopicSpec(ROUTED, settings.partitions, compact, {handler}, {handler}),
        # all compare their events with those that were recorded; the operator reads where processes begin as well
        TopicSpec(
            STARTS, 1, delete_settings(settings, int(FOR_EVER)), {api, handler, projections, operator}, {handler}
        ),
        # the operator builds stream views, whose rows are patches, and writes heartbeats meanwhile
        TopicSpec(PATCHES, settings.patch_partitions, patches, {api, projections, operator}, {projections, operator}),
        # the console of the API shows both
        TopicSpec(DEAD_LETTERS, 1, compact, {api, projections, operator}, {handler, projections, operator}),
        TopicSpec(AUDIT, 1, delete_settings(settings, int(FOR_EVER)), {api, operator}, {operator, Program.SOURCES}),
        TopicSpec(SLOW_CODE, 1, delete_settings(settings, DAY_MS), {api, operator}, {handler}),
        TopicSpec(
            OBSERVATIONS, settings.partitions, compact, {api, projections, operator}, {api, projections, operator}
        ),
    )


def merged_topics(specs: Iterable[TopicSpec]) -> list[TopicSpec]:
    """Each of these topics once, with the programs that use it in any of them."""
    spec_by_name: dict[str, TopicSpec] = {}
    for spec in specs:
        known = spec_by_name.get(spec.name, spec)
        spec_by_name[spec.name] = replace(
            known, readers=known.readers | spec.readers, writers=known.writers | spec.writers
        )
    return list(spec_by_name.values())


def view_topic(view: str, settings: LogSettings) -> TopicSpec:
    """The topic with the rows of a view that is declared with `Topic()`, as its readers know it."""
    writers = frozenset({Program.PROJECTIONS, Program.OPERATOR})
    readers = writers | {Program.API}  # which shows how far its generations are
    return TopicSpec(f"{VIEWS}{view}", settings.patch_partitions, compact_settings(settings), readers, writers)


def compact_settings(settings: LogSettings) -> dict[str, str]:
    """Kafka's settings of a topic that keeps the last record of each key."""
    erased = {"delete.retention.ms": str(TOMBSTONES_DAYS * DAY_MS), COMPACTION_LAG: str(ERASED_DAYS * DAY_MS)}
    return {"cleanup.policy": "compact", **erased, **_written(settings)}


def delete_settings(settings: LogSettings, retention_ms: int) -> dict[str, str]:
    """Kafka's settings of a topic that keeps all records for a time."""
    return {"cleanup.policy": "delete", RETENTION: str(retention_ms), **_written(settings)}


def _written(settings: LogSettings) -> dict[str, str]:
    large = {"max.message.bytes": str(MAX_RECORD_BYTES), "message.timestamp.after.max.ms": str(2**63 - 1)}
    return {**_safe(settings), **large}


def _safe(settings: LogSettings) -> dict[str, str]:
    # acknowledged records are on most copies, so they survive the loss of any broker; and a broker's default of
    # `log.retention.bytes` deletes nothing before its time, such as receipts
    return {"min.insync.replicas": str(settings.replication // 2 + 1), RETENTION_BYTES: UNLIMITED}
