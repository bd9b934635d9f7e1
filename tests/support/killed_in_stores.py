"""An erasure with plaintext columns in PostgreSQL and Elasticsearch, by a process that kills itself at a step.

Steps are between any two questions to a server, among them one before each commit, and one around each document.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headwater.eventlog.erasing.person import erase_person
from headwater.eventlog.personal.master_keys import MasterKeys
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import ClearGeneration, ClearRows
from headwater.projections.stores.elasticsearch import clear_rows as elasticsearch_rows
from headwater.projections.stores.elasticsearch.client import send
from headwater.projections.stores.erasing import ClearErasure
from headwater.projections.stores.postgres.store import PostgresClearRows
from tests.support.killed_erasure import Killed, appending
from tests.support.patience import KEYS_S, patient
from tests.support.waiting import BOUND_S

STORES: Final = ("elasticsearch", "postgres")
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def killed_at(step: int, person: str, settings: StoreSettings, master: str, log: Path) -> int | None:
    """Erase in another process, which is killed at a step: its exit code. step: 0 for none."""
    process = _context.Process(target=_erase, args=(step, person, settings, master, log))
    process.start()
    process.join(BOUND_S)
    return process.exitcode


def steps_in(log: Path) -> int:
    """How many steps the erasure had that was not killed."""
    return int(log.with_suffix(".steps").read_text())


class _Stepping:
    """Rows of a store; each question is a step."""

    def __init__(self, rows: ClearRows, keys: Killed) -> None:
        self.generations, self.note_erased = rows.generations, rows.note_erased
        self._rows, self._keys = rows, keys

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        return self._keys.stepped(self._rows.count)(of, key_ids)

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        return self._keys.stepped(self._rows.empty)(of, key_ids)


class _Erasure(ClearErasure):
    keys: Killed

    def _of_store(self, store: str) -> Iterator[Any]:
        for at in super()._of_store(store):
            self.keys.step()
            yield at._replace(rows=_Stepping(at.rows, self.keys))


def _erase(step: int, person: str, settings: StoreSettings, master: str, log: Path) -> None:
    masters = MasterKeys.from_environment({"HEADWATER_MASTER_KEY": master})
    keys = Killed(settings.postgres, settings.environment, masters, step)
    _step_inside(keys)
    in_clear = _Erasure(settings, lambda: STORES, wait=lambda _: keys.step())
    in_clear.keys = keys
    with patient(KEYS_S):
        erase_person(keys, keys.stepped(appending(log)), person, settings.environment, os.environ, in_clear=in_clear)
    keys.close()
    log.with_suffix(".steps").write_text(str(keys.steps))


def _step_inside(keys: Killed) -> None:
    """Steps before a commit, and around each document. This process does nothing else."""
    transaction = PostgresClearRows._transaction

    @contextmanager
    def stepping(rows: PostgresClearRows) -> Iterator[Any]:
        with transaction(rows) as connection:
            yield connection
            keys.step()

    def sending(*given: Any) -> Sequence[int]:
        return keys.stepped(send)(*given)

    setattr(PostgresClearRows, "_transaction", stepping)  # noqa: B010 - for mypy, as below
    setattr(elasticsearch_rows, "send", sending)  # noqa: B010
    setattr(elasticsearch_rows, "BULK_ROWS", 1)  # noqa: B010
