"""Where the live query begins: at the first event of which not all patches were sent, as `patches` itself says.

Stores are asked only about views of which it says nothing, so one that is unavailable holds up no view. Nor does a view
that is paused or lost: what was sent is there for as long as `patches` is kept, and then only a replay helps.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import EventLog, topic_firsts
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.sources import (
    ends_of,
    made_again,
    patch_ends,
    sources,
    topic_ids,
)
from headwater.projections.loading.decoding import PROGRESS, NotAPatch, read_into
from headwater.projections.service import Service, answering_ledgers
from headwater.projections.stores.ledgers import gap, position
from headwater.projections.stores.open import opened_once
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.view import TableView

log = logging.getLogger(__name__)

FIRST_WINDOW: Final = 64
LAST_WINDOW: Final = 262_144
"""Offsets before the end of a partition of `patches` in which progress is looked for; it comes every few seconds."""


def starting_offsets(service: Service, checkpoint: Path) -> dict[str, int] | None:
    """By source, where the live query begins. While the registry is unavailable, at its checkpoint, and without a
    checkpoint where it began last (None: at the first event).

    The checkpoint is older: it is written when a batch ends, and does not include replays.
    """
    noted = checkpoint.with_suffix(".json")
    try:
        with closing(KafkaLog(service.settings)) as event_log:
            begins = first_unsent(service, event_log)
    except StoreUnavailable as error:
        if not checkpoint.exists() and not noted.exists():
            raise
        log.warning("continuing from the checkpoint: %s", error)
        return dict(json.loads(noted.read_text())) if noted.exists() else None
    noted.parent.mkdir(parents=True, exist_ok=True)
    part = noted.with_suffix(".part")
    part.write_text(json.dumps(begins))
    part.replace(noted)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return begins


def first_unsent(service: Service, event_log: EventLog) -> dict[str, int]:
    """By source, the lowest offset from which on a table view lacks patches.

    A generation that is being built lacks those after its bulk, if its builder lives and waits for patches of this
    code. One that can only be replayed does not count: its topics were made anew, or patches that it needs are gone.

    Raises StoreUnavailable if the registry is unavailable, and LogUnavailable.
    """
    settings, views = service.settings, {view.tag: view for view in service.views.of_kind(TableView)}
    live = service.generations.serving(views.values()).values()
    building = [generation for generation in service.generations.being_built() if generation.source is None]
    ids = topic_ids(event_log, views.values())
    waiting = [
        generation
        for generation in (*live, *building)
        if generation.tag in views and not made_again(generation.topics, ids)
    ]
    sent = read_sent(event_log, settings, waiting)
    needed = list[Mapping[str, int]]()
    with opened_once(service.stores) as opened:
        for generation in waiting:
            of_view = sources([views[generation.tag]], settings)
            known: Mapping[str, int] | None = sent[generation.view, generation.generation]
            if generation.state == "live" and known is not None and not known.keys() >= set(of_view):
                known = _applied(
                    Target(views[generation.tag], generation.generation), opened, event_log, settings, known
                )
            if known is not None:
                needed.append(
                    {source: max(known.get(source, 0), generation.bulk_ends.get(source, 0)) for source in of_view}
                )
    ends = ends_of(event_log, sources(views.values(), settings))
    return {
        source: min((min(offsets[source], end) for offsets in needed if source in offsets), default=0)
        for source, end in ends.items()
    }


def read_sent(
    event_log: EventLog, settings: LogSettings, generations: Sequence[Generation]
) -> dict[tuple[str, int], dict[str, int]]:
    """By generation and source, the offset below which all patches are in `patches`; a source without progress is
    absent.

    Progress from before a generation was begun does not count: its topics may have been others.
    """
    partitions = range(settings.patch_partitions)
    firsts, ends = topic_firsts(event_log, PATCHES, partitions), patch_ends(event_log, settings)
    positions = dict[tuple[str, int], dict[str, int]]()
    wanted = [dict[tuple[str, str], int]() for _ in partitions]
    for generation in sorted(generations, key=lambda other: -other.generation):  # the first one of a version counts
        for number in partitions:
            begun = max(firsts[number], generation.patch_starts.get(str(number), 0))
            wanted[number] |= {(generation.tag, source): begun for source in generation.bulk_ends}
    progress = [_progress(event_log, number, ends[number], wanted[number]) for number in partitions]
    for generation in generations:
        sent = positions[generation.view, generation.generation] = dict[str, int]()
        for source in generation.bulk_ends:
            places = [progress[number].get((generation.tag, source), (-1, -1)) for number in partitions]
            if all(at >= generation.patch_starts.get(str(number), 0) for number, (at, _) in enumerate(places)):
                sent[source] = min(offset for _, offset in places) + 1
    return positions


def _progress(
    event_log: EventLog, partition: int, end: int, wanted: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], tuple[int, int]]:
    """By tag and source, the last progress in a partition of `patches`: its place there, and the offset in it.

    wanted: the place from which on each counts.
    """
    positions = dict[tuple[str, str], tuple[int, int]]()
    start, window, last = end, FIRST_WINDOW, end - LAST_WINDOW
    while start > last and (
        left := [place for target, place in wanted.items() if target not in positions and place < start]
    ):
        start, before = max(last, min(left), end - window), start
        some = dict[tuple[str, str], tuple[int, int]]()
        for record in event_log.read(PATCHES, partition, start, before):
            batch = Batch(0)
            if record.key.startswith(PROGRESS.decode()) and record.value is not None:
                with suppress(NotAPatch):  # a loader makes it a dead letter
                    read_into(batch, record.key.encode(), record.value)
            for tag, offsets in batch.progress.items():
                some |= {(tag, source): (record.offset, offset) for source, offset in offsets.items()}
        positions = some | positions
        window *= 16
    return positions


def _applied(
    target: Target,
    opened: Callable[[str], ViewStore],
    event_log: EventLog,
    settings: LogSettings,
    known: Mapping[str, int],
) -> Mapping[str, int] | None:
    """Likewise, as far as it is known, with what the stores have that answer; None if only a replay helps there."""
    try:
        answers = list(answering_ledgers(target, opened))
    except StoreUnavailable as error:
        log.warning("%s g%d may get patches again that it has: %s", *target.id, error)
        return known
    firsts = topic_firsts(event_log, PATCHES, range(settings.patch_partitions))
    usable = [ledgers for ledgers in answers if gap(ledgers, firsts, firsts.__getitem__) is None]
    if not usable:
        return None
    places = [position(ledgers, sources([target.view], settings)) for ledgers in usable]
    return {**{source: min(place[source] for place in places) for source in places[0]}, **known}
