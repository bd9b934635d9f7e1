"""Rows of which a store refused a value in bulk: they get their patches one after the other, as loaders apply them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

from tenacity import Retrying

from eventlog.settings import LogSettings
from projections.errors import RefusedPatch, Unloadable
from projections.loading.dead_letters import DeadLetters
from projections.loading.refused_patches import add_letter
from projections.stores.store import Batch, Target, ViewStore
from projections.table.patch import Patch, Place

log = logging.getLogger(__name__)

BULK: Final = "bulk"
"""The source of these patches in ledgers, which say that all events of bulk are applied; each is applied once."""
CHUNK_PATCHES: Final = 1_000


def add_rows(
    store: ViewStore,
    target: Target,
    patches: Iterable[Patch],
    settings: LogSettings,
    patiently: Retrying,
    *,
    tag: str,
    skip: bool,
) -> int:
    """Apply the patches of rows that bulk did not write, and return how many of them the store refused.

    A refused patch changes nothing, and becomes a dead letter, like one that a loader applies. tag: of the view, for
    dead letters. skip: otherwise the first refused patch raises RefusedPatch.
    """
    letters, refused, numbers, left = DeadLetters(settings), 0, count(), iter(patches)

    def apply(some: Sequence[Patch]) -> None:
        patiently(store.apply, [target], {0: Batch(0, {target.tag: list(some)})})

    while some := list(islice(left, CHUNK_PATCHES)):
        placed = [patch._replace(source=BULK, place=Place(next(numbers), 0)) for patch in some]
        try:
            apply(placed)
        except Unloadable:
            for patch, own in zip(placed, some, strict=True):
                try:
                    apply([patch])
                except Unloadable as error:
                    if not skip:
                        position = f"{own.source}:{own.place.offset}"
                        raise RefusedPatch(target.view.name, store.name, own.key, position, error.cause) from error
                    add_letter(letters, store.name, tag, own, error)
                    refused += 1
    store.settle(now=True)
    if refused:
        log.warning("%s g%d: %s refused %d patches", target.view.name, target.generation, store.name, refused)
    return refused
