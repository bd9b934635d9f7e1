"""The port of a store: generations of views, loaded in bulk and patched live, exactly once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from headwater.projections.table.patch import Patch, Place
from headwater.projections.view import View

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Target:
    """One generation of a view, to which a store writes."""

    view: View
    generation: int

    @property
    def id(self) -> tuple[str, int]:
        """The name of its view, and its number."""
        return self.view.name, self.generation

    @property
    def tag(self) -> str:
        """Begins the keys of its patches."""
        return self.view.patch_tag(self.generation)


LAST_NUMBER: Final = 2**31 - 1
"""A number after every patch of an event: a place with it covers the whole event."""


@dataclass(slots=True)
class Ledger:
    """What a generation has applied from one partition of `patches`.

    next_offset: the next `patches` offset to read. applied: the highest applied place, by source partition.
    """

    next_offset: int
    applied: dict[str, Place] = field(default_factory=dict)

    def copy(self) -> Ledger:
        """Another one with the same places."""
        return Ledger(self.next_offset, dict(self.applied))

    def has(self, source: str, place: Place) -> bool:
        """Whether the patch from this place was already applied."""
        seen = self.applied.get(source)
        return seen is not None and place <= seen

    def reached(self, source: str) -> int:
        """The source offset below which all is applied.

        The last applied patch may not be the last of its event: only progress, with LAST_NUMBER, confirms that it was.
        """
        seen = self.applied.get(source)
        return 0 if seen is None else seen.offset + (seen.number == LAST_NUMBER)


@dataclass(slots=True)
class Batch:
    """Records of one partition of `patches`, in order, to be applied together.

    next_offset: the offset after the last record. progress: all patches of events up to this offset, by source
    partition, are before `next_offset`. first_offset: the batch has every record from here to `next_offset`.
    """

    next_offset: int
    patches: dict[str, list[Patch]] = field(default_factory=dict)
    """By the targets' tag."""
    progress: dict[str, dict[str, int]] = field(default_factory=dict)
    """By tag, like `patches`: the progress of a live query does not cover views that it does not know."""
    first_offset: int = 0
    follows: dict[str, dict[str, Place]] = field(default_factory=dict)
    """By tag and source, the place that a ledger must have reached before: patches from the log have no offsets."""


class BulkWriter(Protocol):
    """Writes the folded rows of a replay; it is pickled to executors, so it has settings, but no connections."""

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Write the rows of one Spark partition and return their number.

        Columns: the view's key, then every state field of its layout by name, in the Arrow form of SPARK_TYPES. A
        partition may be written again after a failure, with the same rows, so writing must replace, not add.

        Raises Unloadable if the store refuses a value; then any of the rows may have been written.
        """


class ViewStore(Protocol):
    """One store, for one thread.

    Raises StoreUnavailable if it does not answer; patches that were not applied are applied by the next call.
    """

    name: str

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        """Create an empty generation and its ledger, replacing one that a failed rebuild left.

        Until `finish`, it is incomplete: a server that comes back as it was in between has lost the generation.

        bulk_ends: by source partition, the offset after the last event of bulk. patch_starts: by patches partition, the
        offset to read from.
        """

    def bulk_writer(self, target: Target) -> BulkWriter:
        """A writer for the bulk phase."""

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        """After bulk: build the secondary indexes, make the rows searchable and durable, count them, and then mark the
        generation as complete.

        at_least: the rows that bulk wrote here.

        Returns the keys of rows that it has removed, because their values may be too long for an index. Raises
        BulkLoadFailed if there are fewer rows: the server has lost what it had confirmed, as after a crash.
        """

    def publish(self, target: Target) -> None:
        """Point the alias (SQL view, alias, key pointer) at this generation."""

    def shown(self, view: str) -> int | None:
        """The generation that the alias of a view leads to, if the registry may know another: after a restore of
        PostgreSQL it is older than the other stores. None if it leads nowhere.
        """
        return None

    def drop(self, target: Target) -> None:
        """Delete the generation and its ledger, if they exist."""

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        """The ledger of each patches partition of a generation; empty if the ledgers or the rows are gone, or if it is
        incomplete.
        """
        (ledgers,) = self.all_ledgers([target])
        return ledgers

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        """The same for each of these generations: the server is asked a few times, however many there are."""

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        """Apply batches, by patches partition, to every target with patches in them; duplicates are skipped.

        Every target's ledger advances, with or without patches for it.

        Raises GenerationMissing if a target's ledger is gone (then nothing is written, because patches on empty rows
        would give wrong rows), LedgerWentBack if a ledger is before the `first_offset` of its batch or before what it
        follows, and Unloadable if the store cannot hold a value of a patch; then any part of the batches may have been
        applied, as the ledgers say.
        """

    def settle(self, *, now: bool = False) -> None:
        """Write what `apply` delayed, if it does: ledgers may be written less often. Called if no patches come.

        now: also what was delayed a moment ago, because another store of the same kind continues: it reads it then.
        """
        return

    def close(self) -> None:
        """Close the connections; the store connects again at its next use."""


def no_fault(moment: str) -> None:
    """Default for `fault`, outside of tests."""
