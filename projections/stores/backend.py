"""What a store brings, beside its declaration: its package has it as `BACKEND` in `backend.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.rows import ClearRows, Compared, RowReader, SingleRows
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.view import View


@dataclass(frozen=True)
class Backend:
    """How processes use a store; each function connects at the first use of what it returns.

    store: writes generations of views. reader: reads their rows. beside_rows: what else can be compared of a view, by
    its name in the output of `replay verify`. missing: what a view declares that a generation lacks
    beside its rows, such as indexes. add_missing: adds that while the generation is read and written, and returns it
    (see `DeclaredStore.of_rows`). added_per_s: the rows of a generation that one of these goes over per second, about;
    None: it goes over none. grants: what `headwater grants` prints for its server; None if it has none
    of its own. single_rows: reads, replaces and removes rows of table views; None if rows there can neither be replaced
    nor expire. find_expired: the keys of at most so many rows, also deleted ones, that expired up to this day of their
    column; None if another store must find them. clear_rows: finds and empties columns in clear; None if it has none.
    """

    store: Callable[[StoreSettings], ViewStore]
    reader: Callable[[StoreSettings], RowReader]
    beside_rows: Callable[[View, StoreSettings], Mapping[str, Compared]] = lambda *_: {}
    missing: Callable[[StoreSettings, Target], Sequence[str]] = lambda _settings, _target: ()
    add_missing: Callable[[StoreSettings, Target], Sequence[str]] = lambda _settings, _target: ()
    added_per_s: float | None = None
    grants: Callable[[StoreSettings], str] | None = None
    single_rows: Callable[[StoreSettings], SingleRows] | None = None
    find_expired: Callable[[StoreSettings, Target, date, int], list[str]] | None = None
    clear_rows: Callable[[StoreSettings], ClearRows] | None = None
