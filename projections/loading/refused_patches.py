"""Patches that a store refuses: the others are applied one at a time, and these become dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import Unloadable
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.stores.store import Batch
from headwater.projections.table.patch import Patch

log = logging.getLogger(__name__)


def apply_fitting(
    apply: Callable[[Mapping[int, Batch]], None], batches: Mapping[int, Batch], store: str, letters: DeadLetters
) -> int:
    """Apply batches; if the store refuses a patch, each alone, then their progress. Returns how many it refused.

    apply: of the store with this name; may raise Unloadable, which makes a dead letter. Raises LogUnavailable.
    """
    try:
        apply(batches)
    except Unloadable as error:
        log.warning("%s refused a patch (%s): applying patches one at a time", store, error)
    else:
        return 0
    refused = 0
    for partition, batch in batches.items():
        for tag, patches in batch.patches.items():
            for patch in patches:
                # `next` stays until the end: after a crash here, the batch is read again
                single = replace(batch, next_offset=batch.first_offset, patches={tag: [patch]}, progress={})
                try:
                    apply({partition: single})
                except Unloadable as error:
                    add_letter(letters, store, tag, patch, error)
                    refused += 1
        apply({partition: replace(batch, patches={})})
    return refused


def add_letter(letters: DeadLetters, store: str, tag: str, patch: Patch, error: Unloadable) -> None:
    """Write the dead letter of a patch that a store refuses. tag: of its view. Raises LogUnavailable."""
    number = patch.key if patch.is_whole else patch.place.number
    key = f"{PATCHES}/{store}/{tag}/{patch.source}/{patch.place.offset}/{number}"
    letters.add(key, f"{store} refused it: {error}", patch.key.encode())
