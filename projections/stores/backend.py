"""What a store brings, beside its declaration: its package has it as `BACKEND` in `backend.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from projections.settings import StoreSettings
from projections.stores.row_reader import Compared, RowReader
from projections.stores.store import ViewStore
from projections.view import View


@dataclass(frozen=True)
class Backend:
    """How processes use a store; each function connects at the first use of what it returns.

    store: writes generations of views. reader: reads their rows. beside_rows: what else of a view can be compared, by
    its name in the output of `replay diff`. grants: what `headwater grants` prints for its server; None if it has none
    of its own.
    """

    store: Callable[[StoreSettings], ViewStore]
    reader: Callable[[StoreSettings], RowReader]
    beside_rows: Callable[[View, StoreSettings], Mapping[str, Compared]] = lambda _view, _settings: {}
    grants: Callable[[StoreSettings], str] | None = None
