"""What PostgreSQL's errors mean for a view: wait, leave out one patch, or neither."""

from __future__ import annotations

from typing import Final

import psycopg

from headwater.projections.errors import LacksRight, ProjectionError, StoreUnavailable, Unloadable

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
