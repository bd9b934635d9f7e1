"""Connections to PostgreSQL that give up on a server that does not answer, and what its errors mean for a view."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.rows import dict_row
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random

from headwater.projections.errors import LacksRight, ProjectionError, StoreLocked, StoreUnavailable, Unloadable
from headwater.projections.settings import StoreSettings

NAME: Final = "PostgreSQL"
CONSTRAINT: Final = "23"
REFUSED: Final = (
    "22",  # the value: too large a number, invalid text, a division by zero in a derived column
    CONSTRAINT,  # a constraint: a null key, or a check that somebody added to the table
    "42804",  # another type than the column's
    "42846",  # no cast from the value to the column's type
    "54",  # a limit: an index entry over 2,704 bytes, a row over 8 KB that cannot be shortened, JSON nested too deep
)
"""SQLSTATEs (or their classes, two characters) caused by a patch. A retry would fail again."""

LACKED: Final = "42501"
"""The role lacks a right, which an operator can give it."""
AWAY: Final = (
    "08",  # the connection
    "25006",  # read-only: a standby, or a server that is being moved
    "28",  # login refused: a password that is being changed
    LACKED,
    "40",  # rolled back: a deadlock, a conflict with another transaction
    "53",  # no space, memory or connection left
    "55",  # locked or in use
    "57",  # stopped: a shutdown, a start, a statement that an operator or a timeout cancelled
    "58",  # the operating system: a disk
    "F0",  # its configuration
)
"""SQLSTATEs of a server that may accept the same batch later."""

CONNECT_S: Final = 3
ANSWER_S: Final = 60.0
"""How long a statement may take. A server that accepts connections and never answers would be waited for for ever."""
KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""In seconds: firewalls forget connections that are idle, and an end that is gone is noticed within a minute."""
LOCK_S: Final = 1.0
"""How long a change of tables waits for a lock. Everybody who reads the table afterwards waits behind it."""
PAUSE_S: Final = 1.0
LOCKED_S: Final = 20.0
"""How long such a change is tried again and again."""
HOLDERS: Final = """
SELECT pid, usename AS role, nullif(application_name, '') AS program,
       coalesce(state, 'in a state that this role must not see') AS state,
       extract(epoch FROM now() - xact_start)::float AS seconds
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND pid IN (
    SELECT pid FROM pg_locks
    WHERE granted AND relation IN (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
)
ORDER BY xact_start LIMIT 3
"""
logger = logging.getLogger(__name__)


def meaning(error: psycopg.Error) -> ProjectionError | None:
    """`error` as StoreUnavailable or Unloadable; None if it is neither, but a bug that must be visible.

    Without an SQLSTATE the error is psycopg's own. For an operational error of an unknown kind the loader waits:
    patches are left out only if they are known to be the cause.
    """
    cause = str(error).strip()
    if _in(error.sqlstate, (CONSTRAINT,)):
        cause = error.diag.message_primary or ""  # its detail shows the whole row, which may have personal values
    if of_data(error.sqlstate):
        return Unloadable(NAME, cause)
    if error.sqlstate == LACKED:
        return LacksRight(NAME, cause)
    if _in(error.sqlstate, AWAY) or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(NAME, cause)
    if error.sqlstate is None and isinstance(error, psycopg.DataError | psycopg.ProgrammingError):
        return Unloadable(NAME, cause)  # PostgreSQL has no type for a value
    return None


def of_data(sqlstate: str | None) -> bool:
    """Whether the sent values are the cause."""
    return _in(sqlstate, REFUSED)


def _in(sqlstate: str | None, states: tuple[str, ...]) -> bool:
    return sqlstate is not None and sqlstate.startswith(states)


Result = TypeVar("Result")


class LimitedConnection(psycopg.Connection[Any]):
    """A connection whose statements end within `answer_s` seconds, with an OperationalError; None: without a limit."""

    answer_s: float | None = ANSWER_S

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        limit_s = self.answer_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.errors._WaitTimeout:
            with suppress(psycopg.Error):  # else it would go on in the server, which does not see that nobody waits
                self.cancel_safe(timeout=CONNECT_S)
            self.pgconn.finish()  # its state is not known
            raise psycopg.OperationalError(f"it has not answered for {limit_s:g} s") from None


