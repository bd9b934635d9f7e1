"""A generation of a view: how it compares with a declaration, and until when it was kept up."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.eventlog.topics import TOMBSTONES_DAYS
from headwater.projections.stores.declared import STORES
from headwater.projections.table.rows import Deleted
from headwater.projections.view import View

_STORES: Final = {f"{kind.__name__}(": kind for kind in STORES.values()}
"""By the beginning of their text in a declaration."""
FIRST_LINES: Final = 3
"""The tag, the key, and its name."""
EXPIRES: Final = "expires "
"""Begins the line of a declaration that says when its rows are removed."""


@dataclass(frozen=True)
class Generation:
    """One generation of a view in the registry.

    state: building, live (for the code of its version) or retired.
    bulk_ends: by source, the offset after the last event of bulk.
    patch_starts: by partition of `patches`, the offset from which it is loaded.
    stores: where it was built.
    declaration: its lines.
    published: whether the aliases lead to it.
    events, seconds: how many offsets bulk read, and how long it took.
    source, selection: of a view made with --as.
    replays, next_replay: how often upkeep has replayed the view in a row, and when it may do so again.
    kept: see `projections.generations.registry.kept_up`.
    row_types: `View.row_types` when it was built.
    topics: the id of `patches` and of each topic that it was built from.
    paused_since: since when an operator has paused the view; None: it is not paused.
    read_at: when the registry was read, by PostgreSQL's clock: times in it, and from other machines, compare with that.
    """

    view: str
    generation: int
    version: int
    tag: str
    fingerprint: str
    state: str
    bulk_ends: Mapping[str, int]
    patch_starts: Mapping[str, int]
    created_at: datetime
    live_at: datetime | None
    stores: Sequence[str]
    declaration: Sequence[str]
    published: bool
    events: int | None
    seconds: float | None
    source: str | None
    selection: str | None
    read_at: datetime
    row_types: Sequence[str]
    topics: Mapping[str, str]
    replays: int | None = None
    next_replay: datetime | None = None
    kept: Mapping[str, float] = field(default_factory=dict)
    paused_since: datetime | None = None


def served_by(view: View, live: Iterable[Generation]) -> Generation | None:
    """Which of the `live` generations code with this declaration reads: that of its version, else of the latest earlier
    one. Never of a later version, because its columns may mean something else."""
    usable = [generation for generation in live if generation.view == view.name and generation.version <= view.version]
    return max(usable, key=lambda generation: generation.version, default=None)


def has_declaration_of(generation: Generation, view: View) -> bool:
    """Whether its rows are those that this code declares: also in the types of their fields and columns.

    What is not about its rows may differ (`DeclaredStore.of_rows`).
    """
    return list(generation.row_types) == view.row_types and (
        generation.fingerprint == view.fingerprint or _of_rows(generation.declaration) == _of_rows(view.declaration)
    )


def has_rows_of(generation: Generation, other: Sequence[str]) -> bool:
    """Whether its declaration is this one, except for the tag, what is not about rows, and when they expire."""
    # those of a view that was made with --as do not expire
    ours, theirs = (
        [line for line in _of_rows(declaration)[1:] if not line.startswith(EXPIRES)]
        for declaration in (generation.declaration, other)
    )
    return ours == theirs


def _of_rows(declaration: Sequence[str]) -> list[str]:
    """A declaration without what is not about rows: also not the order of its stores, events and fields."""
    lines = [
        next((kind.of_rows(line) for word, kind in _STORES.items() if line.startswith(word)), line)
        for line in declaration
    ]
    return [*lines[:FIRST_LINES], *sorted(lines[FIRST_LINES:])]


def previous(
    view: View, generations: Iterable[Generation], current: int | None
) -> tuple[Generation | None, Sequence[Generation]]:
    """The generation to roll back to: that with this declaration that was live last; None if there is none.

    Also all that are built and not the current one, that which was live last at the end.
    """
    built = [
        generation for generation in generations if generation.state != "building" and generation.generation != current
    ]
    others = sorted(built, key=lambda generation: generation.live_at or generation.created_at)
    return next((other for other in reversed(others) if has_declaration_of(other, view)), None), others


def declaration_changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The removed (-) and added (+) lines, as a declaration is written."""
    return [line for line in difflib.ndiff(before, after) if line[0] in "-+"]


def changes_since(generation: Generation, view: View) -> list[str]:
    """The removed (-) and added (+) lines of the declaration, and of the types of its rows."""
    return [
        *declaration_changes(generation.declaration, view.declaration),
        *declaration_changes(generation.row_types, view.row_types),
    ]


def is_refused(generation: Generation, view: View) -> bool:
    """Whether code with this declaration must not use the rows: it changed, and the version did not."""
    return generation.version == view.version and not has_declaration_of(generation, view)


def why_refused(generation: Generation, view: View) -> str:
    """Why a generation for which `is_refused` is true cannot be this view's."""
    if generation.source is not None:
        return (
            f'a view of this name was made from "{generation.source}" with --as: drop it with `replay drop {view.name}`'
        )
    changes = "".join(f"\n  {line}" for line in changes_since(generation, view))
    return f"the declaration changed, but the version is still {view.version}: raise the version{changes}"


def paused_text(view: str, since: datetime) -> str:
    """Since when a view is paused, and what ends that: after "it is paused"."""
    return f"since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: run `replay resume {view}`"


KEPT_FOR: Final = timedelta(days=TOMBSTONES_DAYS - 1)
"""After this time without being kept up, deletions may be gone: a day is left to read those that are still there."""


def sees_deletions(view: View) -> bool:
    """Whether its rows change if a row of a captured table is deleted."""
    return any(view.handles(Deleted(table).type) for table in view.tables.values())


def missed_since(view: View, generation: Generation, store: str) -> datetime | None:
    """The time since when it may have missed deletions in a store; None if it has every one, or can still read it."""
    if not sees_deletions(view):
        return None
    # it went live when it had caught up, and upkeep records that it is kept up; it may have applied more
    until, noted = generation.live_at or generation.created_at, generation.kept.get(store)
    if noted is not None:
        until = max(until, datetime.fromtimestamp(noted, UTC))
    return until if generation.read_at - until > KEPT_FOR else None


def missed(since: datetime, view: str) -> str:
    """What to tell about a generation that may have missed deletions."""
    return (
        f"it was last up to date at {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, and the log may not have all "
        f"deletions of captured rows since then: run `replay rebuild {view}`"
    )
