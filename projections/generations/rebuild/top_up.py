"""Brings a generation up to the end of the log directly from the log, independent of `patches`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import GenerationMissing
from headwater.projections.generations.rebuild.engine import holds_events
from headwater.projections.generations.rebuild.resources import Resources
from headwater.projections.generations.registry.sources import ends_of, patch_ends, read_by, sources
from headwater.projections.limits import CHUNK_BYTES
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.decoding import NotAPatch, read_into
from headwater.projections.loading.refused_patches import apply_fitting
from headwater.projections.stores.ledgers import position
from headwater.projections.stores.store import Batch, Ledger, Target
from headwater.projections.table.patch import Place
from headwater.projections.view import View

log = logging.getLogger(__name__)

CHUNK_PATCHES: Final = 5_000


def top_up(target: Target, using: Resources) -> int:
    """Apply every missing event, in log order, to a generation that nobody loads; returns the number of patches.

    A patch that a store refuses, or that cannot be read, becomes a dead letter, as if a loader had applied it.

    Afterwards its ledgers continue at the end that `patches` had before. Raises GenerationMissing if a ledger is gone,
    StoreUnavailable and LogUnavailable.
    """
    patch_starts = patch_ends(using.log, using.settings)  # before the ends of sources
    ends = ends_of(using.log, sources([target.view], using.settings))
    found = _ledgers(target, using)
    reached = [{partition: dict(ledger.applied) for partition, ledger in each.items()} for each in found]
    made, read = 0, read_by(target.view, _missing(found, ends))
    if holds_events(using.log, read):
        for batches in _batches(using.engine.patches(target.view, read), using.letters, target.view):
            for store, places in zip(using.stores, reached, strict=True):
                _follow(target, batches, places)
                refused = apply_fitting(partial(store.apply, [target]), batches, store.name, using.letters)
                if not refused:  # else the ledger may end before the last patch
                    _note(target, batches, places)
            made += sum(len(found) for batch in batches.values() for found in batch.patches.values())
    progress = {target.tag: {each: end - 1 for each, end in ends.items() if end}}
    for store, places in zip(using.stores, reached, strict=True):
        last = {each: Batch(offset, {}, progress) for each, offset in patch_starts.items()}
        _follow(target, last, places)
        store.apply([target], last)
        store.settle(now=True)
    return made


def _follow(target: Target, batches: Mapping[int, Batch], reached: Mapping[int, Mapping[str, Place]]) -> None:
    """Let a store refuse the batches if it has lost what it had before: later patches alone would give wrong rows."""
    for partition, batch in batches.items():
        batch.follows = {target.tag: dict(reached[partition])}


def _note(target: Target, batches: Mapping[int, Batch], reached: Mapping[int, dict[str, Place]]) -> None:
    """Note that a store has applied the batches."""
    for partition, batch in batches.items():
        places = reached[partition]
        for patch in batch.patches.get(target.tag, ()):
            places[patch.source] = max(patch.place, places.get(patch.source, patch.place))


def _ledgers(target: Target, using: Resources) -> list[Mapping[int, Ledger]]:
    """Those of each store; raises GenerationMissing."""
    found = [store.ledgers(target) for store in using.stores]
    if any(len(each) < using.settings.patch_partitions for each in found):
        raise GenerationMissing(*target.id)
    return [*found]


def _missing(found: Iterable[Mapping[int, Ledger]], ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """By source, what at least one store has not applied."""
    reached = [position(ledgers, ends) for ledgers in found]
    return {each: (min(at[each] for at in reached), end) for each, end in ends.items()}


def _batches(patches: Iterable[tuple[str, str, int]], letters: DeadLetters, view: View) -> Iterable[dict[int, Batch]]:
    batches: dict[int, Batch] = {}
    texts, number, size_bytes = {view.tag: view.layout.json_texts}, 0, 0
    for key, value, partition in patches:
        try:
            batch = batches.setdefault(partition, Batch(0))
            read_into(batch, key.encode(), value.encode(), json_texts=texts)
        except NotAPatch as error:
            log.warning("a patch of the row %s cannot be applied: %s", key, error)
            letters.add(f"{PATCHES}/replay/{key}", str(error), key.encode())  # its third part is the view's tag
        number, size_bytes = number + 1, size_bytes + len(key) + len(value)
        if number >= CHUNK_PATCHES or size_bytes >= CHUNK_BYTES:
            yield batches
            batches, number, size_bytes = {}, 0, 0
    if batches:
        yield batches
