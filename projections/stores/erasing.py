"""Takes the values of erased persons out of the columns that stores have in plaintext."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.eventlog.erasing.person import FORGOTTEN_S, RowsFound
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.personal.ports import KeyStore
from headwater.projections.errors import ProjectionError
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import ClearGeneration, ClearRows
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.open import backend
from headwater.projections.view import View

log = logging.getLogger(__name__)

SETTLED_S: Final = 60.0
"""After which what was erased is looked for once more: no request of a loader to Elasticsearch takes so long."""


def has_clear_columns(views: Iterable[View]) -> bool:
    """Whether any view declares a plaintext column, so that its loaders open values."""
    return any(store.clear for view in views for store in view.stores)


def clear_stores(stores: Iterable[str]) -> list[str]:
    """Those of these stores that may have plaintext columns."""
    return sorted({name for name in stores if name in STORES and backend(name).clear_rows is not None})


class _At(NamedTuple):
    """A generation in a store."""

    store: str
    rows: ClearRows
    of: ClearGeneration


@dataclass
class ClearErasure:
    """The plaintext columns of a deployment, for erasures.

    stores: gives those that have any generation, as the registry knows them: also kept ones, of a version of a view
    with other stores, or of a view that is no longer declared.
    """

    settings: StoreSettings
    stores: Callable[[], Collection[str]]
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    _looked: dict[tuple[str, str, int], _Sweep] = field(default_factory=dict)

    def count(self, key_ids: Collection[str]) -> list[RowsFound]:
        """The rows that show values of these keys; of a store that does not answer, why."""
        return self._each(lambda at: at.rows.count(at.of, key_ids) if key_ids else 0)

    def empty(self, key_ids: Collection[str]) -> list[RowsFound]:
        """Take the values of these destroyed keys out of all rows; of a store that does not answer, why it is left."""
        if key_ids and self.count(()):
            self.wait(FORGOTTEN_S)
        return self._each(lambda at: at.rows.empty(at.of, key_ids) if key_ids else 0)

    def sweep(self, keys: KeyStore) -> int:
        """Take out what erasures have left, because they were interrupted, or a store was unavailable or was restored.

        Returns the number of rows. Errors of stores and of the store of keys are logged; the next call tries again.
        """
        emptied = 0
        try:
            stores = clear_stores(self.stores())
        except ProjectionError as error:
            log.warning("plaintext columns are checked again: %s", error)
            return 0
        for store in stores:
            try:
                for at in self._of_store(store):
                    emptied += self._sweep(keys, at)
            except (ProjectionError, EventLogError) as error:
                log.warning("plaintext columns in %s are checked again: %s", store, error)
            except Exception:
                log.exception("plaintext columns in %s are checked again", store)
        return emptied

    def _sweep(self, keys: KeyStore, at: _At) -> int:
        number, key_ids = keys.erasures(at.of.erased)
        if number == at.of.erased:
            return 0
        if number < at.of.erased:  # the store of keys was restored from an earlier backup
            number, key_ids = keys.erasures(0)
        sweep = self._looked.setdefault((at.store, *at.of.id), _Sweep())
        now, emptied = self.clock(), 0
        is_settled = sweep.since is not None and now - sweep.since >= SETTLED_S
        if number != sweep.last or is_settled:
            self.wait(FORGOTTEN_S)
            emptied = at.rows.empty(at.of, key_ids)
            if emptied:
                log.info("took values of erased persons out of %d rows of %s in %s", emptied, at.of.view, at.store)
        if is_settled:
            at.rows.note_erased(at.of, sweep.settling)
            sweep.since = None if number == sweep.settling else now
            sweep.settling = number
        elif sweep.since is None:
            sweep.since, sweep.settling = now, number
        sweep.last = number
        return emptied

    def _each(self, asked: Callable[[_At], int]) -> list[RowsFound]:
        results = []
        try:
            stores = clear_stores(self.stores())
        except ProjectionError as error:
            return [RowsFound("each store", problem=str(error))]
        for store in stores:
            try:
                results += [RowsFound(store, *at.of.id, asked(at)) for at in self._of_store(store)]
            except ProjectionError as error:
                results.append(RowsFound(store, problem=str(error)))
        return results

    def _of_store(self, store: str) -> Iterator[_At]:
        clear_rows = backend(store).clear_rows
        if clear_rows is not None:
            rows = clear_rows(self.settings)
            for of in rows.generations():
                yield _At(store, rows, of)


@dataclass
class _Sweep:
    """How far a generation was looked at: the last erasure, and the one that is noted once it is settled.

    since: when that was looked at; None: there is none.
    """

    last: int = -1
    settling: int = -1
    since: float | None = None
