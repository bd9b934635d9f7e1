"""Compares two generations of a view row by row, such as a separate rebuild with the live one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import RebuildFailed
from headwater.projections.generations.rebuild.engine import holds_events, run_alone
from headwater.projections.generations.rebuild.rebuild import OnStep, Options, Rebuild
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.sources import patch_ends
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.loading.older_events import changed_rows
from headwater.projections.stores.backend import RowReader, Size
from headwater.projections.stores.ledgers import position
from headwater.projections.stores.open import compared_of
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.table.layout import DELETED
from headwater.projections.table.layout import difference as difference_of
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import GROUP, MARK
from headwater.projections.view import View
from headwater.replay.deployment import live_generation
from headwater.replay.errors import CannotVerify

SAMPLE: Final = 10
ROUNDS: Final = 10
"""How often differing rows are read again while patches may still change them."""


@dataclass(frozen=True)
class Difference:
    """A row that differs. fields: the stored values of the differing fields in each; None: the row is missing."""

    key: str
    left: State | None
    right: State | None


@dataclass
class Comparison:
    """The result of a comparison in one store.

    rows: number of compared rows; a row that Valkey gives twice counts twice.
    differences: number of differing rows.
    sample: the first of them.
    undecided: rows that kept changing.
    """

    store: str
    rows: int = 0
    differences: int = 0
    sample: list[Difference] = field(default_factory=list)
    undecided: int = 0

    def add(self, difference: Difference) -> None:
        """Count a row that differs."""
        self.differences += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(difference)


def compare(
    reader: RowReader,
    store: str,
    left: Target,
    right: Target,
    in_motion: Callable[[], Callable[[], Set[str]]],
    row_of: Callable[[str], str] = str,
) -> Comparison:
    """Compare every row of `left` and `right`, or what else the reader reads as rows.

    in_motion: called before rows are read; it returns a function that, called afterwards, returns the keys of rows that
    may have changed in between. A differing row that may have changed is read again; only other rows count as
    different. row_of: the key of the row that a key of the reader is about.
    """
    result, view, now = Comparison(store), left.view, datetime.now(UTC)
    # each generation of a stream view counts its own batches
    ignored = frozenset(field.name for field in view.layout.fields if field.ordering and view.has_own_query)
    counts, expiry = view.layout.retraction is not None, view.expiry
    if ignored or counts:
        # of a stream view, a generation may have a row that was deleted, or never had it; likewise of a view that
        # counts rows, whose contributions are there while they are in a group
        reader = _Kept(reader, lambda row: not row.get(DELETED) or row.get(GROUP) is not None)
    if expiry is not None and expiry.is_final:  # a generation may have lost any of those that had expired
        reader = _Kept(reader, lambda row: not expiry.has_come(row.get(expiry.column), now))

    def between(keys: Sequence[str], left: Mapping[str, State], right: Mapping[str, State]) -> Iterator[Difference]:
        for key in keys:
            difference = difference_of(left.get(key), right.get(key), ignored, forgets_deleted=bool(view.tables))
            if difference is not None:
                yield Difference(key, *difference)

    moving = in_motion()
    differing = dict[str, Difference]()
    for number, difference in _differing(reader, left, right, between):
        result.rows += number
        if difference is not None:
            differing[difference.key] = difference  # once, although Valkey may give a row twice
    for _ in range(ROUNDS):
        changed = moving() if differing else frozenset()
        again = []
        for key, difference in differing.items():
            row = row_of(key)
            # patches name contributions, which may have been in any group
            if row in changed or (counts and changed and not row.startswith(MARK)):
                again.append(key)
            else:
                result.add(difference)
        if not again:
            return result
        moving = in_motion()
        differing = {
            difference.key: difference
            for keys in _chunks(again)
            for difference in between(keys, reader.rows_of(left, keys), reader.rows_of(right, keys))
        }
    result.undecided = len(differing)
    return result


class _Kept(RowReader):
    """The rows of a reader that count in a comparison: generations may differ in others."""

    def __init__(self, reader: RowReader, is_kept: Callable[[State], bool]) -> None:
        self._reader, self._is_kept = reader, is_kept

    def rows(self, target: Target) -> Iterator[tuple[str, State]]:
        return ((key, row) for key, row in self._reader.rows(target) if self._is_kept(row))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        return {key: row for key, row in self._reader.rows_of(target, keys).items() if self._is_kept(row)}

    def size(self, target: Target) -> Size:
        return self._reader.size(target)


def _differing(
    reader: RowReader, left: Target, right: Target, between: Callable[..., Iterator[Difference]]
) -> Iterator[tuple[int, Difference | None]]:
    """The number of rows, with each difference; rows of `left` first, then those that only `right` has."""
    for rows in _chunks(reader.rows(left)):
        ours = dict(rows)
        yield len(ours), None
        yield from ((0, difference) for difference in between(list(ours), ours, reader.rows_of(right, list(ours))))
    for rows in _chunks(reader.rows(right)):
        theirs = dict(rows)
        ours = reader.rows_of(left, list(theirs))
        only = {key: state for key, state in theirs.items() if key not in ours}
        yield len(only), None
        yield from ((0, difference) for difference in between(list(only), {}, only))


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK_ROWS)):
        yield chunk


COVER_S: Final = 60.0
"""How long the live generation may make no progress until it confirms, by heartbeats, that it has what was rebuilt."""
FOLLOW_S: Final = 20.0
"""How long a difference may be due to queries that are in different batches: a few heartbeats and triggers."""
LOOK_S: Final = 0.2


@dataclass(frozen=True)
class Verified:
    """The result of a verification. generation: the live one; events: read by the separate rebuild (see Rebuilt)."""

    view: str
    generation: int
    events: int | None
    stores: list[Comparison]

    @property
    def equal(self) -> bool:
        """Whether every row was equal."""
        return not any(store.differences or store.undecided for store in self.stores)


def verify(
    rebuilder: Rebuilder, view: View, on_step: OnStep = lambda _: None, *, skip_poison: bool = False
) -> Verified:
    """Rebuild `view` separately, let it catch up, compare every row and ranking in every store, and drop the rebuild.

    skip_poison: see Options.

    Raises CannotVerify if there is no live generation with this declaration, if it stays behind the rebuild, or if that
    fails.
    """
    live = live_generation(rebuilder.generations, view, CannotVerify)
    current = Target(view, live.generation)
    comparisons: list[Comparison] = []
    try:
        with rebuilder.building(view, on_step, Options(skip_poison=skip_poison)) as build:

            def compare_all() -> None:
                with build.phase("compare"):
                    comparisons.extend(
                        difference
                        for store in build.stores
                        for difference in _compare(rebuilder, build, store, current)
                    )

            run_alone(build.run(compare_all))
    except RebuildFailed as error:
        raise CannotVerify(view.name, f"{error.phase}: {error.cause}") from error
    return Verified(view.name, live.generation, build.result.events, comparisons)


def _compare(rebuilder: Rebuilder, build: Rebuild, store: ViewStore, current: Target) -> Iterator[Comparison]:
    """Of what the store has: its rows, and in Valkey the entries of its rankings."""
    _wait_until_covered(rebuilder, build, store, current)

    def in_motion() -> Callable[[], Set[str]]:
        both = store.all_ledgers([current, build.target])
        starts = {partition: min(ledgers[partition].next_offset for ledgers in both) for partition in both[0]}

        def touched() -> Set[str]:
            """The keys of the rows that patches of both change from there on."""
            if current.view.has_state:
                let_follow(store, [current, build.target], build.noted.bulk_ends, FOLLOW_S + 2 * current.view.every_s)
            views = {target.tag: target.view for target in (current, build.target)}
            return {
                key
                for partition, start in starts.items()
                for record in rebuilder.log.read(PATCHES, partition, start)
                for key in changed_rows(record, views, len(starts))
            }

        return touched

    for name, (reader, row_of) in compared_of(store.name, current.view, rebuilder.stores).items():
        yield compare(reader, name, current, build.target, in_motion, row_of)


def let_follow(store: ViewStore, targets: Sequence[Target], sources: Collection[str], within_s: float) -> None:
    """Let queries of the same view make the rows that any of them has now.

    Each must have read what the others have, and ended one more batch: records make rows final in the next batch. A
    query that does not move within this time is not waited for.
    """
    deadline = time.monotonic() + within_s

    def reached() -> list[dict[str, int]]:
        return [position(ledger, sources) for ledger in store.all_ledgers(targets)]

    def wait_until(done: Callable[[list[dict[str, int]]], bool]) -> list[dict[str, int]]:
        while not done(now := reached()) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return now

    first = reached()
    furthest = {source: max(positions[source] for positions in first) for source in sources}
    read = wait_until(
        lambda now: all(positions[source] >= end for positions in now for source, end in furthest.items())
    )
    wait_until(lambda now: all(positions != before for positions, before in zip(now, read, strict=True)))


def _wait_until_covered(rebuilder: Rebuilder, build: Rebuild, store: ViewStore, current: Target) -> None:
    """Wait until the live generation has all events of the bulk phase, so that both have the same events.

    Whatever it has to catch up with, it may take its time, as long as it makes progress: in the sources that it lacks,
    or with the patches that are there now.

    Behind the last event there are a heartbeat and the marker of its transaction. A view has applied these only with
    the next heartbeat, for which an idle deployment would wait up to five seconds per view. They change no row, except
    of views with state, whose rows they make final.
    """
    bulk_ends, patches = build.noted.bulk_ends, patch_ends(rebuilder.log, rebuilder.settings)
    if not current.view.has_state:
        at = position(store.ledgers(current), bulk_ends)
        lacking = {source: (at[source], end) for source, end in bulk_ends.items() if at[source] < end}
        bulk_ends = {source: part[1] for source, part in lacking.items() if holds_events(rebuilder.log, {source: part})}
    before, deadline = None, 0.0
    while True:
        ledgers = store.ledgers(current)
        reached = position(ledgers, bulk_ends)
        behind = {source: at for source, at in reached.items() if at < bulk_ends[source]}
        if not behind:
            return
        now = behind, [min(ledgers[partition].next_offset, end) for partition, end in patches.items()]
        if now != before:
            before, deadline = now, time.monotonic() + COVER_S
        elif time.monotonic() > deadline:
            listed = ", ".join(behind)
            raise RebuildFailed(
                current.view.name,
                "compare",
                f"{store.name} has not applied all of source {listed}, and made no progress for {COVER_S:g} s: see "
                "`replay status`; without new events, it needs the heartbeats of a running `headwater handler`",
            )
        time.sleep(LOOK_S)
