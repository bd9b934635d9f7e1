"""Patches that a store refuses: they are found by halves and become dead letters, and the others are applied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import Unloadable
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.patch import Patch

log = logging.getLogger(__name__)

PlacedPatch = tuple[int, Patch]
"""A patch, and its partition of `patches`."""


def apply_fitting(
    apply: Callable[[Sequence[Target], Mapping[int, Batch]], None],
    targets: Sequence[Target],
    batches: Mapping[int, Batch],
    store: str,
    letters: DeadLetters,
) -> int:
    """Apply batches to generations, without the patches that the store refuses; returns the number of these.

    apply: of the store with this name; may raise Unloadable, which makes a dead letter. Raises LogUnavailable.
    """
    try:
        apply(targets, batches)
    except Unloadable as error:
        log.warning("%s refused a patch (%s): looking for it", store, error)
    else:
        return 0
    return sum(_apply_fitting(partial(apply, [target]), target.tag, batches, store, letters) for target in targets)


def _apply_fitting(
    apply: Callable[[Mapping[int, Batch]], None],
    tag: str,
    batches: Mapping[int, Batch],
    store: str,
    letters: DeadLetters,
) -> int:
    """The same for one generation."""
    refused = 0

    def apply_some(patches: Sequence[PlacedPatch]) -> None:
        some: dict[int, Batch] = {}
        for partition, patch in patches:
            if (batch := some.get(partition)) is None:
                # `next` stays until the end: after a crash here, the batch is read again
                batch = some[partition] = replace(batches[partition], patches={tag: []}, progress={})
                batch.next_offset = batch.first_offset
            batch.patches[tag].append(patch)
        apply(some)

    def refuse(placed: PlacedPatch, error: Unloadable) -> None:
        nonlocal refused
        add_letter(letters, store, tag, placed[1], error)
        refused += 1

    placed = [(partition, patch) for partition, batch in batches.items() for patch in batch.patches.get(tag, ())]
    apply_by_halves(apply_some, placed, refuse)
    apply({partition: replace(batch, patches={}) for partition, batch in batches.items()})
    return refused


def apply_by_halves(
    apply: Callable[[Sequence[PlacedPatch]], None],
    patches: Sequence[PlacedPatch],
    refuse: Callable[[PlacedPatch, Unloadable], None],
) -> None:
    """Apply patches in their order; of those that are refused together, each half by itself.

    So one refused patch of thousands costs a few writes. A store may have applied any of those that it refuses
    together: it skips these when they come again. refuse: gets each patch that is refused alone.
    """
    if not patches:
        return
    try:
        apply(patches)
    except Unloadable as error:
        if len(patches) == 1:
            refuse(patches[0], error)
            return
        half = len(patches) // 2
        apply_by_halves(apply, patches[:half], refuse)
        apply_by_halves(apply, patches[half:], refuse)


def add_letter(letters: DeadLetters, store: str, tag: str, patch: Patch, error: Unloadable) -> None:
    """Write the dead letter of a patch that a store refuses. tag: of its view. Raises LogUnavailable."""
    number = patch.key if patch.is_whole else patch.place.number
    key = f"{PATCHES}/{store}/{tag}/{patch.source}/{patch.place.offset}/{number}"
    letters.add(key, f"{store} refused it: {error}", patch.key.encode())
