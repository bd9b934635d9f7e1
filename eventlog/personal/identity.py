"""Which store of keys a deployment has, as its log notes it: another one is an outage, and never an erasure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

from headwater.eventlog.errors import WrongKeyStore

STORE_DIGITS: Final = 8
"""Of the id of a store, with which the ids of its keys begin."""
READ_AGAIN_S: Final = 10.0
"""How long what the log says is used for keys that the store does not have."""


class KeyHistory(NamedTuple):
    """What the log says. stores: the ids of all stores that the deployment has had, the current one last. destroyed:
    the ids of keys that were destroyed by erasures."""

    stores: tuple[str, ...] = ()
    destroyed: frozenset[str] = frozenset()

    def has_destroyed(self, key_id: str) -> bool:
        """Whether nobody can have this key any more: it was destroyed, or was lost with a store that was given up."""
        return key_id in self.destroyed or key_id[:STORE_DIGITS] in self.stores[:-1]


class KeyRecords(Protocol):
    """The log, as far as it is about keys; its methods raise KeysUnavailable if it does not answer."""

    def read(self) -> KeyHistory:
        """What it says now."""

    def note_store(self, store: str, replaces: str) -> None:
        """Note the store of a deployment. replaces: the one before it; empty for the first: then a record that is there
        already counts."""


def new_store_id() -> str:
    """A random id."""
    return secrets.token_hex(STORE_DIGITS // 2)


def new_key_id(store: str) -> str:
    """The id of a new key of a store: 24 hexadecimal digits, which need no quotes anywhere."""
    return store + secrets.token_hex(8)


class StoreIdentity:
    """Compares a store with what the log says. records: None: there is no log. pins: whether `accept` compares."""

    def __init__(
        self, records: KeyRecords | None, *, pins: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._records, self._pins, self._clock = records, pins, clock
        self._history, self._read_at = KeyHistory(), float("-inf")

    def accept(self, found: str | None, create: Callable[[], str]) -> str:
        """The id of the store; raises WrongKeyStore if the deployment has another one.

        found: its id, None if there are no keys yet. create: makes an empty store there, and returns its id.
        """
        if self._records is None or not self._pins:
            return found or create()
        noted = self._records.read().stores
        if noted and found != noted[-1]:
            has = f"the store {found}" if found else "no keys"
            raise WrongKeyStore(
                f"HEADWATER_KEYS has {has}, and the log of the deployment notes the store {noted[-1]}: correct "
                "HEADWATER_KEYS or HEADWATER_ENVIRONMENT, or restore a later backup; if keys are lost for good, run "
                "headwater master-key adopt"
            )
        store = found or create()
        if not noted:
            self._records.note_store(store, "")
            return self.accept(store, create)  # another process may have noted another store before
        return store

    def destroyed(self, key_ids: Collection[str]) -> Mapping[str, None]:
        """Those of these keys, which the store does not have, that the log says are destroyed."""
        if not key_ids or self._records is None:
            return {}
        now = self._clock()
        if now - self._read_at > READ_AGAIN_S and not all(map(self._history.has_destroyed, key_ids)):
            self._history, self._read_at = self._records.read(), now
        return {key_id: None for key_id in key_ids if self._history.has_destroyed(key_id)}

    def adopt(self, store: str) -> None:
        """Note that the deployment has this store from now on; keys of earlier ones that it lacks are lost."""
        if self._records is not None:
            noted = self._records.read().stores
            self._records.note_store(store, noted[-1] if noted else "")
            self._read_at = float("-inf")
