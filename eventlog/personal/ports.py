"""The port of the store of keys, which a vault of another kind can fulfil."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from headwater.eventlog.errors import UnknownKey

KEYS_VARIABLE: Final = "HEADWATER_KEYS"
NEEDS: Final = (
    "the URL of the PostgreSQL database with the keys of persons, such as postgresql://keys@host/keys, because a field "
    "is declared as Personal"
)

SECRET_BYTES: Final = 64
"""Of a person's key: half of it seals, half of it makes nonces."""


class KeyFacts(NamedTuple):
    """What is known of a key without its secret. erased: when it was destroyed; None if it was not."""

    key_id: str
    created: datetime
    erased: datetime | None


@dataclass(frozen=True, slots=True)
class PersonKey:
    """A living key of a person. secret: SECRET_BYTES bytes.

    key_id: used for no other key; 24 hexadecimal digits in lower case, the first of which are the id of its store.
    earlier: the key of this person that was destroyed last; None if none was.
    """

    key_id: str
    person: str
    secret: bytes = field(repr=False)
    earlier: KeyFacts | None = None


class Erasures(NamedTuple):
    """Keys that were destroyed. number: of the last erasure, 0 if there was none.

    It grows with each, also after the store was restored from a backup: it is at least the time in microseconds.
    """

    number: int
    key_ids: Sequence[str]


class KeyStore(Protocol):
    """Keeps the keys of persons. Every method raises KeysUnavailable if the store does not answer."""

    def key_of(self, person: str) -> PersonKey:
        """The living key of a person; one is made if there is none. All processes get the same one."""

    def key_unless_erased(self, person: str) -> PersonKey | None:
        """Like `key_of`, but None if the person had keys and all are destroyed: then none is made."""

    def find(self, key_ids: Collection[str]) -> Mapping[str, PersonKey | UnknownKey | None]:
        """Keys by id; None for those that were destroyed, also if only the log says so. Without those that the store
        never had. An error in place of a key that cannot be unwrapped."""

    def keys_of(self, person: str) -> Sequence[KeyFacts]:
        """All keys that a person ever had, the oldest first."""

    def erase(self, person: str) -> Sequence[KeyFacts]:
        """Destroy the living key of a person; returns those that were destroyed now, which may be none."""

    def erasures(self, after: int) -> Erasures:
        """The erasures with a higher number than `after`."""

    def adopt(self) -> str:
        """Make this the store of the deployment, whichever it had before, and return its new id. Keys of earlier stores
        that it does not have are lost: their values count as erased."""

    def close(self) -> None:
        """Release connections."""
