"""Compares two generations of a view row by row in one store, also while both apply patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.stores.rows import RowReader
from headwater.projections.stores.store import Target
from headwater.projections.table.monoids import State
from headwater.projections.table.retraction import GROUP, MARK
from headwater.projections.table.row_difference import difference as difference_of
from headwater.projections.table.shown import DELETED

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
            found = difference_of(left.get(key), right.get(key), ignored, forgets_deleted=bool(view.tables))
            if found is not None:
                yield Difference(key, *found)

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
        self.size = reader.size

    def rows(self, target: Target) -> Iterator[tuple[str, State]]:
        return ((key, row) for key, row in self._reader.rows(target) if self._is_kept(row))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        return {key: row for key, row in self._reader.rows_of(target, keys).items() if self._is_kept(row)}


def _differing(
    reader: RowReader, left: Target, right: Target, between: Callable[..., Iterator[Difference]]
) -> Iterator[tuple[int, Difference | None]]:
    """The number of rows, with each difference; rows of `left` first, then those that only `right` has."""
    for rows in _chunks(reader.rows(left)):
        ours = dict(rows)
        yield len(ours), None
        yield from ((0, each) for each in between(list(ours), ours, reader.rows_of(right, list(ours))))
    for rows in _chunks(reader.rows(right)):
        theirs = dict(rows)
        ours = reader.rows_of(left, list(theirs))
        only = {key: state for key, state in theirs.items() if key not in ours}
        yield len(only), None
        yield from ((0, each) for each in between(list(only), {}, only))


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK_ROWS)):
        yield chunk
