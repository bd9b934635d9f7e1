"""What the rest of this package needs of a captured database: the classes in `postgres` and `mysql` derive from it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from headwater.eventlog.capturing.columns import Column
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import SourceNames

StoredOffset = Callable[[], Mapping[str, Any] | None]
"""Returns where a connector goes on after a restart, as Debezium stores it; None if it has stored nothing."""
StoredStatements = Callable[[], Collection[str]]
"""Returns the GTIDs of statements that a connector has read and stored."""


@dataclass(frozen=True, slots=True)
class Address:
    """A database server and the account that captures it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)

    def for_debezium(self) -> dict[str, str]:
        """The connection as properties of a connector."""
        return {
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.user": self.user,
            **({"database.password": self.password} if self.password else {}),
        }


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

    identifier: of its data, which copies of its disk share. database: the one that is captured, if a server has
    several. version: such as 18. timeline: of its log; another one
    after a standby was promoted, or an earlier state was restored. is_guarded: whether its standbys have all changes
    that are captured. origins: identifiers of the servers whose transactions it has, so that those of one replication
    share some.
    """

    identifier: str
    version: int
    timeline: int = 0
    is_guarded: bool = False
    database: str = ""
    origins: tuple[str, ...] = ()

    def differs(self, earlier: Server) -> str | None:
        """Why this is another database than an earlier one, and no later state of it; None if it may be the same.

        After pg_upgrade, a newer server has the log and the slots of the earlier one. In MySQL, a replica that was
        promoted has transactions of the earlier one.
        """
        has_its_log = {*self.origins} & {earlier.identifier, *earlier.origins} or self.version > earlier.version
        if self.identifier != earlier.identifier and not has_its_log:
            return (
                f"this server has the system identifier {self.identifier}, and that which was captured had "
                f"{earlier.identifier}"
            )
        if earlier.database and self.database != earlier.database:
            return f'this is the database "{self.database}", and "{earlier.database}" was captured'
        return None


KEEPALIVE_S: Final = 20
"""How long a server may say nothing during a query until it is asked whether it is still there."""
KEEPALIVE_RETRY_S: Final = 10
KEEPALIVES: Final = 3
"""So many questions without an answer end a connection: a host that vanished would hold up `watch` for ever."""
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
    if its definition does. losing: why the log lacks changes of it at present, or values in them, as a clause.
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
    losing: str = ""

    def noted(self, earlier: Layout, declared: Container[str]) -> Layout:
        """What is noted of it. A column that is gone stays so: it, or another one, may get its name back.

        declared: the columns that this process looks at: of others, which it does not know yet or any more, nothing is
        noted.
        """
        gone = {name: GONE for name in earlier.columns if name in declared}
        replace = msgspec.structs.replace
        return replace(
            self,
            parts={number: replace(part, is_empty=False, is_created=False) for number, part in self.parts.items()},
            columns={**earlier.columns, **gone, **self.columns},
            labels={**earlier.labels, **self.labels},
            losing="",
        )


@dataclass(frozen=True, slots=True)
class Missed:
    """Why rows of a table changed without a change in the log, as a clause about the table.

    reads: whether rows are to be read again. sweeps: whether rows may be gone.
    """

    why: str
    reads: bool = True
    sweeps: bool = True


def missed_columns(was: Layout, now: Layout) -> Iterator[Missed]:
    """Columns with other numbers or types than before."""
    changed = [name for name, column in now.columns.items() if was.columns.get(name, column) != column]
    if changed:
        yield Missed(f"has other columns {', '.join(changed)} than before, or other types of them")


class TableColumn(ABC):
    """A column as a database has it."""

    @abstractmethod
    def problem(self, column: Column) -> str | None:
        """Why its values cannot be captured as declared, and what to declare, where `{table}` and `{column}` stand for
        names; None if they can."""

    @abstractmethod
    def misread(self) -> Sequence[tuple[str, str]]:
        """Conditions of values that Debezium reads wrongly, or stops at, where `{0}` is the name, each with what they
        are."""


class Database(ABC):
    """An open connection to the database of a source. Its methods raise SourceProblem.

    title: of the kind of database, for people. artifact, connector_class: of Debezium's connector. heartbeats: the
    topic of the source that shows whether the connector goes on. quote: what is around names in SQL.
    """

    title: ClassVar[str]
    artifact: ClassVar[str]
    connector_class: ClassVar[str]
    heartbeats: ClassVar[str]
    quote: ClassVar[str] = '"'

    def __init__(self, source: Source, names: SourceNames, offset: StoredOffset) -> None:
        self.source, self.names, self.offset = source, names, offset

    @classmethod
    @abstractmethod
    def read_address(cls, variable: str, value: str) -> Address:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""

    @classmethod
    @abstractmethod
    def open(
        cls, source: Source, names: SourceNames, address: Any, offset: StoredOffset
    ) -> AbstractContextManager[Database]:
        """Connect to the database of a source; raises SourceProblem with what helps if that fails."""

    @staticmethod
    @abstractmethod
    def heartbeat_s(value: bytes) -> float | None:
        """The time, in seconds since 1970, in a record of `heartbeats`; None if it is none."""

    @staticmethod
    @abstractmethod
    def why_lost(error: str) -> str | None:
        """Why changes are lost if the connector failed with this error; None if it does not mean that."""

    @classmethod
    @abstractmethod
    def lost_changes(cls, source: str, names: SourceNames, why: str | None) -> str:
        """What it means that changes are missing, and what helps. why: if it is known."""

    @abstractmethod
    def check(self, registered: bool) -> Checked:
        """Check the server, the account and the tables; registered: whether the source's connector is, so that its
        tables have been read."""

    @abstractmethod
    def lost(self) -> str | None:
        """Why changes are missing that were not captured, and what helps; None if none are."""

    def ahead(self) -> str | None:
        """Why the connector's place is not in the log of this server, so that it skips changes; None if it is."""
        return None

    def identity(self) -> Server | None:
        """The server; None if it does not say which it is, or the connector may go on with another one."""
        return None

    def promoted(self, timeline: int) -> str | None:
        """Why changes that were captured from this timeline of its log may be missing in it; None if none are."""
        return None

    @abstractmethod
    def warnings(self) -> list[str]:
        """What is right at present, and may lose changes in a failover; each with what helps."""

    def clock_s(self) -> float:
        """The time, in seconds since 1970, by the clock that times heartbeats."""
        return time.time()

    @abstractmethod
    def layouts(self) -> dict[str, Layout]:
        """How each declared table is stored now, as far as it exists and the database says it."""

    @staticmethod
    @abstractmethod
    def missed(was: Layout, now: Layout) -> list[Missed]:
        """What was not captured of a table since it had the layout `was`."""

    def unchunked(self, table: type[Captured]) -> str | None:
        """Why the rows of a table cannot be read again while changes go on; None if they can."""
        return "; ".join(f'its column "{name}" has {what}' for name, what in self.misread_values(table)) or None

    @abstractmethod
    def plan(self, table: type[Captured], where: str) -> None:
        """Let the database plan to read the rows with a condition in SQL, which raises SourceProblem if it is wrong."""

    @abstractmethod
    def standing(self, is_running: bool) -> Standing:
        """How far the source is behind; is_running: whether its connector is."""

    def preparations(self) -> list[str]:
        """What `prepare` would change, a line each."""
        return []

    def prepare(self) -> None:  # noqa: B027 - a connector that only reads needs nothing
        """Make in the database what the connector needs."""

    def beat(self) -> None:  # noqa: B027 - some servers send signs of life to the connector by themselves
        """Write a heartbeat, if this kind of database has any."""

    def clean_up(self) -> list[str]:
        """Remove what the source has in the database; returns what was done, a line each."""
        return []

    def read_apart(self) -> dict[type[Captured], str]:
        """Tables whose changes may lack long values, which the connector then reads from the table; each with the SQL
        that lets them have all values.
        """
        return {}

    @abstractmethod
    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        """Which of these keys, given as texts per column, have no row; the database compares them as values."""

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        """SQL for the rows with these keys, given as texts per column; empty for all rows."""
        return ""

    @abstractmethod
    def has_captured(self, place: Mapping[str, Any], stored: StoredStatements) -> bool:
        """Whether the connector has captured all before a place of `place`, as far as the database says it."""

    def past_statements(self, stored: StoredStatements) -> dict[str, Any] | None:
        """Where a connector that starts is to go on instead, behind statements that it has read; None: where it is.

        It would skip changes, or read rows by an earlier definition, if it went on before them.
        """
        return None

    @abstractmethod
    def place(self) -> dict[str, Any]:
        """Where the database's log ends, as in the `source` block of a record."""

    @abstractmethod
    def hold(self) -> bool:
        """Take the lock of the source until this connection ends; False if another connection has it."""

    @abstractmethod
    def rows(self, query: str, values: Any = None) -> list[dict[str, Any]]:
        """The rows of a query."""

    @abstractmethod
    def columns(self, table: type[Captured]) -> Mapping[str, TableColumn]:
        """The columns of a table, by name."""

    def quoted(self, name: str) -> str:
        """The name of a column, or of a table with its schema, as SQL writes it."""
        return ".".join(f"{self.quote}{part}{self.quote}" for part in name.split("."))

    def misread_values(self, table: type[Captured]) -> list[tuple[str, str]]:
        """The columns of a table with values that Debezium reads wrongly, each with what they are and where; it reads
        the table once if it may have some.
        """
        columns = self.columns(table)
        asked = [
            (name, condition.format(self.quoted(name)), what)
            for name in table.columns
            if name in columns
            for condition, what in columns[name].misread()
        ]
        if not asked:
            return []
        flags = (f"COUNT(CASE WHEN {condition} THEN 1 END) AS found_{n}" for n, (_, condition, _) in enumerate(asked))
        (flags_read,) = self.rows(f"SELECT {', '.join(flags)} FROM {self.quoted(table.table)}")  # noqa: S608 - declared names
        return [
            (name, f"{what} (WHERE {condition})")
            for number, (name, condition, what) in enumerate(asked)
            if flags_read[f"found_{number}"]
        ]

    def still_holds(self) -> bool:
        """Whether this connection, and with it the lock that it took, is still there."""
        with suppress(SourceProblem):
            return bool(self.rows("SELECT 1"))
        return False


