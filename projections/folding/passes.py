"""A pass over the log: folds its events into the rows of several views, and writes these."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headwater.eventlog.letters import Letter as DeadLetter
from headwater.eventlog.letters import time_of
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.errors import PoisonEvent
from headwater.projections.folding import unclear
from headwater.projections.folding.decoders import Decoders
from headwater.projections.folding.erasures import Erasures, merged
from headwater.projections.folding.fold_records import Erased, Times, UnclearRecord
from headwater.projections.folding.program import OnlySpark, Program
from headwater.projections.folding.slices import Slices, parts_of
from headwater.projections.folding.states import States
from headwater.projections.folding.tasks import FoldTask, Letter, Share, divided, share_of, unclear_bytes
from headwater.projections.folding.unclear import Unreadable
from headwater.projections.folding.workers import ReadBySpark, SparkWorkers, TaskFailed, Workers
from headwater.projections.generations.rebuild.engine import (
    FAILURES,
    BulkResult,
    Failure,
    Load,
    Ranges,
    offsets_in,
    watched,
)
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.limits import (
    BUCKET_OFFSETS,
    FEW_OFFSETS,
    MAX_BUCKETS,
    MAX_UNCLEAR,
    MAX_UNCLEAR_BYTES,
    TASK_OFFSETS,
)
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView

log = logging.getLogger(__name__)


Outcome = BulkResult | Failure | OnlySpark | TaskFailed


@dataclass(frozen=True)
class Pass:
    """One pass for loads with the same selection, and the same ranges of the sources that they share.

    programs: of the loads' views.
    decoders: for all of them.
    alone: for each alone, if there are several.
    patches: the workers, if they fold the patches that the live query makes; then there is one load.
    reader: reads the records that compiled source does not.
    """

    settings: LogSettings
    loads: Sequence[Load[TableView]]
    workers: Workers
    programs: Sequence[Program]
    decoders: Decoders
    alone: Sequence[Decoders]
    slice_offsets: int
    reader: ReadBySpark
    patches: SparkWorkers | None = None

    def run(self) -> list[Outcome]:
        """Fold, then write each view; returns the result of each, or why it failed.

        OnlySpark: before anything was written. Raises TaskFailed and OSError if the fold failed, and LogUnavailable.
        """
        began, before = time.monotonic(), self.workers.read
        slices = self._slices
        with ExitStack() as watching, slices.folding() as rest:
            for load in self.loads:
                watching.enter_context(watched(lambda: self.workers.read - before, self._total, load.on_progress))
            shares = self._fold(slices, rest)
            outcomes = [self._finish(view, shares, began) for view in range(len(self.loads))]
        if all(isinstance(each, BulkResult | OnlySpark) for each in outcomes):
            slices.forget()
        return outcomes

    def forget(self) -> None:
        """Delete what was folded, if it will not be used or the disk is full."""
        self._slices.forget()

    @property
    def _slices(self) -> Slices:
        size = self.slice_offsets if self.workers.on_one_disk else sys.maxsize
        return Slices(self.settings, [load.view for load in self.loads], self._selection, size)

    @property
    def _ranges(self) -> Ranges:
        return {source: part for load in self.loads for source, part in load.ranges.items()}

    @property
    def _selection(self) -> Selection:
        return self.loads[0].selection

    @property
    def _total(self) -> int:
        return offsets_in(self._ranges)

    @property
    def _buckets(self) -> int:
        """Enough that the rows of each fit into memory; a power of two, so that it is the same for a longer log."""
        needed = -(-self._total // BUCKET_OFFSETS)
        return max(self.workers.size, min(MAX_BUCKETS, 1 << (needed - 1).bit_length()))

    def _fold(self, slices: Slices, rest: Path) -> list[Share]:
        """Fold; again if there are tombstones that were not known, without what they erase."""
        erasures = Erasures(self.settings)
        known = erasures.known()
        if self.patches is not None:
            known = merged([known, self.patches.tombstones(self._ranges)])
        while True:
            shares = slices.fold(self._ranges, known, self._buckets, rest, partial(self._fold_part, known))
            if all(gave_up(shares, view) for view in range(len(self.loads))):
                break  # and did not look for all tombstones
            found = merged(share.tombstones for share in shares)
            erased = merged([known, found])
            if erased == known:
                if known != found and self._selection.is_all and self.patches is None:
                    erasures.keep(found)  # compaction has removed some
                break
            log.info("folding again without the events that tombstones erase")
            known = erased
            erasures.keep(known)
            slices.forget()
        return shares

    def _fold_part(self, erased: Erased, part: Ranges, folder: Path) -> list[Share]:
        offsets, size = offsets_in(part), self.workers.size
        if not offsets:
            return []
        path = folder if self.workers.on_one_disk else None
        times = times_of(self._selection)
        task = FoldTask(self.decoders, self.programs, self.settings, (), times, erased, self._buckets, path, self.alone)
        if self.patches is not None:
            return self.patches.fold_patches(self.loads[0].view, part, self._selection, task)
        wanted = size * -(-offsets // (size * TASK_OFFSETS))
        parts = divided(parts_of(part), min(wanted, -(-offsets // FEW_OFFSETS)))
        return self.workers.fold(
            [replace(task, parts=each, path=path and path / str(number)) for number, each in enumerate(parts)]
        )

    def _finish(self, view: int, shares: Sequence[Share], began: float) -> Outcome:
        """Write the rows of one view, and report its unreadable records."""
        if gave_up(shares, view):
            size_mib = MAX_UNCLEAR_BYTES // 1024**2
            return OnlySpark(f"more than {MAX_UNCLEAR:,} records, or {size_mib} MiB of them, are not as declared")
        try:
            return self._write(view, shares, began)
        except (OnlySpark, TaskFailed, *FAILURES) as error:
            return error
        except Exception as error:  # of a user's fold: the other views are still written
            log.exception("%s: its rows could not be combined", self.loads[view].view.tag)
            return TaskFailed(f"{type(error).__name__}: {error}"[:500])

    def _write(self, view: int, shares: Sequence[Share], began: float) -> BulkResult | PoisonEvent:
        load, program = self.loads[view], self.programs[view]
        found, letters = self._unclear(view, shares)
        states = States(program)
        states.add(found)
        own = share_of([{}] * view + [states.drain()], self._buckets)
        written = self.workers.write(view, program, [*shares, own], load.writers)
        letters += [letter for share in shares for letter in share.letters]
        poison = len(letters) + sum(share.poison - len(share.letters) for share in shares)
        if poison and not load.skip_poison:
            return _poison_event(load.view, min(letters), poison)
        self._write_letters(letters)
        seconds, events = time.monotonic() - began, self._events(load.ranges, shares)
        return BulkResult(offsets_in(load.ranges), written.rows, seconds, poison, written.refused, events)

    def _events(self, ranges: Ranges, shares: Sequence[Share]) -> int | None:
        """The number of events in these ranges; None if the live query's SQL read them."""
        if self.patches is not None:
            return None
        return sum(share.events.get(source, 0) for share in shares for source in ranges)

    def _unclear(self, view: int, shares: Sequence[Share]) -> tuple[list[Patch], list[Letter]]:
        """The patches of records that the compiled view did not read, and those that nobody can read."""
        declared = self.loads[view].view
        made: list[Patch] = []
        letters: list[Letter] = []
        others: list[UnclearRecord] = []
        reason = ""
        for record in sorted(record for share in shares if share.unclear for record in share.unclear[view]):
            try:
                made += unclear.patches(declared, record)
            except Unreadable as error:
                letters.append(letter_of(record, str(error)))
            except OnlySpark as error:
                others.append(record)
                reason = str(error)
        if others:
            more, unreadable = self.reader(declared, reason).patches_of(declared, others)
            made, letters = made + more, letters + unreadable
        return made, letters

    def _write_letters(self, letters: Sequence[Letter]) -> None:
        """Write the dead letters that the live query writes for these records."""
        written = DeadLetters(self.settings)
        for each in letters:
            written.put(each.key, each.text)
        written.flush()


