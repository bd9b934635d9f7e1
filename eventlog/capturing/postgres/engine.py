"""PostgreSQL as one of the kinds of databases that can be captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import MESSAGES, SourceNames
from headwater.eventlog.capturing.ports import Address, Checked, Layout, Missed, Server, Standing, StoredOffset
from headwater.eventlog.capturing.postgres import standbys
from headwater.eventlog.capturing.postgres.address import PostgresAddress
from headwater.eventlog.capturing.postgres.checks import check_database, with_old_rows
from headwater.eventlog.capturing.postgres.database import CapturedDatabase, Slot, open_database
from headwater.eventlog.capturing.postgres.layouts import missed, read_layouts
from headwater.eventlog.capturing.postgres.positions import lsn_text, offset_lsn
from headwater.eventlog.capturing.postgres.properties import (
    CONNECTOR_CLASS,
    HEARTBEAT_PREFIX,
    HEARTBEAT_SQL,
    properties,
)
from headwater.eventlog.capturing.postgres.rows import absent, condition, read_apart, unchunked
from headwater.eventlog.capturing.postgres.sql import HOLD

ALARM_SHARE: Final = 0.5
"""If a slot keeps more than this share of what it may, it needs attention."""


class _Content(msgspec.Struct):
    prefix: str
    content: bytes
    """Base64 in JSON."""


class _Message(msgspec.Struct):
    message: _Content


_LOST: Final = "no longer available on the server"
"""In the connector's errors, if changes are lost."""
_MESSAGE: Final = msgspec.json.Decoder(_Message)


@dataclass(frozen=True, slots=True)
class PostgresEngine:
    """The kind of database; see `Engine`."""

    title: str = "PostgreSQL"
    artifact: str = "debezium-connector-postgres"
    connector_class: str = CONNECTOR_CLASS
    heartbeats: str = MESSAGES

    def read_address(self, variable: str, value: str) -> PostgresAddress:
        return PostgresAddress.read(variable, value)

    def properties(self, source: Source, names: SourceNames, version: int, kafka: Mapping[str, str]) -> dict[str, str]:
        return properties(source, names, version)

    @contextmanager
    def open(
        self, source: Source, names: SourceNames, address: Address, offset: StoredOffset
    ) -> Iterator[PostgresSession]:
        assert isinstance(address, PostgresAddress)  # noqa: S101 - `read_address` made it
        with open_database(source, names, address) as database:
            yield PostgresSession(self, database, offset)

    def heartbeat_s(self, value: bytes) -> float | None:
        """The database's time when it was written: everything that was committed before is in the log."""
        with suppress(msgspec.MsgspecError, ValueError):  # an application may write messages of its own
            found = _MESSAGE.decode(value).message
            return float(found.content) if found.prefix == HEARTBEAT_PREFIX else None
        return None

    def why_lost(self, error: str) -> str | None:
        return "it was dropped, or created again" if _LOST in error else None

    def lost_changes(self, source: str, names: SourceNames, why: str | None) -> str:
        return (
            f"replication slot {names.slot} is lost ({why or 'its write-ahead log was removed'}), and with it changes: "
            f"run headwater sources remove {source}, then apply, which reads all tables again, then sweep, "
            "which deletes rows that were deleted meanwhile; raise max_slot_wal_keep_size to prevent it"
        )