def column_problems(declared: type[Captured], there: Mapping[str, TableColumn]) -> Iterator[str]:
    """What is wrong with each column, and what solves it. there: the table's columns by name."""
    for name in declared.columns:
        for other in there:
            if other != name and other.lower() == name.lower():
                yield (
                    f'table "{declared.table}" has the columns "{name}" and "{other}", whose names differ by their '
                    "case only, and Debezium takes them for the same column: rename one of them"
                )
    for column in declared.columns.values():
        column_problem = there.get(column.name)
        if column_problem is None:
            yield (
                f'table "{declared.table}" has no column "{column.name}": remove it from {declared.__name__}, or add '
                f"it to the table, which has {', '.join(there)}"
            )
        elif problem := column_problem.problem(column):
            yield f'column "{column.name}" of table "{declared.table}" ' + problem.format(
                table=declared.table, column=column.name
            )


def digits_problem(column: Column, shown: str, digits: int, places: int) -> str | None:
    """Why values may have more digits than their class says, and what to declare; None if they have not.

    shown: the type in the database. digits, places: that its values may have, altogether and behind the point.
    """
    if column.digits is None:
        return None
    behind = max(places, column.digits[1])
    total = max(digits - places, column.digits[0] - column.digits[1]) + behind
    if (total, behind) == column.digits:
        return None
    return (
        f"is {shown}: declare it with max_digits={total} and decimal_places={behind}, or give it a type with fewer "
        "digits, so that all its values can be read"
    )


def value_problems(database: Database, declared: type[Captured]) -> Iterator[str]:
    """Values that a snapshot would misread, with what solves it."""
    for name, what in database.misread_values(declared):
        yield f'column "{name}" of table "{declared.table}" has {what}: change these rows, or leave the column out'
