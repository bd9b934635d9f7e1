"""What an audit log in memory says of the store of keys."""

from __future__ import annotations

from headwater.eventlog.audit.logged_keys import key_history
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.erasing.person import erase_person
from headwater.eventlog.personal.identity import KeyHistory
from headwater.eventlog.personal.ports import KeyStore


class Records:
    """See KeyRecords. meanwhile: a store that another process notes at the same time."""

    def __init__(self, meanwhile: str = "") -> None:
        self.records: list[AuditRecord] = []
        self._meanwhile = meanwhile

    def read(self) -> KeyHistory:
        return key_history(self.records)

    def note_store(self, store: str, replaces: str) -> None:
        for each in filter(None, (self._meanwhile, store)):
            arguments = {"store": each, "replaces": replaces}
            self.records.append(AuditRecord.begin("keys", arguments, "test", {}).ended("done", 0, ""))

    def erase(self, keys: KeyStore, person: str) -> None:
        """Erase a person, as the commands do."""
        erase_person(keys, self.records.append, person, "test", {})
