"""A pass over the log: folds its events into the rows of several views, and writes these."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from headwater.eventlog.kafka.admin import topic_id
from headwater.eventlog.letters import Letter as DeadLetter
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import PoisonEvent
from headwater.projections.folding.slices import Slices, parts_of
from headwater.projections.folding.tasks import FoldTask, Share, TaskFailed, Workers, divided
from headwater.projections.generations.rebuild.engine import (
    FAILURES,
    BulkResult,
    Failure,
    Load,
    Ranges,
    offsets_in,
    watched,
)
from headwater.projections.generations.registry.sources import Selection
from headwater.projections.limits import (
    BUCKET_OFFSETS,
    FEW_OFFSETS,
    MAX_BUCKETS,
    TASK_OFFSETS,
)
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.reading.fold_records import Erased, Times
from headwater.projections.reading.program import Decoders, Program
from headwater.projections.table.view import TableView

log = logging.getLogger(__name__)

Tombstones = dict[str, dict[bytes, int]]
"""By source and key, the offset of the last tombstone."""


class _Note(msgspec.Struct):
    topic: str
    tombstones: Tombstones


@dataclass(frozen=True)
class Erasures:
    """The known tombstones of one deployment's log."""

    settings: LogSettings

    def known(self) -> Tombstones:
        """Those that were kept; none if the log is another one."""
        try:
            note = msgspec.msgpack.decode(self._path.read_bytes(), type=_Note)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return {}
        # a topic that was deleted and created again has the same name, but other events
        return note.tombstones if note.topic == topic_id(self.settings, EVENTS) else {}

    def keep(self, found: Tombstones) -> None:
        """Keep them for the next fold; without the note, it may have to fold twice."""
        try:
            if not found:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            note = _Note(topic_id(self.settings, EVENTS), found)
            self._path.write_bytes(msgspec.msgpack.encode(note))
        except OSError as error:
            log.warning("the next rebuild may fold twice: %s", error)

    @property
    def _path(self) -> Path:
        # view names, which are folders here, contain no dot
        return self.settings.state.absolute() / "replays" / self.settings.environment / "tombstones.msgpack"


def merged(several: Iterable[Erased]) -> Tombstones:
    """The last tombstone of each key."""
    merged_tombstones: Tombstones = {}
    for tombstones in several:
        for source, keys in tombstones.items():
            held = merged_tombstones.setdefault(source, {})
            for key, offset in keys.items():
                held[key] = max(offset, held.get(key, -1))
    return merged_tombstones


Outcome = BulkResult | Failure | TaskFailed


@dataclass(frozen=True)
class Pass:
    """One pass for loads with the same selection, and the same ranges of the sources that they share.

    programs: of the loads' views.
    decoders: for all of them.
    alone: for each alone, if there are several.
    """

    settings: LogSettings
    loads: Sequence[Load[TableView]]
    workers: Workers
    programs: Sequence[Program]
    decoders: Decoders
    alone: Sequence[Decoders]
    slice_offsets: int

    def run(self) -> list[Outcome]:
        """Fold, then write each view; returns the result of each, or why it failed.

        Raises TaskFailed and OSError if the fold failed, and LogUnavailable.
        """
        began, before = time.monotonic(), self.workers.read
        slices = self._slices
        with ExitStack() as watching, slices.folding() as rest:
            for load in self.loads:
                watching.enter_context(watched(lambda: self.workers.read - before, self._total, load.on_progress))
            shares = self._fold(slices, rest)
            outcomes = [self._write(view, shares, began) for view in range(len(self.loads))]
        if all(isinstance(outcome, BulkResult) for outcome in outcomes):
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
        while True:
            shares = slices.fold(self._ranges, known, self._buckets, rest, partial(self._fold_part, known))
            tombstones = merged(share.tombstones for share in shares)
            erased = merged([known, tombstones])
            if erased == known:
                if known != tombstones and self._selection.is_all:
                    erasures.keep(tombstones)  # compaction has removed some
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
        wanted = size * -(-offsets // (size * TASK_OFFSETS))
        parts = divided(parts_of(part), min(wanted, -(-offsets // FEW_OFFSETS)))
        return self.workers.fold(
            [
                replace(task, parts=task_parts, path=path and path / str(number))
                for number, task_parts in enumerate(parts)
            ]
        )

    def _write(self, view: int, shares: Sequence[Share], began: float) -> Outcome:
        """Write the rows of one view, and the dead letters that the live query writes for unreadable records."""
        load, program = self.loads[view], self.programs[view]
        letters = [letter for share in shares if share.letters for letter in share.letters[view]]
        poison = sum(share.poison[view] for share in shares if share.poison)
        try:
            written = self.workers.write(view, program, shares, load.writers)
            if poison and not load.skip_poison:
                source, offset, text = min(letters)
                letter = DeadLetter.from_json(text)
                key, value = ((data or b"").decode(errors="replace") for data in (letter.key, letter.value))
                return PoisonEvent(load.view.name, f"{source}:{offset}", letter.reason, poison - 1, f"{key} {value}")
            dead_letters = DeadLetters(self.settings)
            for unreadable in letters:
                dead_letters.put(unreadable.key, unreadable.text)
            dead_letters.flush()
        except (TaskFailed, *FAILURES) as error:
            return error
        except Exception as error:  # of a user's fold: the other views are still written
            log.exception("%s: its rows could not be combined", load.view.tag)
            return TaskFailed(f"{type(error).__name__}: {error}"[:500])
        seconds = time.monotonic() - began
        events = sum(share.events.get(source, 0) for share in shares for source in load.ranges)
        return BulkResult(offsets_in(load.ranges), written.rows, seconds, poison, written.refused, events)


def together(loads: Sequence[Load[TableView]]) -> list[list[int]]:
    """Numbers of the loads for each pass: with the same selection, ranges of each source, and class of each event."""

    def agree(one: Load[TableView], other: Load[TableView]) -> bool:
        shared = ((one.ranges, other.ranges), (one.view.plan.recorded, other.view.plan.recorded))
        return one.selection == other.selection and all(
            ours[name] == theirs[name] for ours, theirs in shared for name in ours.keys() & theirs.keys()
        )

    passes: list[list[int]] = []
    for number, load in enumerate(loads):
        fitting = (numbers for numbers in passes if all(agree(loads[other], load) for other in numbers))
        if (numbers := next(fitting, None)) is None:
            passes.append([number])
        else:
            numbers.append(number)
    return passes


def times_of(selection: Selection) -> Times:
    """The times of the selected records."""
    since, until = selection.since, selection.until
    return Times(since.time_ms if since else None, until.time_ms if until else None)
