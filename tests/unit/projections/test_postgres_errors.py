"""What each error of PostgreSQL's means: none of the data's is waited for, none of the server's costs a patch."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from headwater.projections.errors import StoreUnavailable, Unloadable
from headwater.projections.stores.postgres.client import AWAY, REFUSED, meaning, of_data

KNOWN = sorted(
    {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, psycopg.Error) and kind.sqlstate
    },
    key=lambda kind: str(kind.sqlstate),
)


@pytest.mark.parametrize(
    "kind",
    [
        errors.ProgramLimitExceeded,
        errors.NumericValueOutOfRange,
        errors.InvalidTextRepresentation,
        errors.NotNullViolation,
        errors.CheckViolation,
        errors.DatatypeMismatch,
        errors.CannotCoerce,
        psycopg.DataError,
        psycopg.ProgrammingError,
    ],
)
def test_what_a_patch_brings_is_not_tried_again(kind: type[psycopg.Error]) -> None:
    assert isinstance(meaning(kind("no")), Unloadable)


@pytest.mark.parametrize(
    "kind",
    [
        errors.AdminShutdown,
        errors.CannotConnectNow,
        errors.QueryCanceled,
        errors.DeadlockDetected,
        errors.DiskFull,
        errors.OutOfMemory,
        errors.TooManyConnections,
        errors.LockNotAvailable,
        errors.ReadOnlySqlTransaction,
        errors.InvalidPassword,
        errors.IoError,
        psycopg.OperationalError,
        psycopg.InterfaceError,
    ],
)
def test_a_server_that_may_take_it_later_is_waited_for(kind: type[psycopg.Error]) -> None:
    assert isinstance(meaning(kind("no")), StoreUnavailable)


@pytest.mark.parametrize("kind", [errors.UndefinedTable, errors.SyntaxError, errors.DataCorrupted])
def test_a_defect_is_neither(kind: type[psycopg.Error]) -> None:
    assert meaning(kind("no")) is None


def test_the_table_agrees_with_psycopg_but_for_what_it_names() -> None:
    """A patch is left out for what psycopg calls an error of data or integrity, and for little else."""
    refused = {kind for kind in KNOWN if isinstance(meaning(kind("")), Unloadable)}
    assert {kind for kind in KNOWN if issubclass(kind, psycopg.DataError | psycopg.IntegrityError)} <= refused | {
        errors.TriggeredDataChangeViolation
    }
    assert {str(kind.sqlstate)[:2] for kind in refused} == {"22", "23", "42", "54"}
    assert not {each for each in REFUSED if each.startswith(AWAY)}


def test_bulk_tells_the_two_apart_by_the_same_table() -> None:
    assert of_data("54000")
    assert of_data("22P02")
    assert not of_data("57P01")
    assert not of_data(None)