@dataclass(frozen=True, slots=True)
class PostgresSession:
    """An open database; see `Database`."""

    engine: PostgresEngine
    database: CapturedDatabase
    offset: StoredOffset

    def check(self, registered: bool) -> Checked:
        return check_database(self.database, registered)

    def lost(self) -> str | None:
        slot = self.database.slot()
        return self._lost(slot) if slot is not None and slot.is_lost else None

    def ahead(self) -> str | None:
        place = offset_lsn(self.offset() or {})  # before the end of the log, which only grows
        end = self.database.wal_position()
        if end == 0 or place <= end:
            return None
        return (
            f"the connector has captured the database up to {lsn_text(place)}, but its log ends at {lsn_text(end)}, so "
            "it was restored, or is a promoted standby that lacks the last changes"
        )

    def identity(self) -> Server | None:
        return standbys.identity(self.database)

    def promoted(self, timeline: int) -> str | None:
        return standbys.promoted(self.database, timeline, offset_lsn(self.offset() or {}))

    def warnings(self) -> list[str]:
        return list(standbys.warnings(self.database))

    def layouts(self) -> dict[str, Layout]:
        return read_layouts(self.database)

    def missed(self, was: Layout, now: Layout) -> list[Missed]:
        return missed(was, now)

    def unchunked(self, table: type[Captured]) -> str | None:
        return unchunked(self.database, table)

    def plan(self, table: type[Captured], where: str) -> None:
        self.database.row(f"EXPLAIN SELECT FROM {self.database.quoted(table)} WHERE {where.replace('%', '%%')}")

    def standing(self, is_running: bool) -> Standing:
        slot, limit_bytes, names = self.database.slot(), self.database.wal_limit_bytes(), self.database.names
        if slot is None:
            missing = (
                f"replication slot {names.slot} does not exist: if the connector does not create it soon, changes are "
                f"missing; run headwater sources remove {self.database.source.name}, then apply"
            )
            return Standing(limit_bytes=limit_bytes, problems=(missing,) if is_running else ())
        problems = tuple(self._slot_problems(slot, limit_bytes))
        return Standing(slot.lag_bytes, slot.retained_bytes, limit_bytes, slot.wal_status, problems)

    def _slot_problems(self, slot: Slot, limit_bytes: int | None) -> Iterator[str]:
        if slot.is_lost:
            yield self._lost(slot)
        elif limit_bytes and (slot.retained_bytes or 0) > limit_bytes * ALARM_SHARE:
            yield (
                f"the database keeps {slot.retained_bytes:,} bytes for replication slot {self.database.names.slot}, "
                f"and drops it at {limit_bytes:,}: let the connector run, or raise max_slot_wal_keep_size"
            )

    def _lost(self, slot: Slot) -> str:
        return self.engine.lost_changes(self.database.source.name, self.database.names, slot.invalidation)

    def preparations(self) -> list[str]:
        if self.database.is_published():
            return []
        sign = "+" if self.database.publication() is None else "~"
        tables = ", ".join(each.table for each in self.database.source.tables)
        return [f"{sign} publication {self.database.names.slot}: {tables}"]

    def prepare(self) -> None:
        self.database.publish()

    def beat(self) -> None:
        """An incremental snapshot that goes on needs a transaction to begin with."""
        self.database.row(HEARTBEAT_SQL)

    def clean_up(self) -> list[str]:
        slot, done = self.database.names.slot, []
        if self.database.drop_slot():
            done.append(f"- replication slot {slot}")
        publication = self.database.publication()
        if publication is not None and not publication.owns:
            done.append(f"publication {slot} is left: run DROP PUBLICATION {slot} as its owner")
        elif publication is not None:
            self.database.drop_publication()
            done.append(f"- publication {slot}")
        return done

    def read_apart(self) -> dict[type[Captured], str]:
        return {table: with_old_rows(names) for table, names in read_apart(self.database).items()}

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        return absent(self.database, table, keys)

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        return condition(self.database, table, keys)

    def past_statements(self, stored: object) -> None:
        """Nothing: the log has no statements, and the definition of a table comes with its changes."""

    def has_captured(self, place: Mapping[str, Any], stored: object) -> bool:
        return offset_lsn(self.offset() or {}) >= int(place["lsn"])

    def hold(self) -> bool:
        found = self.database.row(HOLD, name=f"headwater {self.database.names.connector}")
        return bool(found and found["held"])

    def still_holds(self) -> bool:
        with suppress(SourceProblem):
            return self.database.row("SELECT 1") is not None
        return False

    def place(self) -> dict[str, Any]:
        lsn = self.database.wal_position()
        return {"lsn": lsn, "sequence": f'["{lsn}","{lsn}"]'}
