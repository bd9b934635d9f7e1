"""Erases a person: destroys the key, and records who did it, what was found, and what is left until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from eventlog.audit.record import AuditRecord
from eventlog.errors import EventLogError, NotRecorded
from eventlog.personal.ports import KeyFacts, KeyStore

VERB: Final = "erase"
MAX_PERSON_CHARACTERS: Final = 1_000
FORGOTTEN_S: Final = 1
"""Within which every process forgets a destroyed key."""
REMAINS: Final = (
    f"Processes forget the key within {FORGOTTEN_S} s; until then a command may still be sealed with it, and is erased "
    "with it.",
    "The wrapped key is in old row versions of the store of keys until a vacuum, in its WAL until that is recycled, "
    "and in its backups until you delete them. A copy of it is of no use without the master key.",
    "Sealed texts stay in topics, rows, snapshots and backups, and nobody can open them.",
)
"""What is left after an erasure, and until when."""


class PersonErasure(NamedTuple):
    """What an erasure found and did. destroyed: now; earlier: keys that were destroyed before. is_dry: nothing yet.

    events: how many have values of the person, or are of streams with this id; None: nobody has counted them.
    """

    person: str
    destroyed: Sequence[KeyFacts]
    earlier: Sequence[KeyFacts]
    is_dry: bool
    events: int | None = None

    @property
    def summary(self) -> str:
        """What happened, in a sentence without personal values."""
        if not self.destroyed and not self.earlier:
            return "no key: nothing personal of this person was ever sealed"
        would = "would be destroyed" if self.is_dry else "destroyed"
        keys = ", ".join(each.key_id for each in self.destroyed) or "none"
        text = f"keys {would}: {keys}"
        if self.earlier:
            last = max(each.erased for each in self.earlier if each.erased is not None)
            text += f"; destroyed before: {len(self.earlier)}, the last at {_time(last)}"
        return text if self.events is None else f"{text}; events about the person: {self.events}"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "person": self.person,
            "dry_run": self.is_dry,
            "destroyed": [_facts(each) for each in self.destroyed],
            "earlier": [_facts(each) for each in self.earlier],
            "events": self.events,
            "remains": list(REMAINS),
        }


def planned(keys: KeyStore, person: str, events: int | None = None) -> PersonErasure:
    """What an erasure would do; events: see PersonErasure. Raises KeysUnavailable."""
    facts = keys.keys_of(person)
    living = [each for each in facts if each.erased is None]
    return PersonErasure(person, living, [each for each in facts if each.erased is not None], True, events)


def erase_person(
    keys: KeyStore,
    append: Callable[[AuditRecord], None],
    person: str,
    environment: str,
    env: Mapping[str, str],
    actor: str | None = None,
    events: int | None = None,
) -> PersonErasure:
    """Destroy the key of a person. It can be repeated, and interrupted anywhere: then repeat it.

    append: adds a record to the audit log: one before anything is done, and at the end one that is the certificate.
    actor: who asked, if it is not that of `env`. events: see PersonErasure. Raises NotRecorded, or KeysUnavailable;
    nothing is done then.
    """
    begun = AuditRecord.begin(VERB, {"person": person}, environment, env)
    if actor is not None:
        begun = msgspec.structs.replace(begun, actor=actor)
    try:
        append(begun)
    except EventLogError as error:
        raise NotRecorded(VERB, str(error)) from error
    try:
        earlier = [each for each in keys.keys_of(person) if each.erased is not None]
        done = PersonErasure(person, keys.erase(person), earlier, False, events)
    except BaseException as error:
        append(begun.ended("failed", 1, str(error)))
        raise
    append(begun.ended("done", 0, f"{done.summary}. {' '.join(REMAINS)}"))
    return done


def _facts(key: KeyFacts) -> dict[str, str | None]:
    erased = None if key.erased is None else _time(key.erased)
    return {"key_id": key.key_id, "created": _time(key.created), "erased": erased}


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
