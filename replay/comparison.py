"""Compares two generations of a view row by row in one store, also while both apply patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final

from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.stores.backend import RowReader, Size
from headwater.projections.stores.store import Target
from headwater.projections.table.expiry import Expiry
from headwater.projections.table.layout import DELETED
from headwater.projections.table.layout import difference as row_difference
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import GROUP, MARK

SAMPLE: Final = 10
ROUNDS: Final = 10
"""How often differing rows are read again while patches may still change them."""


@dataclass(frozen=True)
class Difference:
    """A row that differs. fields: the stored values of the differing fields in each; None: the row is missing."""

    key: str
    left: State | None
    right: State | None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"key": self.key, "left": self.left, "right": self.right}


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

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**vars(self), "sample": [each.to_json() for each in self.sample]}

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
    result, ignored = Comparison(store), _ignored(left)
    counts = left.view.layout.retraction is not None
    if ignored or counts:
        reader = _Present(reader)
    if left.view.expiry is not None and left.view.expiry.is_final:
        reader = _Unexpired(reader, left.view.expiry, datetime.now(UTC))
    moving = in_motion()
    differing = dict[str, Difference]()
    between = partial(_between, ignored=ignored, forgets_deleted=bool(left.view.tables))
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


class _Present(RowReader):
    """Rows that are not deleted: of a stream view, a generation may have a row that was deleted, or never had it.

    So it is of a view that counts rows. Its contributions are there while they are in a group.
    """

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader

    def rows(self, target: Target) -> Iterator[tuple[str, State]]:
        return ((key, row) for key, row in self._reader.rows(target) if _is_there(row))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        return {key: row for key, row in self._reader.rows_of(target, keys).items() if _is_there(row)}

    def size(self, target: Target) -> Size:
        return self._reader.size(target)


class _Unexpired(RowReader):
    """Rows that had not expired for good at a time: of others, a generation may have lost any."""

    def __init__(self, reader: RowReader, expiry: Expiry, now: datetime) -> None:
        self._reader, self._expiry, self._now = reader, expiry, now

    def rows(self, target: Target) -> Iterator[tuple[str, State]]:
        return ((key, row) for key, row in self._reader.rows(target) if not self._has_expired(row))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        found = self._reader.rows_of(target, keys)
        return {key: row for key, row in found.items() if not self._has_expired(row)}

    def size(self, target: Target) -> Size:
        return self._reader.size(target)

    def _has_expired(self, row: State) -> bool:
        return self._expiry.has_come(row.get(self._expiry.column), self._now)


def _is_there(row: State) -> bool:
    return not row.get(DELETED) or row.get(GROUP) is not None


def _ignored(target: Target) -> frozenset[str]:
    """State fields in which equal rows differ: each generation of a stream view counts its own batches."""
    if not target.view.has_own_query:
        return frozenset()
    return frozenset(field.name for field in target.view.layout.fields if field.ordering)


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


def _between(
    keys: Sequence[str],
    left: Mapping[str, State],
    right: Mapping[str, State],
    ignored: Set[str],
    *,
    forgets_deleted: bool,
) -> Iterator[Difference]:
    for key in keys:
        differing = row_difference(left.get(key), right.get(key), ignored, forgets_deleted=forgets_deleted)
        if differing is not None:
            yield Difference(key, *differing)


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK_ROWS)):
        yield chunk
