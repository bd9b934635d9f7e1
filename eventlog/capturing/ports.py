"""What the rest of this room needs of a kind of database: the rooms `postgres` and `mysql` fulfil it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.naming import SourceNames

StoredOffset = Callable[[], Mapping[str, Any] | None]
"""Returns where a connector goes on after a restart, as Debezium stores it; None if it has stored nothing."""


class Address(Protocol):
    """A database server and the account that captures it."""

    def for_debezium(self) -> dict[str, str]:
        """The connection as properties of a connector."""
        ...


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found. version: of the server, such as 18. problems: sentences, each with what solves it."""

    version: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a source is behind its database's log.

    lag_bytes: that are not captured yet.
    retained_bytes: that the database keeps, of limit_bytes.
    wal_status: of a replication slot.
    problems: sentences, each with what solves it.

    Each of the others is None if the database does not say it.
    """

    lag_bytes: int | None = None
    retained_bytes: int | None = None
    limit_bytes: int | None = None
    wal_status: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """A database server.

    identifier: of its data, which copies of its disk share. version: such as 18. timeline: of its log; another one
    after a standby was promoted, or an earlier state was restored. is_guarded: whether its standbys have all changes
    that are captured.
    """

    identifier: str
    version: int
    timeline: int = 0
    is_guarded: bool = False


GONE: Final = (0, 0)


class Part(msgspec.Struct, frozen=True):
    """A table, or a partition of it.

    name: with its schema. file: changes if all its rows are written anew; 0 if it has none of its own. attached:
    changes if it leaves its table, and comes back. parent: the number of that. is_empty: whether it has no rows.
    is_created: whether it never was a table of its own.
    """

    name: str
    file: int
    attached: str = ""
    parent: str = ""
    is_empty: bool = False
    is_created: bool = False


class Layout(msgspec.Struct, frozen=True):
    """How a database stores a table. It differs if rows may have changed without a change in the log.

    version: of the server; some of the others differ after an upgrade. table: its number, which no other table gets.
    parts: by number. columns: the declared ones that it has, each with the numbers of the column and of its type; what
    is noted of one that was gone is GONE.
    labels: of its enums, by number. published: differs if its changes were left out of the log for a time; empty if
    they are now. named: differs if it had another name for a time. order: the names of all its columns. shown: differs
    if its definition does.
    """

    version: int
    table: int
    parts: dict[str, Part] = {}
    columns: dict[str, tuple[int, int]] = {}
    labels: dict[str, str] = {}
    published: str = ""
    named: str = ""
    order: list[str] = []
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Missed:
    """Why rows of a table changed without a change in the log, as a clause about the table.

    reads: whether rows are to be read again. sweeps: whether rows may be gone.
    """

    why: str
    reads: bool = True
    sweeps: bool = True


class Database(Protocol):
    """An open connection to the database of a source. Its methods raise SourceProblem."""

    def check(self, registered: bool) -> Checked:
        """Check the server, the account and the tables; registered: whether the source's connector is."""
        ...

    def lost(self) -> str | None:
        """Why changes are missing that were not captured, and what helps; None if none are."""
        ...

    def ahead(self) -> str | None:
        """Why the connector's place is not in the log of this server, so that it skips changes; None if it is."""
        ...

    def identity(self) -> Server | None:
        """The server; None if it does not say which it is, or the connector may go on with another one."""
        ...

    def promoted(self, timeline: int) -> str | None:
        """Why changes that were captured from this timeline of its log may be missing in it; None if none are."""
        ...

    def warnings(self) -> list[str]:
        """What is right at present, and may lose changes in a failover; each with what helps."""
        ...

    def layouts(self) -> dict[str, Layout]:
        """How each declared table is stored now, as far as it exists and the database says it."""
        ...

    def missed(self, was: Layout, now: Layout) -> list[Missed]:
        """What was not captured of a table since it had the layout `was`."""
        ...

    def unchunked(self, table: type[Captured]) -> str | None:
        """Why the rows of a table cannot be read again while changes go on; None if they can."""
        ...

    def plan(self, table: type[Captured], where: str) -> None:
        """Let the database plan to read the rows with a condition in SQL, which raises SourceProblem if it is wrong."""
        ...

    def standing(self, is_running: bool) -> Standing:
        """How far the source is behind; is_running: whether its connector is."""
        ...

    def preparations(self) -> list[str]:
        """What `prepare` would change, a line each."""
        ...

    def prepare(self) -> None:
        """Make in the database what the connector needs."""
        ...

    def beat(self) -> None:
        """Write a heartbeat, if this kind of database has any."""
        ...

    def clean_up(self) -> list[str]:
        """Remove what the source has in the database; returns what was done, a line each."""
        ...

    def read_apart(self) -> Mapping[type[Captured], str]:
        """Tables whose changes may lack long values, which the connector then reads from the table; each with the SQL
        that lets them have all values.
        """
        ...

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        """Which of these keys, given as texts per column, have no row; the database compares them as values."""
        ...

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        """SQL for the rows with these keys, given as texts per column; empty for all rows."""
        ...

    def has_captured(self, place: Mapping[str, Any], stored: Callable[[], Collection[str]]) -> bool:
        """Whether the connector has captured all before a place of `place`, as far as the database says it.

        stored: returns the GTIDs of statements that the connector has read and stored.
        """
        ...

    def past_statements(self, stored: Callable[[], Collection[str]]) -> dict[str, Any] | None:
        """Where a connector that starts is to go on instead, behind statements that it has read; None: where it is.

        It would skip changes, or read rows by an earlier definition, if it went on before them. stored: see above.
        """
        ...

    def place(self) -> dict[str, Any]:
        """Where the database's log ends, as in the `source` block of a record."""
        ...

    def hold(self) -> bool:
        """Take the lock of the source until this connection ends; False if another connection has it."""
        ...

    def still_holds(self) -> bool:
        """Whether this connection, and with it the lock that it took, is still there."""
        ...


class Engine(Protocol):
    """A kind of database."""

    @property
    def title(self) -> str:
        """Its name for people."""
        ...

    @property
    def artifact(self) -> str:
        """The artifact of Debezium's connector."""
        ...

    @property
    def connector_class(self) -> str:
        """The class of Debezium's connector."""
        ...

    @property
    def heartbeats(self) -> str:
        """The topic of the source that shows whether the connector goes on."""
        ...

    def read_address(self, variable: str, value: str) -> Address:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""
        ...

    def properties(self, source: Source, names: SourceNames, version: int, kafka: Mapping[str, str]) -> dict[str, str]:
        """The connector's properties that no other kind of database has. kafka: of its own clients of Kafka."""
        ...

    def open(
        self, source: Source, names: SourceNames, address: Address, offset: StoredOffset
    ) -> AbstractContextManager[Database]:
        """Connect to the database of a source; raises SourceProblem with what helps if that fails."""
        ...

    def heartbeat_s(self, value: bytes) -> float | None:
        """The time, in seconds since 1970, in a record of `heartbeats`; None if it is none."""
        ...

    def why_lost(self, error: str) -> str | None:
        """Why changes are lost if the connector failed with this error; None if it does not mean that."""
        ...

    def lost_changes(self, source: str, names: SourceNames, why: str | None) -> str:
        """What it means that changes are missing, and what helps. why: if it is known."""
        ...
