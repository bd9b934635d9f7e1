"""Erases a person: destroys the key, and records who did it, what was found, and what is left until when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from msgspec import structs

from headwater.eventlog.audit.logged_keys import ERASE_VERB, KEYS
from headwater.eventlog.audit.trail import AuditRecord, begin
from headwater.eventlog.personal.identity import KeyHistory
from headwater.eventlog.personal.ports import KeyFacts, KeyStore, PersonKey

MAX_PERSON_CHARACTERS: Final = 1_000
FORGOTTEN_S: Final = 1
"""Within which every process forgets a destroyed key."""
REMAINS: Final = (
    f"Processes forget the key within {FORGOTTEN_S} s; until then a command may still be sealed with it, and is erased "
    "with it.",
    "The wrapped key is in old row versions of the store of keys until a vacuum, in its WAL until that is recycled, "
    "and in its backups until you delete them. A copy of it is of no use without the master key.",
    "Values that were in clear in columns of stores are in old row versions until a vacuum of the tables, and a merge "
    "of the indexes, in the WAL and the translog until these are recycled, and in backups until you delete them.",
    "Ciphertexts stay in topics, rows, snapshots and backups, and cannot be decrypted.",
)
"""What is left after an erasure, and until when."""


class RowsFound(NamedTuple):
    """The rows of a generation that show values of a person in clear, or showed them. problem: why a store was not
    looked at."""

    store: str
    view: str = ""
    generation: int = 0
    rows: int = 0
    problem: str = ""


class InClear(Protocol):
    """The columns that stores have in plaintext."""

    def count(self, key_ids: Collection[str]) -> Sequence[RowsFound]:
        """The rows that show values of these keys."""

    def empty(self, key_ids: Collection[str]) -> Sequence[RowsFound]:
        """Take the values of these keys, which are destroyed, out of all rows; returns the rows that had any."""


class Counted(NamedTuple):
    """How many events and observations have values of a person; events also those of streams with this id. None:
    nobody has counted them.

    stream_rows: likewise rows, by stream view with sealed columns.
    """

    events: int | None = None
    observations: int | None = None
    stream_rows: Mapping[str, int | None] | None = None


NOT_COUNTED: Final = Counted()


class PersonErasure(NamedTuple):
    """What an erasure found and did. destroyed: now; earlier: keys that were destroyed before. is_dry: nothing yet.

    rows: that show plaintext values, or showed them; None: nobody has looked.
    """

    person: str
    destroyed: Sequence[KeyFacts]
    earlier: Sequence[KeyFacts]
    is_dry: bool
    counted: Counted = NOT_COUNTED
    rows: Sequence[RowsFound] | None = None

    @property
    def summary(self) -> str:
        """What happened, in a sentence without personal values."""
        if not self.destroyed and not self.earlier:
            return "no key: no value of this person was ever encrypted"
        would = "would be destroyed" if self.is_dry else "destroyed"
        keys = ", ".join(key.key_id for key in self.destroyed) or "none"
        text = f"keys {would}: {keys}"
        if self.earlier:
            last = max(key.erased for key in self.earlier if key.erased is not None)
            text += f"; destroyed before: {len(self.earlier)}, the last at {_time(last)}"
        rows = {f"rows of {view}": number for view, number in (self.counted.stream_rows or {}).items()}
        counts = {"events": self.counted.events, "observations": self.counted.observations, **rows}
        for what, number in counts.items():
            if number is not None:
                text += f"; {what} about the person: {number}"
        return text + "".join(f"; {hint}" for hint in self._in_clear())

    def _in_clear(self) -> Iterator[str]:
        """What was found in plaintext columns, and what was not looked at."""
        if self.rows is None:
            return
        some = [f"{row.store} {row.view} g{row.generation}: {row.rows}" for row in self.rows if row.rows]
        what = "rows with plaintext values" if self.is_dry else "rows whose plaintext values were emptied"
        yield f"{what}: {', '.join(some) or 'none'}"
        for row in self.rows:
            if row.problem:
                yield f"{row.store} was unavailable, and is emptied by a running read side: {row.problem}"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "person": self.person,
            "dry_run": self.is_dry,
            "destroyed": [_facts(key) for key in self.destroyed],
            "earlier": [_facts(key) for key in self.earlier],
            **self.counted._asdict(),
            "in_clear": None if self.rows is None else [row._asdict() for row in self.rows],
            "remains": list(REMAINS),
        }


def planned(
    keys: KeyStore, person: str, counted: Counted = NOT_COUNTED, in_clear: InClear | None = None
) -> PersonErasure:
    """What an erasure would do. Raises KeysUnavailable."""
    facts = keys.keys_of(person)
    living = [fact for fact in facts if fact.erased is None]
    rows = None if in_clear is None else in_clear.count([fact.key_id for fact in facts])
    return PersonErasure(person, living, [fact for fact in facts if fact.erased is not None], True, counted, rows)


def erase_person(
    keys: KeyStore,
    append: Callable[[AuditRecord], None],
    person: str,
    environment: str,
    env: Mapping[str, str],
    actor: str | None = None,
    counted: Counted = NOT_COUNTED,
    in_clear: InClear | None = None,
) -> PersonErasure:
    """Destroy the key of a person, then empty plaintext columns. It can be repeated, and interrupted anywhere: then
    repeat it.

    append: adds a record to the audit log: one before anything is done, and at the end one that is the certificate.
    actor: who asked, if it is not that of `env`. Raises NotRecorded, or KeysUnavailable;
    nothing is done then.
    """
    begun = begin(append, ERASE_VERB, {"person": person}, environment, env, actor)
    try:
        earlier = [key for key in keys.keys_of(person) if key.erased is not None]
        done = PersonErasure(person, keys.erase(person), earlier, False, counted)
        key_ids = [key.key_id for key in (*done.destroyed, *done.earlier)]
        # by these, a store of keys that is restored from a backup is found to have them again
        begun = structs.replace(begun, arguments={**begun.arguments, KEYS: key_ids})
        if in_clear is not None:
            # also those that were destroyed before: an erasure that was interrupted, or a restored store, has left rows
            done = done._replace(rows=in_clear.empty(key_ids))
    except BaseException as error:
        append(begun.ended("failed", 1, str(error)))
        raise
    append(begun.ended("done", 0, f"{done.summary}. {' '.join(REMAINS)}"))
    return done


def brought_back(keys: KeyStore, history: KeyHistory) -> list[str]:
    """The persons whose keys the store has, though the log says that they were destroyed: it was restored from an
    earlier backup, and they are readable again. Raises KeysUnavailable."""
    living = keys.find(history.destroyed).values() if history.destroyed else ()
    return sorted({key.person for key in living if isinstance(key, PersonKey)})


def _facts(key: KeyFacts) -> dict[str, str | None]:
    erased = None if key.erased is None else _time(key.erased)
    return {"key_id": key.key_id, "created": _time(key.created), "erased": erased}


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
