"""PostgreSQL as one of the kinds of databases that can be captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.eventlog.capturing.database import (
    Checked,
    Layout,
    Missed,
    Server,
    Standing,
    StoredOffset,
    StoredStatements,
    missed_columns,
)
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import HEARTBEAT_PREFIX, MESSAGES, SourceNames
from headwater.eventlog.capturing.positions import lsn_text, offset_lsn, read_lsn
from headwater.eventlog.capturing.postgres.checks import check_database, losing, with_old_rows
from headwater.eventlog.capturing.postgres.database import (
    PostgresAddress,
    PostgresConnection,
    Slot,
    one_line,
)
from headwater.eventlog.capturing.postgres.sql import (
    HEARTBEAT,
    HOLD,
    IDENTIFIER,
    LAYOUT,
    READ_APART,
    STANDBYS,
    WAL_END,
    WAL_LIMIT,
)

ALARM_SHARE: Final = 0.5
"""If a slot keeps more than this share of what it may, it needs attention."""
SLOT_FREE_S: Final = 15.0
"""How long a connector takes to release its slot."""
AWAITED_VERSION: Final = 17
"""PostgreSQL from this version on can let logical slots wait for standbys."""
UNCOMPARED: Final = frozenset({"timestamptz", "timestamp", "time", "timetz"})
"""Debezium 3.6 compares keys of these types with texts if it reads a table in chunks, which PostgreSQL refuses."""
ARRAYS: Final = frozenset({
    "text", "varchar", "bpchar", "int2", "int4", "int8", "oid", "bool", "float4", "float8", "numeric", "uuid", "date",
    "timestamp", "timestamptz", "time", "timetz",
})  # fmt: skip
"""Arrays that Debezium 3.6 reads in chunks. Those of enums, addresses, ranges and others may be null after a start."""
ADVICE: Final[Mapping[str, str]] = {
    "password": "set the role's password in {variable}; to change it: ALTER ROLE {role} PASSWORD '…'",
    'role "': "CREATE ROLE {role} LOGIN REPLICATION PASSWORD '…'",
    'database "': "name an existing database in {variable}",
    "pg_hba.conf": "allow it in pg_hba.conf: host {database} {role} <address> scram-sha-256",
    "is not permitted to log in": "ALTER ROLE {role} LOGIN",
    "too many": "raise max_connections, or end connections",
}
"""What helps if the server refuses a connection, by words in its reason."""


class _Content(msgspec.Struct):
    prefix: str
    content: bytes
    """Base64 in JSON."""


class _Message(msgspec.Struct):
    message: _Content


_MESSAGE: Final = msgspec.json.Decoder(_Message)


@dataclass(frozen=True, slots=True)
class Standbys:
    """The standbys that a server knows by their slots.

    awaited: slots that logical slots wait for. physical: all slots of standbys, each with whether it is in use.
    commits_wait: whether commits wait for standbys, and are not visible meanwhile.
    """

    version: int
    awaited: Sequence[str]
    physical: Mapping[str, bool]
    commits_wait: bool

    @property
    def are_awaited(self) -> bool:
        """Whether nothing is captured before all of them have it."""
        return bool(self.awaited) and self.physical.keys() <= set(self.awaited)


class PostgresDatabase(PostgresConnection):
    """An open PostgreSQL database."""

    title = "PostgreSQL"
    artifact = "debezium-connector-postgres"
    connector_class = "io.debezium.connector.postgresql.PostgresConnector"
    heartbeats = MESSAGES

    @classmethod
    def read_address(cls, variable: str, value: str) -> PostgresAddress:
        return PostgresAddress.read(variable, value)

    @classmethod
    @contextmanager
    def open(
        cls, source: Source, names: SourceNames, address: PostgresAddress, offset: StoredOffset
    ) -> Iterator[PostgresDatabase]:
        try:
            connection = psycopg.connect(address.for_psycopg(), autocommit=True, row_factory=dict_row)
        except psycopg.OperationalError as error:
            reason = one_line(error)
            advice = next((advice for words, advice in ADVICE.items() if words in reason), None)
            helps = (advice or "start the server, or correct {variable}").format(
                variable=source.database, role=address.user, database=address.database
            )
            where = f"{address.host}:{address.port} as {address.user}"
            raise SourceProblem(source.name, f"cannot connect to {where} ({reason}): {helps}") from error
        try:
            with connection:
                yield cls(source, names, offset, address, connection)
        except psycopg.Error as error:  # the connection was lost before its end
            raise SourceProblem(source.name, f"PostgreSQL refuses: {one_line(error)}") from error

    @staticmethod
    def heartbeat_s(value: bytes) -> float | None:
        """The database's time when it was written: everything that was committed before is in the log."""
        with suppress(msgspec.MsgspecError, ValueError):  # an application may write messages of its own
            message = _MESSAGE.decode(value).message
            return float(message.content) if message.prefix == HEARTBEAT_PREFIX else None
        return None

    @staticmethod
    def why_lost(error: str) -> str | None:
        return "it was dropped, or created again" if "no longer available on the server" in error else None

    @classmethod
    def lost_changes(cls, source: str, names: SourceNames, why: str | None) -> str:
        return (
            f"replication slot {names.slot} is lost ({why or 'its write-ahead log was removed'}), and with it changes: "
            f"run headwater sources remove {source}, then apply, which reads all tables again, then sweep, "
            "which deletes rows that were deleted meanwhile; raise max_slot_wal_keep_size to prevent it"
        )

    def check(self, registered: bool) -> Checked:
        return check_database(self, registered)

    def lost(self) -> str | None:
        slot = self.slot()
        return self._lost(slot) if slot is not None and slot.is_lost else None

    def _lost(self, slot: Slot) -> str:
        return self.lost_changes(self.source.name, self.names, slot.invalidation)

    def ahead(self) -> str | None:
        place = offset_lsn(self.offset() or {})  # before the end of the log, which only grows
        end = self.wal_position()
        if end == 0 or place <= end:
            return None
        return (
            f"the connector has captured the database up to {lsn_text(place)}, but its log ends at {lsn_text(end)}, so "
            "it was restored, or is a promoted standby that lacks the last changes"
        )

    def wal_position(self) -> int:
        """Where the write-ahead log ends, in bytes; 0 on a standby, whose log is another server's."""
        row = self.row(WAL_END)
        return int(row["lsn"] or 0) if row else 0

    def identity(self) -> Server | None:
        """None if the role may not ask."""
        may_ask = self.row("SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AS may")
        row = self.row(IDENTIFIER) if may_ask and may_ask["may"] else None
        return Server(**row, is_guarded=self.standbys().are_awaited) if row else None

    def standbys(self) -> Standbys:
        """The standbys of this server."""
        row = self.row(STANDBYS) or {}
        awaited = [name for name in row.get("awaited") or () if name]
        return Standbys(row.get("version", 0), awaited, row.get("physical") or {}, row.get("commits_wait", False))

    def promoted(self, timeline: int) -> str | None:
        place, fork = offset_lsn(self.offset() or {}), self._fork(timeline)
        if fork is not None and place <= fork:
            return None
        where = "" if fork is None else f" at {lsn_text(fork)}"
        return (
            f"its log has left timeline {timeline}, which was captured,{where}, because a standby was promoted or an "
            f"earlier state restored, and the connector, which is at {lsn_text(place)} now, may have passed that place "
            "before; synchronized_standby_slots prevents it"
        )

    def _fork(self, timeline: int) -> int | None:
        """Where the log of this server has left a timeline, in bytes; None if it never had it, or does not say."""
        walsender = make_conninfo(self.address.for_psycopg(), replication="database")
        with suppress(psycopg.Error), psycopg.connect(walsender, autocommit=True) as connection:
            system = connection.execute("IDENTIFY_SYSTEM").fetchone()
            if system is None:
                return None
            history = connection.execute(f"TIMELINE_HISTORY {int(system[1])}").fetchone()
            content = history[1] if history else ""  # bytes before version 15
            for line in (content.decode() if isinstance(content, bytes) else str(content)).splitlines():
                number, _, rest = line.strip().partition("\t")
                if number == str(timeline):
                    return read_lsn(rest.partition("\t")[0])
        return None

    def warnings(self) -> list[str]:
        """What loses changes if a standby is promoted, or lets them wait; and values that are read before a commit."""
        standbys, warnings = self.standbys(), []
        # a connector that waits for standbys as well gets a commit when it is visible
        if standbys.commits_wait and not standbys.are_awaited:
            warnings += [
                f'if a transaction inserts a row into "{table.table}" and updates it, or changes its key, its long '
                "values may be missing until headwater sources watch has them read again: synchronous_standby_names "
                f"lets the commit wait, and the connector reads them before it is visible; run {helps}"
                for table, helps in self.read_apart().items()
            ]
        if standbys.version < AWAITED_VERSION:
            return warnings
        for name in sorted(standbys.physical.keys() - set(standbys.awaited)):
            awaited = ", ".join([*standbys.awaited, name])
            warnings.append(
                f"a standby that reads replication slot {name} may lack changes that are captured already when it is "
                f"promoted: run ALTER SYSTEM SET synchronized_standby_slots = '{awaited}' as a superuser, then "
                "SELECT pg_reload_conf()"
            )
        for name in standbys.awaited:
            if not standbys.physical.get(name):
                why = "is not in use" if name in standbys.physical else "does not exist"
                warnings.append(
                    f"synchronized_standby_slots has {name}, which {why}, so that changes wait for its standby: let "
                    "the standby connect, or remove the name"
                )
        return warnings

    def clock_s(self) -> float:
        (now,) = self.rows("SELECT extract(epoch FROM clock_timestamp())::float8 AS now")
        return float(now["now"])

    def layouts(self) -> dict[str, Layout]:
        publication, layouts = self.publication(), {}
        for table in self.source.tables:
            schema, name = table.table.split(".")
            row = self.row(LAYOUT, schema=schema, name=name, columns=list(table.columns), publication=self.names.slot)
            if row is not None:
                layout = msgspec.structs.replace(msgspec.convert(row, Layout), losing=losing(self, table))
                # a column that is dropped is not left out: the check of columns names it
                is_published = publication is not None and publication.has(table.table, layout.columns)
                layouts[table.table] = layout if is_published else msgspec.structs.replace(layout, published="")
        return layouts

    @staticmethod
    def missed(was: Layout, now: Layout) -> list[Missed]:
        """TRUNCATE, ALTER TABLE … TYPE … USING, VACUUM FULL and CLUSTER write all rows of a table anew, without a
        change in the log. Nothing tells them apart afterwards, so each counts as the first one. pg_upgrade keeps all
        numbers that count.
        """
        if was.table != now.table:
            return [Missed("was replaced by another one of the same name")]
        missed, is_upgraded = list[Missed](), was.version != now.version
        if not is_upgraded and not now.published:
            missed.append(Missed("is left out of its publication, or rows or columns of it are"))
        elif not is_upgraded and was.published != now.published:
            missed.append(
                Missed("was left out of its publication for a time, or the publication was changed or replaced")
            )
        if not is_upgraded and was.named != now.named:
            missed.append(Missed("had another name, schema or owner for a time"))
        missed += [*_missed_parts(was, now, is_upgraded), *missed_columns(was, now)]
        if any(now.labels.get(number, label) != label for number, label in was.labels.items()):
            missed.append(Missed("has an enum of which a value was renamed"))
        return missed

    def unchunked(self, table: type[Captured]) -> str | None:
        """Why Debezium cannot read the rows of a table in chunks; None if it can."""
        columns = self.columns(table)
        for name in table.key:
            if name in columns and columns[name].type in UNCOMPARED:
                return f'its key column "{name}" is {columns[name].shown}, which Debezium cannot compare'
        if why := super().unchunked(table):
            return why
        for name in table.columns:
            if name in columns and columns[name].item and columns[name].item not in ARRAYS:
                return f'its column "{name}" is {columns[name].shown}, which Debezium would read as null'
        return None

    def plan(self, table: type[Captured], where: str) -> None:
        self.rows(f"EXPLAIN SELECT FROM {self.quoted(table.table)} WHERE {where}")

    def standing(self, is_running: bool) -> Standing:
        slot, limit = self.slot(), self.row(WAL_LIMIT)
        limit_bytes = None if limit is None else int(next(iter(limit.values())))
        if slot is None:
            missing = (
                f"replication slot {self.names.slot} does not exist: if the connector does not create it soon, changes "
                f"are missing; run headwater sources remove {self.source.name}, then apply"
            )
            return Standing(limit_bytes=limit_bytes, problems=(missing,) if is_running else ())
        problems: tuple[str, ...] = ()
        if slot.is_lost:
            problems = (self._lost(slot),)
        elif limit_bytes and (slot.retained_bytes or 0) > limit_bytes * ALARM_SHARE:
            problems = (
                f"the database keeps {slot.retained_bytes:,} bytes for replication slot {self.names.slot}, and drops "
                f"it at {limit_bytes:,}: let the connector run, or raise max_slot_wal_keep_size",
            )
        return Standing(slot.lag_bytes, slot.retained_bytes, limit_bytes, slot.wal_status, problems)

    def preparations(self) -> list[str]:
        if self.is_published():
            return []
        sign = "+" if self.publication() is None else "~"
        return [f"{sign} publication {self.names.slot}: {', '.join(table.table for table in self.source.tables)}"]

    def prepare(self) -> None:
        """Create the publication, or give it exactly the declared tables."""
        if not self.is_published():
            with self.translated(), self.connection.transaction():
                for statement in self.publication_sql():
                    self.connection.execute(statement)

    def beat(self) -> None:
        """An incremental snapshot that goes on needs a transaction to begin with."""
        self.row(HEARTBEAT)

    def clean_up(self) -> list[str]:
        name, done = self.names.slot, []
        if self.slot() is not None:
            with self.translated():
                for attempt in Retrying(
                    retry=retry_if_exception_type(psycopg.errors.ObjectInUse),
                    stop=stop_after_delay(SLOT_FREE_S),
                    wait=wait_fixed(0.2),
                    reraise=True,
                ):
                    with attempt:
                        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            done.append(f"- replication slot {name}")
        publication = self.publication()
        if publication is not None and not publication.owns:
            done.append(f"publication {name} is left: run DROP PUBLICATION {name} as its owner")
        elif publication is not None:
            with self.translated():
                self.connection.execute(f"DROP PUBLICATION {self.quoted(name)}")
            done.append(f"- publication {name}")
        return done

    def read_apart(self) -> dict[type[Captured], str]:
        rows_apart = {}
        for table in self.source.tables:
            schema, name = table.table.split(".")
            parts = self.rows(READ_APART, {"schema": schema, "name": name, "columns": list(table.columns)})
            if parts:
                rows_apart[table] = with_old_rows(part["name"] for part in parts)
        return rows_apart

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        types, numbered = self.columns(table), list(enumerate(table.key))
        given = ", ".join("%s::text[]" for _ in numbered)
        names = ", ".join(f"key_{number}" for number, _ in numbered)
        same = " AND ".join(
            f"there.{self.quoted(name)} = asked.key_{number}::{types[name].shown}" for number, name in numbered
        )
        query = (
            f"SELECT asked.number::int - 1 AS number FROM unnest({given}) WITH ORDINALITY asked({names}, number) "  # noqa: S608 - declared names
            f"WHERE NOT EXISTS (SELECT FROM {self.quoted(table.table)} there WHERE {same})"
        )
        return [row["number"] for row in self.rows(query, [list(values) for values in zip(*keys, strict=True)])]

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        types, rows = self.columns(table), []
        for key in keys:
            values = (sql.Literal(value).as_string(self.connection) for value in key)
            typed = (f"{value}::{types[name].shown}" for name, value in zip(table.key, values, strict=True))
            rows.append(f"({', '.join(typed)})")
        return f"({', '.join(map(self.quoted, table.key))}) IN ({', '.join(rows)})"

    def has_captured(self, place: Mapping[str, Any], stored: StoredStatements) -> bool:
        return offset_lsn(self.offset() or {}) >= int(place["lsn"])

    def place(self) -> dict[str, Any]:
        lsn = self.wal_position()
        return {"lsn": lsn, "sequence": f'["{lsn}","{lsn}"]'}

    def hold(self) -> bool:
        row = self.row(HOLD, name=f"headwater {self.names.connector}")
        return bool(row and row["held"])


def _missed_parts(was: Layout, now: Layout, is_upgraded: bool) -> Iterator[Missed]:
    gone = [part.name for number, part in was.parts.items() if number not in now.parts]
    if gone:
        yield Missed(f"has lost the rows of {', '.join(gone)}, which was detached or dropped", reads=False)
    for number, part in now.parts.items():
        before = was.parts.get(number)
        if before is None:
            if part.file and not part.is_empty and not _is_created(number, was, now):
                yield Missed(f"has got the rows of {part.name}, which was attached", sweeps=False)
        elif before.file != part.file:
            which = "" if len(now.parts) == 1 else f"{part.name} of it "
            yield Missed(f"had all rows {which}deleted or written anew, by TRUNCATE, ALTER TABLE or VACUUM FULL")
        elif before.attached != part.attached and not is_upgraded:
            yield Missed(f"was without {part.name} for a time")


def _is_created(number: str, was: Layout, now: Layout) -> bool:
    """Whether a part became one before it had rows: it was created as one, and so were those above that are new."""
    while number in now.parts and number not in was.parts:
        if not now.parts[number].is_created:
            return False
        number = now.parts[number].parent
    return True