def connect(
    url: str, *, answer_s: float | None = ANSWER_S, autocommit: bool = False, **options: Any
) -> LimitedConnection:
    """Connect to a PostgreSQL server. answer_s: see LimitedConnection. options: parameters of libpq."""
    limits = {"connect_timeout": CONNECT_S, **KEEPALIVES}
    connection = LimitedConnection.connect(url, autocommit=autocommit, **{**limits, **options})
    connection.answer_s = answer_s
    return connection


class Client:
    """One connection to the schema of an environment, opened at its first use; raises Headwater's errors."""

    def __init__(self, settings: StoreSettings, options: str = "") -> None:
        """options: of the server, for this connection."""
        self.schema, self._url = settings.environment, settings.postgres
        self._options = f"-c search_path={settings.environment} -c timezone=UTC {options}"
        self._connection: LimitedConnection | None = None

    @property
    def connection(self) -> LimitedConnection:
        """The connection, inside a transaction and outside; answers within `answer_s`."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, autocommit=True, options=self._options)
        return self._connection

    @contextmanager
    def transaction(
        self, *, pipelined: bool = False, answer_s: float | None = ANSWER_S
    ) -> Iterator[psycopg.Connection[Any]]:
        """A transaction. pipelined: statements are sent without waiting for the results of those before."""
        try:
            connection = self.connection
            connection.answer_s = answer_s
            with connection.pipeline() if pipelined else nullcontext(), connection.transaction():
                if answer_s is None:
                    connection.execute("SET LOCAL statement_timeout = 0")
                yield connection
        except psycopg.Error as error:
            problem = meaning(error)
            if problem is None:
                raise
            if isinstance(problem, StoreUnavailable):
                self.close()
            raise problem from error

    def sql(self, text: str) -> sql.Composed:
        """A statement about the schema."""
        return sql.SQL(text).format(schema=sql.Identifier(self.schema))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def connected(settings: StoreSettings, *, autocommit: bool, answer_s: float | None) -> Iterator[LimitedConnection]:
    """A connection of its own, for changes that are tried again later: raises StoreUnavailable for what is unknown."""
    try:
        with closing(connect(settings.postgres, autocommit=autocommit, answer_s=answer_s)) as connection:
            yield connection
    except psycopg.Error as error:
        raise meaning(error) or StoreUnavailable(NAME, str(error).strip()) from error


def make_schema(connection: psycopg.Connection[Any], name: str) -> None:
    """Create a schema if it is missing: `IF NOT EXISTS` alone needs the right to create it, which few roles have."""
    row = connection.execute("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", [name]).fetchone()
    if not (row and row[0]):
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)))


def set_lock_limit(connection: psycopg.Connection[Any]) -> None:
    """Let the transaction wait no longer than LOCK_S for each lock: then psycopg raises LockNotAvailable."""
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_S:g}s")))


def retrying_locks(change: Callable[[], Result], find_holders: Callable[[], str]) -> Result:
    """Make a change of tables, again and again for LOCKED_S if others hold locks.

    change: one transaction; raises StoreUnavailable, caused by LockNotAvailable, if it cannot have a lock.
    find_holders: says who holds it. Raises StoreLocked with that at the end.
    """
    try:
        return Retrying(
            retry=retry_if_exception(_is_locked),
            wait=wait_random(0.5 * PAUSE_S, 1.5 * PAUSE_S),
            stop=stop_after_delay(LOCKED_S),
            before_sleep=_note,
            reraise=True,
        )(change)
    except StoreUnavailable as error:
        if not _is_locked(error):
            raise
        raise StoreLocked(NAME, find_holders()) from error


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, StoreUnavailable) and isinstance(error.__cause__, psycopg.errors.LockNotAvailable)


def _note(state: RetryCallState) -> None:
    logger.info("another session holds a lock on a table that is changed; attempt %d", state.attempt_number)


def holders_of(connection: psycopg.Connection[Any], tables: list[str]) -> str:
    """Who holds locks on these tables, and how to end that. tables: quoted names."""
    with connection.cursor(row_factory=dict_row) as cursor:
        holders = cursor.execute(HOLDERS, [tables]).fetchall()
    what = f"a change waits for a lock on {', '.join(tables)}"
    if not holders:
        return f"{what}: try again"
    held = "; ".join(
        f"process {holder['pid']} of role {holder['role']} ({holder['program'] or 'unnamed'}, {holder['state']} for "
        f"{holder['seconds'] or 0:.0f} s)"
        for holder in holders
    )
    return f"{what}, which {held} holds: end its transaction, or run SELECT pg_terminate_backend({holders[0]['pid']})"
