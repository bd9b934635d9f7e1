"""Seals and opens values with the keys of their persons, which it caches for as long as it is sure that they live.

They are sealed with AES-GCM (NIST SP 800-38D, by `cryptography`).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeGuard, TypeVar

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.eventlog.errors import KeysUnavailable, UnknownKey, ValueWithheld
from headwater.eventlog.personal.ports import SECRET_BYTES, KeyFacts, KeyStore, PersonKey
from headwater.eventlog.personal.sealed_text import SealedText, is_withheld, left_text, withheld

logger = logging.getLogger(__name__)

LEASE_S: Final = 0.4
"""How long cached keys are used without asking which were destroyed. A thread asks as often, so that no process uses or
keeps a destroyed key for a second."""
MARGIN_S: Final = 0.05
"""Of the lease that must be left for `can_seal`, so that sealing does not wait."""
MAX_KEYS: Final = 50_000
"""In the cache of a process; a key takes about a kilobyte."""
NONCE_BYTES: Final = 12

Answer = TypeVar("Answer")

ALL_KNOWN: Final = 2**62
"""A number that no erasure has: the first look needs no earlier ones, because nothing is cached."""


class Erased:
    """What `open` returns for a value whose key was destroyed: ERASED."""

    def __repr__(self) -> str:
        return "ERASED"


ERASED: Final = Erased()


class Sealer:
    """Seals and opens the values of one key.

    The nonce is a digest of the value and its place under a second key. So a message that is sent again has the same
    text, and the same fingerprint; and equal values of one person have equal texts at the same place only. No nonce is
    used for two different values: 96 bits of HMAC-SHA-256 would have to be the same.
    """

    def __init__(self, key: PersonKey) -> None:
        half = SECRET_BYTES // 2
        self.key_id, self.person, self.earlier = key.key_id, key.person, key.earlier
        self._cipher, self._nonces = AESGCM(key.secret[:half]), key.secret[half:]

    def seal(self, record_type: str, field: str, value: Any) -> str:
        """The sealed text of a JSON value; it is bound to the person, the type of its record and its field."""
        about, plain = self._about(record_type, field), orjson.dumps(value)
        nonce = hmac.digest(self._nonces, hashlib.sha256(about).digest() + plain, "sha256")[:NONCE_BYTES]
        sealed = nonce + self._cipher.encrypt(nonce, plain, about)
        return str(SealedText(self.key_id, record_type, field, sealed))

    def open(self, text: SealedText) -> Any:
        """The value of a text that was sealed with this key; raises ValueError if the text was changed."""
        nonce, sealed = text.sealed[:NONCE_BYTES], text.sealed[NONCE_BYTES:]
        try:
            plain = self._cipher.decrypt(nonce, sealed, self._about(text.record_type, text.field))
        except (InvalidTag, ValueError) as error:
            raise ValueError(f'an encrypted value of "{text.field}" in "{text.record_type}" was changed') from error
        return orjson.loads(plain)

    def _about(self, record_type: str, field: str) -> bytes:
        return orjson.dumps([self.person, record_type, field])


class Vault:
    """Seals and opens values; threads may share it.

    A thread looks for erasures while there is anything in the cache. If the store of keys does not answer it, the cache
    is emptied: then nothing can be sealed or opened until the store answers again.
    """

    def __init__(self, store: KeyStore, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.erasures = 0
        """How many times keys were forgotten, as those that were destroyed: what was opened must be opened anew."""
        self._max_keys, self._clock = max_keys, clock
        self._by_person: dict[str, str] = {}
        """The id of the living key in the cache, by person."""
        self._sealers: OrderedDict[str, Sealer | None] = OrderedDict()
        """By key id; None for a destroyed key. The last used are at the end."""
        self._destroyed: OrderedDict[str, KeyFacts] = OrderedDict()
        """A destroyed key of a person, which stays destroyed: many values may come that were reported before."""
        self._number = -1
        """Of the last erasure that is known; -1 before the first look."""
        self._looked_at = float("-inf")
        self._hung: tuple[float, str] = (float("-inf"), "")
        """Until when the store is not asked, because it did not answer for long, and what its last error said."""
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._looking: threading.Thread | None = None

    def seal(
        self,
        person: str,
        record_type: str,
        field: str,
        value: Any,
        *,
        revives: bool = True,
        since: datetime | None = None,
    ) -> str:
        """The sealed text of a JSON value of a person; raises KeysUnavailable.

        revives: whether a person who was erased gets a new key; if not, the text is that of `withheld`. since: when the
        value was reported; if the person was erased later, nothing is sealed, and the text is that of `left_text`.
        """
        with self._lock:
            self._look()
            if since is not None and _is_erased_after(last := self._destroyed.get(person), since):
                return left_text(last.key_id, record_type, field)
            known = self._by_person.get(person)
            sealer = self._sealers.get(known) if known is not None else None
            if sealer is None:
                key = self._asked(lambda: self._key_for(person, revives, since))
                if key is None:
                    return withheld(record_type, field)
                if isinstance(key, KeyFacts):
                    return left_text(key.key_id, record_type, field)
                sealer = Sealer(key)
                self._by_person[person] = sealer.key_id
            self._keep(sealer.key_id, sealer)
        if since is not None and _is_erased_after(sealer.earlier, since):
            return left_text(sealer.earlier.key_id, record_type, field)
        return sealer.seal(record_type, field, value)

    def can_seal(self, persons: Iterable[str]) -> bool:
        """Whether `seal` would wait for nothing, for values of these persons. Does not wait, either."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            is_fresh = self._clock() - self._looked_at < LEASE_S - MARGIN_S
            return is_fresh and all(self._by_person.get(person) in self._sealers for person in persons)
        finally:
            self._lock.release()

    def open(self, text: str) -> Any:
        """The value of a ciphertext, or ERASED; raises KeysUnavailable, also as UnknownKey, or ValueError if it is
        damaged.

        Raises ValueWithheld if nobody has the value.
        """
        if is_withheld(text):
            raise ValueWithheld
        parsed = SealedText.parse(text)
        with self._lock:
            self._look()
            if parsed.key_id not in self._sealers and (unusable := self._fetch((parsed.key_id,))):
                raise unusable[parsed.key_id]
            sealer = self._sealers[parsed.key_id]
            self._sealers.move_to_end(parsed.key_id)
        return ERASED if sealer is None else sealer.open(parsed)

    def fetch(self, texts: Iterable[str]) -> None:
        """Fetch the keys of these ciphertexts at once, so that opening them needs one question and not one each."""
        wanted = set()
        for text in texts:
            try:
                wanted.add(SealedText.parse(text).key_id)
            except ValueError:  # opening it says so
                continue
        with self._lock:
            self._look()
            if missing := [key_id for key_id in wanted if key_id not in self._sealers][: self._max_keys]:
                self._fetch(missing)

    def is_erased(self, person: str) -> bool:
        """Whether a person has had keys, and has none now; raises KeysUnavailable."""
        with self._lock:
            self._look()
            if person in self._by_person:
                return False
        facts = self.store.keys_of(person)
        return bool(facts) and all(fact.erased is not None for fact in facts)

    def last_erasure(self) -> int:
        """The number of the last erasure, as of a moment ago: it grows with each; raises KeysUnavailable."""
        with self._lock:
            self._look()
            return self._number

    def close(self) -> None:
        """Forget all keys, and close the store."""
        self._closed.set()
        if self._looking is not None:
            self._looking.join()
        with self._lock:
            self._forget_all()
        self.store.close()

    def _key_for(self, person: str, revives: bool, since: datetime | None) -> PersonKey | KeyFacts | None:
        """The living key of a person. If the person was erased, and gets no new one: the key that was destroyed last,
        if that was after `since`, or None."""
        if revives and since is None:
            return self.store.key_of(person)
        if (key := self.store.key_unless_erased(person)) is not None:
            return key
        if since is not None:
            last = max(self.store.keys_of(person), key=lambda key: key.erased or key.created)
            if _is_erased_after(last, since):
                self._destroyed[person] = last
                if len(self._destroyed) > self._max_keys:
                    self._destroyed.popitem(last=False)
                return last
        return self.store.key_of(person) if revives else None

    def _fetch(self, key_ids: Iterable[str]) -> Mapping[str, UnknownKey]:
        """Fetch keys into the cache; returns errors for those that the store does not have, or that nobody can use."""
        wanted = list(key_ids)
        keys, unusable = self._asked(lambda: self.store.find(wanted)), dict[str, UnknownKey]()
        for key_id in wanted:
            key = keys.get(key_id, UnknownKey(key_id))
            if isinstance(key, UnknownKey):
                unusable[key_id] = key
                continue
            if key is not None:
                self._by_person.setdefault(key.person, key_id)
            self._keep(key_id, None if key is None else Sealer(key))
        return unusable

    def _keep(self, key_id: str, sealer: Sealer | None) -> None:
        self._sealers[key_id] = sealer
        self._sealers.move_to_end(key_id)
        while len(self._sealers) > self._max_keys:
            _, oldest = self._sealers.popitem(last=False)
            if oldest is not None:
                self._by_person.pop(oldest.person, None)
        if self._looking is None and not self._closed.is_set():
            self._looking = threading.Thread(target=self._keep_looking, name="erasures", daemon=True)
            self._looking.start()

    def _look(self) -> None:
        """Forget keys that were destroyed, unless that was just done; raises KeysUnavailable."""
        now = self._clock()
        if now - self._looked_at < LEASE_S:
            return
        after = ALL_KNOWN if self._number < 0 else self._number
        try:
            number, key_ids = self._asked(lambda: self.store.erasures(after))
        except KeysUnavailable:
            self._forget_all()
            raise
        if number < self._number:
            logger.error(
                "the store of keys was restored from an earlier backup, so erased persons may be readable again: run "
                "headwater erase --restored"
            )
            self._forget_all()
        elif self._number >= 0 and key_ids:
            self._forget(key_ids)
        self._number, self._looked_at = number, now

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        """The answer of the store. If it hangs, all who wait for the lock get an error at once, and not one by one."""
        began, (until, reason) = self._clock(), self._hung
        if began < until:
            raise KeysUnavailable(reason)
        try:
            return question()
        except KeysUnavailable as error:
            ended = self._clock()
            if ended - began > LEASE_S:
                self._hung = ended + LEASE_S, error.reason
            raise

    def _forget(self, key_ids: Iterable[str]) -> None:
        self.erasures += 1
        for key_id in key_ids:
            sealer = self._sealers.pop(key_id, None)
            if sealer is not None and self._by_person.get(sealer.person) == key_id:
                del self._by_person[sealer.person]

    def _forget_all(self) -> None:
        self.erasures += 1
        self._sealers.clear()
        self._by_person.clear()
        self._destroyed.clear()
        self._looked_at = float("-inf")

    def _keep_looking(self) -> None:
        while not self._closed.wait(LEASE_S):
            with self._lock:
                if self._sealers:
                    try:
                        self._look()
                    except KeysUnavailable:  # the next use says so
                        continue


def _is_erased_after(key: KeyFacts | None, time: datetime) -> TypeGuard[KeyFacts]:
    """Whether this key was destroyed after a time."""
    return key is not None and key.erased is not None and time < key.erased
