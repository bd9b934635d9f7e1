"""The store of keys in memory: for tests, and as the reference implementation."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.identity import KeyRecords, StoreIdentity, new_key_id, new_store_id
from headwater.eventlog.personal.ports import SECRET_BYTES, Erasures, KeyFacts, PersonKey


class MemoryKeys:
    """See KeyStore. is_away: it does not answer, as a server that is down. records: see StoreIdentity."""

    def __init__(self, records: KeyRecords | None = None) -> None:
        self.is_away = False
        self.store_id: str | None = None
        self._identity, self._is_accepted = StoreIdentity(records), False
        self._keys: dict[str, PersonKey | None] = {}
        self._facts: dict[str, list[KeyFacts]] = {}
        self._erased: dict[int, str] = {}
        self._lock = threading.Lock()

    def key_of(self, person: str) -> PersonKey:
        self._check()
        with self._lock:
            return self._living(person) or self._added(person)

    def key_unless_erased(self, person: str) -> PersonKey | None:
        self._check()
        with self._lock:
            return self._living(person) if self._facts.get(person) else self._added(person)

    def find(self, key_ids: Collection[str]) -> Mapping[str, PersonKey | None]:
        self._check()
        with self._lock:
            keys = {key_id: self._keys[key_id] for key_id in key_ids if key_id in self._keys}
            return {**keys, **self._identity.destroyed([id_ for id_ in key_ids if id_ not in keys])}

    def keys_of(self, person: str) -> Sequence[KeyFacts]:
        self._check()
        with self._lock:
            return tuple(self._facts.get(person, ()))

    def erase(self, person: str) -> Sequence[KeyFacts]:
        self._check()
        with self._lock:
            known_facts, now = self._facts.get(person, []), datetime.now(UTC)
            erased = [facts._replace(erased=now) for facts in known_facts if facts.erased is None]
            self._facts[person] = [*(facts for facts in known_facts if facts.erased is not None), *erased]
            for facts in erased:
                self._keys[facts.key_id] = None
                number = max(time.time_ns() // 1_000, max(self._erased, default=0) + 1)
                self._erased[number] = facts.key_id
            return erased

    def erasures(self, after: int) -> Erasures:
        self._check()
        with self._lock:
            later = [key_id for number, key_id in self._erased.items() if number > after]
            return Erasures(max(self._erased, default=0), tuple(later))

    def adopt(self) -> str:
        self.store_id = new_store_id()
        self._identity.adopt(self.store_id)
        return self.store_id

    def close(self) -> None:
        pass

    def _living(self, person: str) -> PersonKey | None:
        keys = (self._keys[facts.key_id] for facts in self._facts.get(person, ()))
        return next((record for record in keys if record is not None), None)

    def _added(self, person: str) -> PersonKey:
        erased = [facts for facts in self._facts.get(person, ()) if facts.erased is not None]
        key = PersonKey(
            new_key_id(self.store_id or ""), person, secrets.token_bytes(SECRET_BYTES), erased[-1] if erased else None
        )
        self._keys[key.key_id] = key
        self._facts.setdefault(person, []).append(KeyFacts(key.key_id, datetime.now(UTC), None))
        return key

    def _check(self) -> None:
        if self.is_away:
            raise KeysUnavailable("it is away")
        if not self._is_accepted:
            self.store_id = self._identity.accept(self.store_id, new_store_id)
            self._is_accepted = True