def together(loads: Sequence[Load[TableView]]) -> list[list[int]]:
    """Numbers of the loads for each pass: with the same selection, ranges of each source, and class of each event."""
    found: list[list[int]] = []
    for number, load in enumerate(loads):
        fitting = (numbers for numbers in found if all(_go_together(loads[each], load) for each in numbers))
        numbers = next(fitting, None)
        if numbers is None:
            found.append([number])
        else:
            numbers.append(number)
    return found


def _go_together(one: Load[TableView], other: Load[TableView]) -> bool:
    """Whether both can be folded in one pass."""
    same_ranges = all(one.ranges[each] == other.ranges[each] for each in one.ranges.keys() & other.ranges.keys())
    ours, theirs = one.view.plan.recorded, other.view.plan.recorded
    same_events = all(ours[name] is theirs[name] for name in ours.keys() & theirs.keys())
    return one.selection == other.selection and same_ranges and same_events


def gave_up(shares: Sequence[Share], view: int) -> bool:
    """Whether the compiled source of a view left more records to others than they take."""
    left = (unclear_bytes(share.unclear[view]) for share in shares if view < len(share.unclear))
    return any(share.gave_up(view) for share in shares) or sum(left) > MAX_UNCLEAR_BYTES


def _poison_event(view: TableView, first: Letter, poison: int) -> PoisonEvent:
    source, offset, text = first
    letter = DeadLetter.from_json(text)
    key, value = ((each or b"").decode(errors="replace") for each in (letter.key, letter.value))
    return PoisonEvent(view.name, f"{source}:{offset}", letter.reason, poison - 1, f"{key} {value}")


def letter_of(record: UnclearRecord, reason: str) -> Letter:
    """The dead letter that the live query writes for a record that nobody can read."""
    topic, partition = topic_and_partition(record.source)
    letter = DeadLetter(reason, time_of(record.timestamp_ms), record.key, record.value)
    text = letter.to_json(topic=topic, partition=partition, offset=record.offset)
    return Letter(record.source, record.offset, text)


def times_of(selection: Selection) -> Times:
    """The times of the selected records."""
    since, until = selection.since, selection.until
    return Times(since.time_ms if since else None, until.time_ms if until else None)
