"""Columns that a store has in plaintext: their values are opened when a row is written, beside the ciphertexts.

The state of a row stays sealed, so rows are folded, compared and replayed as those of other views. A row remembers the
keys of the values that it shows in clear, by which an erasure finds them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.errors import EventLogError, KeysUnavailable
from headwater.eventlog.personal.installed import install, installed, is_prepared, opened_from
from headwater.eventlog.personal.sealed_text import SealedText, is_sealed
from headwater.projections.errors import KeysAway
from headwater.projections.table.monoids import State
from headwater.projections.view import View

if TYPE_CHECKING:
    from headwater.eventlog.personal.vault import Vault

KEYS: Final = "_persons"
"""The column, or field, with the ids of the keys whose values a row shows in clear."""
_installing: Final = threading.Lock()


class InClear(NamedTuple):
    """What a row has beside its state. values: by column; null if there is none, or its person is erased."""

    values: dict[str, str | None]
    key_ids: list[str]


@dataclass(frozen=True)
class ClearColumns:
    """The columns that a store has in plaintext; unlike a view, it can be pickled to executors.

    environment: whose keys open them.
    """

    names: tuple[str, ...] = ()
    environment: str = ""

    @classmethod
    def of(cls, view: View, store: str, environment: str) -> ClearColumns:
        """Those of a view in the store with this name."""
        declared = view.store(store)
        return cls(() if declared is None else tuple(declared.clear), environment)

    def __bool__(self) -> bool:
        return bool(self.names)

    def of_state(self, state: State) -> InClear:
        """What one row has in plaintext; raises KeysAway."""
        (state_found,) = self.of_states([state])
        return state_found

    def of_states(self, states: Sequence[State]) -> list[InClear]:
        """What rows have in plaintext; their keys are fetched together. Raises KeysAway."""
        texts = [str(text) for state in states for name in self.names if is_sealed(text := state.get(name))]
        if not texts:
            return [InClear({name: state.get(name) for name in self.names}, []) for state in states]
        with keys_answering():
            vault = self._vault()
            vault.fetch(texts)
            return [self._opened(state, vault) for state in states]

    def last_erasure(self) -> int:
        """The number of the last erasure; no process opens values with its key any more. Raises KeysAway."""
        from headwater.eventlog.personal.vault import ALL_KNOWN, LEASE_S  # noqa: PLC0415 - it imports cryptography

        with keys_answering():
            number = self._vault().store.erasures(ALL_KNOWN).number
        time.sleep(LEASE_S if number else 0)
        return number

    def problem(self) -> str:
        """Why values cannot be opened now; empty if they can, or if there are none to open."""
        try:
            if self:
                self._vault().fetch(())
        except EventLogError as error:
            return str(error)
        return ""

    def erased_since(self, number: int) -> Sequence[str]:
        """The ids of the keys that were destroyed after the erasure with this number; raises KeysAway."""
        with keys_answering():
            return erased_since(self._vault(), number)

    def _opened(self, state: State, vault: Vault) -> InClear:
        values, key_ids = dict[str, str | None](), list[str]()
        for name in self.names:
            text = state.get(name)
            if text is None or not is_sealed(text):
                values[name] = text  # of an event from before the field was personal
                continue
            values[name], key_id = _opened(vault, text)
            if key_id and key_id not in key_ids:
                key_ids.append(key_id)
        return InClear(values, key_ids)

    def _vault(self) -> Vault:
        """That of this process; a worker process of a rebuild opens its own from its environment."""
        with _installing:
            if not is_prepared():
                install(opened_from(os.environ, self.environment, LoggedKeys(os.environ), pins=False))
        return installed()


def clear_state(view: View, shown: Mapping[str, str | None], expiring: Sequence[Any]) -> State:
    """What a row shows in clear, with the value of the column by which it expires, for a comparison; empty if it shows
    nothing, as the row of an erased person or of one that was deleted."""
    state_found: State = {name: value for name, value in shown.items() if value is not None}
    if state_found and view.expiry is not None:
        state_found[view.expiry.column] = expiring[0]
    return state_found


NO_COLUMNS: Final = ClearColumns()
NOTHING: Final = InClear({}, [])
"""What a row of a view without such columns has."""


def erased_since(vault: Vault, number: int) -> Sequence[str]:
    """The ids of the keys that were destroyed after an erasure; of all, if the store of keys is an earlier backup."""
    last, key_ids = vault.store.erasures(number)
    return key_ids if last >= number else vault.store.erasures(0).key_ids


@contextmanager
def keys_answering() -> Iterator[None]:
    """Raises KeysAway for KeysUnavailable."""
    try:
        yield
    except KeysUnavailable as error:
        raise KeysAway(error.reason) from error


def _opened(vault: Vault, text: str) -> tuple[str | None, str | None]:
    """The value of a ciphertext, and the id of its key; two nulls if it is erased, or cannot be opened."""
    from headwater.eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

    try:
        plaintext = vault.open(text)
    except ValueError:  # the API shows that it is unreadable
        return None, None
    if plaintext is ERASED or plaintext is None:
        return None, None
    return plaintext if isinstance(plaintext, str) else orjson.dumps(plaintext).decode(), SealedText.parse(text).key_id


def key_of(text: Any) -> str | None:
    """The id of the key of a ciphertext; None if it is none."""
    try:
        return SealedText.parse(text).key_id if is_sealed(text) else None
    except ValueError:
        return None
