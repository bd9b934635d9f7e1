"""Rows of which a store refused a value in bulk: they get their patches one after the other, as loaders apply them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Final

from headwater.projections.errors import BulkLoadFailed, GenerationMissing, LedgerWentBack, RefusedPatch, Unloadable
from headwater.projections.generations.rebuild.store_outages import patiently
from headwater.projections.limits import AWAY_S, CHUNK_BYTES, FEW_ROWS, MANY_ROWS, MANY_SHARE
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.refused_patches import add_letter
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.patch import BULK, Patch, Place

log = logging.getLogger(__name__)

CHUNK_PATCHES: Final = 1_000


def check_few(view: str, stores: Sequence[str], written: int, refused: Sequence[Set[str]]) -> None:
    """Raise BulkLoadFailed if a store refuses so many rows that the reason is not their values.

    written: rows that at least one store holds. refused: by store, the keys of the others.
    """
    rows = written + min(map(len, refused), default=0)
    for store, keys in zip(stores, refused, strict=False):
        number = len(keys)
        if (number > MANY_ROWS and number > MANY_SHARE * rows) or (number > FEW_ROWS and number >= rows):
            problem = "see the log above, and compare the declaration of the view with its events"
            raise BulkLoadFailed(view, f"{store} refuses {number:,} of {rows:,} rows: {problem}")


def add_rows(
    store: ViewStore,
    target: Target,
    patches: Iterable[Patch],
    letters: DeadLetters,
    *,
    tag: str,
    skip: bool,
) -> int:
    """Apply the patches of rows that bulk did not write, and return how many of them the store refused.

    A refused patch changes nothing, and becomes a dead letter, like one that a loader applies. tag: of the view, for
    dead letters. skip: otherwise the first refused patch raises RefusedPatch.

    Raises BulkLoadFailed if the store loses patches that it had applied.
    """
    refused, numbers, rows = 0, count(), _Rows(store, target)
    for some in _chunks(patches, rows.together):
        placed = [patch._replace(source=BULK, place=Place(next(numbers), 0)) for patch in some]
        try:
            rows.apply(placed)
        except Unloadable:
            for patch, own in zip(placed, some, strict=True):
                try:
                    rows.apply([patch])
                except Unloadable as error:
                    if not skip:
                        position = f"{own.source}:{own.place.offset}"
                        raise RefusedPatch(target.view.name, store.name, own.key, position, error.cause) from error
                    add_letter(letters, store.name, tag, own, error)
                    refused += 1
    patiently(AWAY_S)(rows.check)
    if refused:
        log.warning("%s g%d: %s refused %d patches", *target.id, store.name, refused)
    return refused


@dataclass
class _Rows:
    """Applies patches to the rows of one generation, of which `last` has the place of the last one by partition.

    A store that crashes may return without what it applied last. Then it refuses later patches, which say what they
    follow: it compares that as it applies them.
    """

    store: ViewStore
    target: Target
    last: dict[int, Place] = field(default_factory=dict)

    @property
    def together(self) -> int:
        """How many patches are applied at once."""
        return 1 if self._is_spread else CHUNK_PATCHES

    @property
    def _is_spread(self) -> bool:
        """Whether the store has each row in the partition of its patches; the others may take it in any."""
        declared = self.target.view.store(self.store.name)
        return declared is not None and declared.keeps_partitions

    @cached_property
    def _partitions(self) -> int:
        if not (ledgers := self.store.ledgers(self.target)):
            raise GenerationMissing(*self.target.id)
        return len(ledgers)

    def apply(self, patches: Sequence[Patch]) -> None:
        """Apply patches together, as soon as the store answers; raises Unloadable."""
        target, partition = self.target, 0
        if self._is_spread:
            partition = patch_partition(target.view, target.tag, patches[0].key, self._partitions)
        follows = {BULK: self.last[partition]} if partition in self.last else {}
        batch = Batch(0, {target.tag: list(patches)}, follows={target.tag: follows})
        try:
            patiently(AWAY_S)(self.store.apply, [target], {partition: batch})
        except LedgerWentBack as error:
            raise self._lost() from error
        self.last[partition] = patches[-1].place

    def check(self) -> None:
        """Raise BulkLoadFailed if the store has lost patches."""
        self.store.settle(now=True)
        ledgers = self.store.ledgers(self.target)
        if not ledgers:
            raise GenerationMissing(*self.target.id)
        if any(ledgers[partition].applied.get(BULK) != last for partition, last in self.last.items()):
            raise self._lost()

    def _lost(self) -> BulkLoadFailed:
        cause = "lost what it had written last, as after a crash, while refused rows were added"
        return BulkLoadFailed(self.target.view.name, f"{self.store.name} {cause}")


def _chunks(patches: Iterable[Patch], most: int) -> Iterator[list[Patch]]:
    """The patches in parts that fit into memory, at most so many in each."""
    some, size = list[Patch](), 0
    for patch in patches:
        some.append(patch)
        size += _size(patch.fields)
        if len(some) == most or size > CHUNK_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _size(value: object) -> int:
    """About the bytes of a value in JSON."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(_size(name) + _size(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(_size, value))
    return 8
