"""Ledgers in every store: which patches of a batch are new, how far they are, and which patches are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from headwater.projections.errors import BulkLoadFailed, GenerationMissing, LedgerWentBack, Unloadable
from headwater.projections.stores.store import LAST_NUMBER, Batch, Ledger, Target
from headwater.projections.table.layout import Layout
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import BATCHES, Patch, Place


def initial_ledger(bulk_ends: Mapping[str, int], next_offset: int) -> Ledger:
    """The ledger of a generation whose bulk covered the source offsets below `bulk_ends`."""
    applied = {source: Place(end - 1, LAST_NUMBER) for source, end in bulk_ends.items() if end > 0}
    return Ledger(next_offset, applied)


def position(ledgers: Mapping[int, Ledger], sources: Iterable[str]) -> dict[str, int]:
    """By source, the offset below which all is applied: the minimum over all patches partitions."""
    return {source: min((ledger.reached(source) for ledger in ledgers.values()), default=0) for source in sources}


class Gap(NamedTuple):
    """Why a generation cannot be loaded any more.

    partition: of `patches`.
    needed: the next patch of its ledger; None: it has no ledger.
    first: the first patch that retention has left.
    """

    partition: int
    needed: int | None
    first: int = 0


def gap(ledgers: Mapping[int, Ledger], partitions: Collection[int], first_kept: Callable[[int], int]) -> Gap | None:
    """The first partition in which a generation lacks its ledger or its next patch; None if it can be loaded.

    first_kept: returns the first patch of a partition that retention has left; not called if a ledger is missing.
    """
    for partition in partitions:
        if partition not in ledgers:
            return Gap(partition, None)
    for partition in partitions:
        if (needed := ledgers[partition].next_offset) < (first := first_kept(partition)):
            return Gap(partition, needed, first)
    return None


def check_rows(store: str, target: Target, row_count: int, at_least: int) -> None:
    """Raise BulkLoadFailed if a store has fewer rows than bulk wrote."""
    if row_count < at_least:
        cause = (
            f"{store} has {row_count:,} of the {at_least:,} rows that it confirmed: it lost the others, as in a crash"
        )
        raise BulkLoadFailed(target.view.name, cause)


def check(store: str, target: Target, found: Mapping[int, Ledger], batches: Mapping[int, Batch]) -> None:
    """Raise GenerationMissing if a ledger is gone, LedgerWentBack if one is before its batch."""
    for partition, batch in batches.items():
        ledger = found.get(partition)
        if ledger is None:
            raise GenerationMissing(*target.id)
        if ledger.next_offset < batch.first_offset:
            raise LedgerWentBack(store, target.view.name, partition, batch.first_offset, ledger.next_offset)
        for source, place in batch.follows.get(target.tag, {}).items():
            if not ledger.has(source, place):
                raise LedgerWentBack(
                    store, target.view.name, partition, place.offset + 1, ledger.reached(source), source
                )


def take_new(ledger: Ledger, batch: Batch, tag: str) -> list[Patch]:
    """The patches of `tag` in `batch` that `ledger` does not have yet, and all rows that batches of Spark computed; the
    ledger is updated with the whole batch.

    Whole rows of the last applied record are taken again: they have one place, and not all may have been applied.
    """
    fresh: list[Patch] = []
    for patch in batch.patches.get(tag, ()):
        if patch.source == BATCHES:  # a batch has many rows; each says itself which batch it has
            fresh.append(patch)
        elif not ledger.has(patch.source, patch.place) or (
            patch.is_whole and ledger.applied[patch.source] == patch.place
        ):
            ledger.applied[patch.source] = patch.place
            fresh.append(patch)
    for source, offset in batch.progress.get(tag, {}).items():
        if not ledger.has(source, Place(offset, LAST_NUMBER)):
            ledger.applied[source] = Place(offset, LAST_NUMBER)
    ledger.next_offset = max(ledger.next_offset, batch.next_offset)
    return fresh


def combined(layout: Layout, rows: Mapping[str, State], patches: Iterable[Patch]) -> dict[str, State]:
    """The rows that patches change, after them; `rows` are those before, and do not change."""
    changed: dict[str, State] = {}
    for patch in patches:
        state = changed.get(patch.key)
        if state is None:
            state = changed[patch.key] = dict(rows.get(patch.key, {}))
        layout.combine(state, patch.fields)
    return changed


@contextmanager
def loadable(store: str) -> Iterator[None]:
    """Raise Unloadable if a patch does not have the types of its view's fields."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise Unloadable(store, f"{type(error).__name__}: {error}") from error
