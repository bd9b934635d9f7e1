"""The content of one transaction: the decisions on several commands, in their order. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.commands.handling.decision import Decision
from headwater.commands.receipt import receipt_json
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.letters import time_of
from headwater.eventlog.limits import MAX_TRANSACTION_BYTES
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.tracing.spans import Span

MAX_BATCH_EVENTS: Final = 20_000


@dataclass(slots=True)
class Batch:
    """The content of one transaction for a run of commands.

    Append `entries`, which start with all events; then `receipts(offsets of the entries)`; then commit `next_command`.

    taken: how many commands of the run are included; the others are for the next transaction.
    heartbeat: the owner's, if one is due.
    changed: the last decision of each stream that got events.
    new_streams: how many of these got their first event.
    erased: the streams of which events are erased.
    snapshots: by stream.
    repeated: earlier receipts that are sent again, by record key.
    recorded_time: `now_ms` as the text that the events have.
    addressed: commands whose senders are told if they are refused, with their records.
    traced: by offset in `commands`, the span of the decision on each command whose trace is sampled.
    """

    partition: int
    now_ms: int
    taken: int = 0
    next_command: int | None = None
    heartbeat: Entry | None = None
    decisions: list[Decision] = field(default_factory=list)
    events: list[Entry] = field(default_factory=list)
    snapshots: dict[str, bytes | None] = field(default_factory=dict)
    changed: dict[str, Decision] = field(default_factory=dict)
    dead_letters: list[Entry] = field(default_factory=list)
    repeated: dict[str, bytes] = field(default_factory=dict)
    size_bytes: int = 0
    new_streams: int = 0
    erased: list[str] = field(default_factory=list)
    recorded_time: str = field(init=False)
    addressed: list[tuple[Record, Envelope]] = field(default_factory=list)
    traced: dict[int, Span] = field(default_factory=dict)
    _by_key: dict[str, Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recorded_time = time_of(self.now_ms)

    @property
    def is_full(self) -> bool:
        """Whether the next command belongs in another transaction; an open transaction delays every reader."""
        return self.size_bytes >= MAX_TRANSACTION_BYTES or len(self.events) >= MAX_BATCH_EVENTS

    def add(self, decision: Decision) -> None:
        """Add a decision after all others."""
        self.decisions.append(decision)
        self._by_key[decision.key] = decision
        self.size_bytes += decision.size_bytes
        if decision.after is not None:
            self.events += decision.events
            if decision.stream not in self.changed:
                self.size_bytes += decision.after.size_bytes  # about the size of its snapshot
            self.changed[decision.stream] = decision
            self.new_streams += decision.begins

    def add_repeated(self, key: str, receipt: bytes) -> None:
        """Send an earlier receipt again, which has this record key."""
        self.repeated[key] = receipt
        self.size_bytes += len(receipt)

    def add_dead_letter(self, letter: Entry) -> None:
        """Add a command that cannot be read."""
        self.dead_letters.append(letter)
        self.size_bytes += len(letter.value or b"")

    def decision(self, key: str) -> Decision | None:
        """The decision of this batch whose receipt has this key, if there is one."""
        return self._by_key.get(key)

    @property
    def entries(self) -> list[Entry]:
        """Everything except the receipts, in the order of appending."""
        beats = [] if self.heartbeat is None else [self.heartbeat]
        snapshots = [Entry(topics.SNAPSHOTS, stream, value, self.now_ms) for stream, value in self.snapshots.items()]
        return [*self.events, *beats, *snapshots, *self.dead_letters]

    def receipts(self, offsets: Sequence[int]) -> dict[str, bytes | None]:
        """The receipts by record key; needs the offset of each of `entries`."""
        written: dict[str, bytes | None] = dict(self.repeated)
        first = 0
        for decision in self.decisions:
            recorded, placed = decision.recorded, decision.placed
            appended = offsets[first : first + len(recorded) - len(placed)]
            written[decision.key] = receipt_json(decision.receipt, recorded, [*placed, *appended])
            first += len(decision.events)
        return written

    def snapshots_end(self, offsets: Sequence[int]) -> int | None:
        """The offset after the last snapshot; needs the offset of each of `entries`; None if there is no snapshot."""
        return offsets[-1 - len(self.dead_letters)] + 1 if self.snapshots else None
