"""The port of a store: generations of views, loaded in bulk and patched live, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from projections.table.patch import Patch, Place
from projections.table.view import TableView

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Target:
    """One generation of a view: what is written to."""

    view: TableView
    generation: int


LAST_NUMBER: Final = 2**31 - 1
"""The number after every patch of an event: a place with it covers the whole event."""


@dataclass(slots=True)
class Ledger:
    """What a generation has taken in from one partition of `patches`.

    next_offset: the `patches` offset to read next. applied: the highest place applied, by source partition.
    """

    next_offset: int
    applied: dict[int, Place] = field(default_factory=dict)

    def has(self, source: int, place: Place) -> bool:
        """Whether the patch from this place has been applied already."""
        seen = self.applied.get(source)
        return seen is not None and place <= seen

    def reached(self, source: int) -> int:
        """The source offset below which nothing is missing.

        The last patch applied may not be the last of its event: only progress, with LAST_NUMBER, says that it was.
        """
        seen = self.applied.get(source)
        return 0 if seen is None else seen.offset + (seen.number == LAST_NUMBER)


@dataclass(slots=True)
class Batch:
    """What was read from one partition of `patches`, in order, to be applied together.

    next_offset: the offset after the last record read. progress: events up to this offset, by source partition, are all
    in the log of patches before `next_offset`. first_offset: the batch holds every record from here to `next_offset`.
    """

    next_offset: int
    patches: dict[str, list[Patch]] = field(default_factory=dict)
    """By view tag (`name@version`)."""
    progress: dict[str, dict[int, int]] = field(default_factory=dict)
    """By view tag, as `patches`: one emitter's progress says nothing of the views that it does not emit."""
    first_offset: int = 0


class BulkWriter(Protocol):
    """Writes the folded rows of a replay; pickled to executors, so it holds settings, never connections."""

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Write the rows of one Spark partition and return how many.

        Columns: the view's key, then every state field of its layout by name, in the Arrow form of SPARK_TYPES. A
        partition may be written again after a failure: the same rows, so the write must replace, not add.
        """


class ViewStore(Protocol):
    """One store, for one thread.

    Raises StoreUnavailable when it does not answer; what was not applied is applied on the next call.
    """

    name: str

    def create(self, target: Target, bulk_ends: Mapping[int, int], patch_starts: Mapping[int, int]) -> None:
        """Make an empty generation and its ledger, replacing one that a failed rebuild left.

        bulk_ends: by source partition, the offset after the last event that bulk will cover. patch_starts: by patches
        partition, the offset to read from.
        """

    def bulk_writer(self, target: Target) -> BulkWriter:
        """A writer for the bulk phase."""

    def finish(self, target: Target) -> None:
        """After bulk: build the secondary indexes, make the rows searchable and durable."""

    def publish(self, target: Target) -> None:
        """Point the plain name (SQL view, alias, key pointer) at this generation."""

    def drop(self, target: Target) -> None:
        """Delete the generation and its ledger, if there."""

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        """The ledger of each patches partition of a generation; none where it is gone, or its rows are."""

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        """Apply batches, by patches partition, to every target whose tag they hold patches of; duplicates are skipped.

        Every target's ledger advances, with or without patches for it.

        Raises GenerationMissing if a target's ledger is gone (nothing is written then: patches on empty rows would give
        wrong rows), LedgerWentBack if a ledger is before the `first_offset` of its batch, and Unloadable if the store
        cannot hold what a patch brings; then any part of the batches may have been applied, as the ledgers say.
        """

    def settle(self) -> None:
        """Write what `apply` put off: ledgers may be written less often than rows. Call it when nothing comes."""

    def close(self) -> None:
        """Let go of connections; the store connects again when it is used again."""


def no_fault(moment: str) -> None:
    """What a store calls at the moments between its writes, outside of tests."""
