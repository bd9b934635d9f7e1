"""What a store brings, beside its declaration: its rows, and how they are read, replaced and removed one at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, Protocol

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.store import Ledger, Target, ViewStore
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Place
from headwater.projections.view import View

Rows = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Size:
    """The size of a generation, as the store estimates it. rows: approximately; None: the store has no count."""

    rows: int | None
    size_bytes: int | None


class RowReader(Protocol):
    """Reads the state of rows, including deleted ones; empty fields are left out. Every call connects again.

    Raises StoreUnavailable, and GenerationMissing if the generation is not in the store.
    """

    def rows(self, target: Target) -> Rows:
        """Every row, in any order, each as it is at some time after the call.

        Valkey may give one twice: its SCAN does while tables grow, and a set of all keys would take too much memory.
        """

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        """The current rows of these keys; missing ones are left out."""

    def size(self, target: Target) -> Size:
        """The size without reading the rows; of the view, only the name is used."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as a store has it.

    state: None if there is no row. applied: by source, the place up to which the row has every patch that its ledger
    has passed, and none after it. version: what `replace` compares.
    """

    state: State | None
    applied: Mapping[str, Place]
    version: Any = None

    def has(self, source: str, place: Place) -> bool:
        """Whether the row has what came from this place."""
        reached = self.applied.get(source)
        return reached is not None and place <= reached

    def offset(self, source: str) -> int:
        """The first offset of a source of which the row may lack something."""
        reached = self.applied.get(source)
        return 0 if reached is None else reached.offset


class SingleRows(Protocol):
    """Replaces and removes rows of table views, while loaders write others. Every call connects again.

    Raises StoreUnavailable, and GenerationMissing if the generation is not in the store.
    """

    def read(self, target: Target, key: str) -> StoredRow:
        """The row with this key."""

    def as_read(self, state: State) -> State:
        """A folded state in the form in which `read` returns it once it is stored."""

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        """Write `state` in place of the row that was read (None: remove the row).

        Returns False, and changes nothing, if a patch has changed the row since, or a store lost what it had: then read
        it again. Raises Unloadable if the store cannot hold a value.
        """

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        """Remove rows that expired for good (`Expiry.is_final`); returns how many there were.

        A patch that comes later makes a part of such a row anew, which nobody sees, and which is found again.
        """

    def find_expired(self, target: Target, last_day: date, limit: int) -> list[str]:
        """The keys of at most so many rows, also deleted ones, that expired up to this day of their column.

        Only of stores that find rows (`DeclaredStore.finds`).
        """


class Compared(NamedTuple):
    """What can be compared of a store. row_of: the key of the row that a key of the reader is about."""

    reader: RowReader
    row_of: Callable[[str], str] = str


def clear_comparison(
    name: str, reader: Callable[[StoreSettings], RowReader], view: View, settings: StoreSettings
) -> Mapping[str, Compared]:
    """What can be compared of a view's plaintext columns in the store with this name."""
    declared = view.store(name)
    return {f"{name} in clear": Compared(reader(settings))} if declared is not None and declared.clear else {}


class ClearGeneration(NamedTuple):
    """A generation with plaintext columns. erased: the number of the last erasure whose keys no row of it shows."""

    view: str
    generation: int
    columns: tuple[str, ...]
    erased: int

    @property
    def id(self) -> tuple[str, int]:
        """The name of its view, and its number."""
        return self.view, self.generation


class ClearRows(Protocol):
    """Finds and empties plaintext columns, in every generation that a store has; every call connects.

    It asks the store which generations have such columns, not the code: also those that a rebuild is making, that are
    kept for a rollback, or whose view is no longer declared. Raises StoreUnavailable.
    """

    def generations(self) -> Sequence[ClearGeneration]:
        """Those that have such columns, whether they are live, being built, or kept."""

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        """How many rows show values of these keys."""

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        """Replace these values by null, while rows are read and written; returns how many rows had any.

        The keys must be destroyed, and forgotten by every process: then nobody writes a value that was found before.
        """

    def note_erased(self, of: ClearGeneration, number: int) -> None:
        """Record that no row shows a value of the keys that were destroyed up to the erasure with this number."""


def without_empty(state: State) -> State:
    """`state` without nulls and empty lists: a list that events emptied equals one that no event changed."""
    return {name: value for name, value in state.items() if value is not None and value not in ([], {})}


def applied_to(ledger: Ledger, guard: Mapping[str, Place]) -> dict[str, Place]:
    """What a row has that is written before its ledger: the ledger was read first."""
    applied = dict(ledger.applied)
    for source, place in guard.items():
        applied[source] = max(place, applied.get(source, place))
    return applied


@dataclass(frozen=True)
class Backend:
    """How processes use a store; each function connects at the first use of what it returns.

    store: writes generations of views. reader: reads their rows. beside_rows: what else can be compared of a view, by
    its name in the output of `replay verify`. missing: what a view declares that a generation lacks
    beside its rows, such as indexes. add_missing: adds that while the generation is read and written, and returns it
    (see `DeclaredStore.of_rows`). added_per_s: the rows of a generation that one of these goes over per second, about;
    None: it goes over none. grants: what `headwater grants` prints for its server; None if it has none
    of its own. single_rows: reads, replaces and removes rows of table views; None if rows there can neither be replaced
    nor expire. clear_rows: finds and empties plaintext columns; None if it has none.
    """

    store: Callable[[StoreSettings], ViewStore]
    reader: Callable[[StoreSettings], RowReader]
    beside_rows: Callable[[View, StoreSettings], Mapping[str, Compared]] = lambda *_: {}
    missing: Callable[[StoreSettings, Target], Sequence[str]] = lambda _settings, _target: ()
    add_missing: Callable[[StoreSettings, Target], Sequence[str]] = lambda _settings, _target: ()
    added_per_s: float | None = None
    grants: Callable[[StoreSettings], str] | None = None
    single_rows: Callable[[StoreSettings], SingleRows] | None = None
    clear_rows: Callable[[StoreSettings], ClearRows] | None = None
