"""The tombstones that an earlier fold found, so that the next one leaves out what they erase in its first pass.

A tombstone erases its event at once, not only when compaction removes it. But it comes after the event, and looking for
it first would mean to read the log twice. A fold that finds tombstones which it did not know is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.eventlog.kafka.admin import topic_id
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.reading.fold_records import Erased

log = logging.getLogger(__name__)

Tombstones = dict[str, dict[bytes, int]]
"""By source and key, the offset of the last tombstone."""


class _Note(msgspec.Struct):
    topic: str
    tombstones: Tombstones


@dataclass(frozen=True)
class Erasures:
    """The known tombstones of one deployment's log."""

    settings: LogSettings

    def known(self) -> Tombstones:
        """Those that were kept; none if the log is another one."""
        try:
            note = msgspec.msgpack.decode(self._path.read_bytes(), type=_Note)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return {}
        # a topic that was deleted and created again has the same name, but other events
        return note.tombstones if note.topic == topic_id(self.settings, EVENTS) else {}

    def keep(self, found: Tombstones) -> None:
        """Keep them for the next fold; without the note, it may have to fold twice."""
        try:
            if not found:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            note = _Note(topic_id(self.settings, EVENTS), found)
            self._path.write_bytes(msgspec.msgpack.encode(note))
        except OSError as error:
            log.warning("the next rebuild may fold twice: %s", error)

    @property
    def _path(self) -> Path:
        # view names, which are folders here, contain no dot
        return self.settings.state.absolute() / "replays" / self.settings.environment / "tombstones.msgpack"


def merged(several: Iterable[Erased]) -> Tombstones:
    """The last tombstone of each key."""
    found: Tombstones = {}
    for tombstones in several:
        for source, keys in tombstones.items():
            held = found.setdefault(source, {})
            for key, offset in keys.items():
                held[key] = max(offset, held.get(key, -1))
    return found
