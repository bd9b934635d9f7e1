"""What the audit log says of the store of keys: which one the deployment has, and which keys erasures destroyed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final

from headwater.eventlog.audit.trail import AuditRecord, Trail, read_trail
from headwater.eventlog.errors import EventLogError, KeysUnavailable
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.identity import KeyHistory
from headwater.eventlog.settings import LogSettings

STORE_VERB: Final = "keys"
"""Of a record that notes the store of keys."""
ERASE_VERB: Final = "erase"
KEYS: Final = "keys"
"""The argument of an erasure with the ids of keys that are destroyed."""


class LoggedKeys:
    """See KeyRecords; of the deployment that `env` describes."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def read(self) -> KeyHistory:
        with _answering(), closing(KafkaLog(LogSettings.without_modules(self._env))) as log:
            return key_history(record for record in read_trail(log) if record is not None)

    def note_store(self, store: str, replaces: str) -> None:
        with _answering():
            trail = Trail(self._env)
            begun = AuditRecord.begin(
                STORE_VERB, {"store": store, "replaces": replaces}, trail.settings.environment, self._env
            )
            trail.append(begun.ended("done", 0, ""))


def key_history(records: Iterable[AuditRecord]) -> KeyHistory:
    """What the records of an audit log say together."""
    stores, destroyed = list[str](), set[str]()
    for record in records:
        if record.verb == STORE_VERB and (not stores or record.arguments.get("replaces") == stores[-1]):
            stores.append(str(record.arguments.get("store")))
        elif record.verb == ERASE_VERB and isinstance(key_ids := record.arguments.get(KEYS), list):
            destroyed.update(map(str, key_ids))
    return KeyHistory(tuple(stores), frozenset(destroyed))


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except EventLogError as error:
        raise KeysUnavailable(f"the audit log, which says which store of keys is the right one: {error}") from error
