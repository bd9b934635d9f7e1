"""Mistakes in `expires` are named when a view is declared, with what to write instead; and what the test kit shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater import (
    Cache,
    Deleted,
    Elasticsearch,
    Lookup,
    Postgres,
    Ranking,
    TableView,
    Topic,
    average,
    count,
    current,
    envelope,
    maximum,
)
from headwater.eventlog.capturing import Captured, Source
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.table.declared_store import DeclaredStore
from headwater.testing import at, rows_of
from tests.support.expiring import COLUMNS, Seen, days, plain_sessions, sessions, users
from tests.support.own_rows import note_sizes


class Device(Captured, table="public.devices", key="id"):
    id: int
    name: str


devices = Source(name="devices", tables=(Device,))

WRONG: list[tuple[Any, str]] = [
    ("30d", "does not say by which column: write expires="),
    (("seen_at", "30d"), "does not say by which column"),
    ({"seen_at": "30d", "day": "1d"}, "names 2 columns, but a row has one time"),
    ({1: "30d"}, "which is no text"),
    ({"": "30d"}, "the column of expires is empty"),
    ({"seen": "30d"}, 'the unknown column "seen" (did you mean "seen_at"?): use one of seen_at, day'),
    ({"user": "30d"}, "which is text and no time or date: use one of seen_at, day"),
    ({"mean": "30d"}, "which is float and no time or date"),
    ({"session_id": "30d"}, "which is text and no time or date"),
    ({"there": "30d"}, 'which is looked up in "users", not stored in the row'),
    ({"seen_at": "30 days"}, 'expires of "seen_at": "30 days" is not a duration: write it like "90s"'),
    ({"seen_at": "-30d"}, "is not a duration"),
    ({"seen_at": "0d"}, "is not a duration"),
    ({"seen_at": ""}, "is not a duration"),
    ({"seen_at": timedelta(days=30)}, "is not a duration"),
    ({"seen_at": 30}, "is not a duration"),
    ({"seen_at": None}, "is not a duration"),
    ({"seen_at": "36501d"}, "is longer than 36500 days: leave it out"),
    ({"seen_at": "999999d"}, "is longer than 36500 days"),
]


def declared(expires: Any, *stores: DeclaredStore) -> TableView:
    return TableView(
        name="wrong",
        key="session_id",
        columns=COLUMNS | {"mean": average({Seen: envelope("sequence")})},
        stores=stores or (Postgres(),),
        lookups=(Lookup("users", on="user", columns={"there": "session"}),),
        expires=expires,
    )


@pytest.mark.parametrize(("expires", "says"), WRONG, ids=str)
def test_a_mistake_is_named(expires: Any, says: str) -> None:
    with pytest.raises(ViewDeclarationError) as raised:
        declared(expires)
    assert says in str(raised.value)


def test_what_cannot_follow_is_refused_with_the_reason() -> None:
    by = {"seen_at": "30d"}
    for stores, says in (
        ((Postgres(), Topic()), "whoever reads the topic would keep them: leave out Topic()"),
        ((Postgres(), Cache(rankings=(Ranking("-times"),))), "would stay in the rankings of Cache"),
        ((Cache(),), "add Postgres() or Elasticsearch()"),
    ):
        assert declared({}, *stores).expiry is None
        with pytest.raises(ViewDeclarationError) as raised:
            declared(by, *stores)
        assert says in str(raised.value)
    assert declared(by, Elasticsearch(), Cache()).expiry is not None


def test_a_view_without_a_time_is_told_how_to_have_one() -> None:
    with pytest.raises(ViewDeclarationError, match=r'add one, as in "seen_at": last'):
        TableView(name="v", key="user", columns={"n": count(Seen)}, stores=(Postgres(),), expires={"n": "1d"})
    columns = {"name": current(Device, "name")}
    with pytest.raises(ViewDeclarationError, match="which is text and no time or date"):
        TableView(
            name="v",
            key="id",
            columns=columns,
            deleted_by=(Deleted(Device),),
            stores=(Postgres(),),
            expires={"name": "1d"},
        )


def test_stream_views_have_none() -> None:
    with pytest.raises(ViewDeclarationError, match='it has no "expires"'):
        type(note_sizes)(name="v", expires={"at": "1d"})  # type: ignore[call-arg]
    assert note_sizes.expiry is None


def test_any_column_with_a_time_will_do() -> None:
    assert replace(plain_sessions, columns=COLUMNS | {"seen_at": maximum({Seen: envelope("time")})}).expiry is not None
    assert days.expiry is not None and days.expiry.column == "day"


START = datetime(2026, 3, 1, tzinfo=UTC)


def seen(session: str, time: datetime, user: str = "ada") -> Any:
    return at(time, Seen(session_id=session, user=user, day=time.date()))


def test_rows_are_those_of_a_time() -> None:
    given = [seen("a", START), seen("b", START + timedelta(minutes=59))]
    assert set(rows_of(plain_sessions, *given)) == {"a", "b"}
    later = START + timedelta(hours=1)
    assert set(rows_of(plain_sessions, *given, now=later - timedelta(milliseconds=1))) == {"a", "b"}
    assert set(rows_of(plain_sessions, *given, now=later)) == {"b"}
    assert rows_of(plain_sessions, *given, now=later + timedelta(hours=1)) == {}
    assert set(rows_of(plain_sessions, *given, seen("c", START + timedelta(days=1)))) == {"c"}, "after the last event"


def test_a_row_comes_back_with_all_that_it_ever_had() -> None:
    given = [seen("a", START), seen("a", START + timedelta(days=1))]
    assert rows_of(plain_sessions, *given)["a"]["times"] == 2


def test_days_expire_at_midnight_in_utc() -> None:
    given = [seen("a", START)]
    assert set(rows_of(days, *given, now=datetime(2026, 3, 30, 23, 59, tzinfo=UTC))) == {"ada/2026-03-01"}
    assert rows_of(days, *given, now=datetime(2026, 3, 31, tzinfo=UTC)) == {}


def test_an_expired_row_is_not_looked_up() -> None:
    given = [seen("a", START), seen("b", START + timedelta(hours=2), "eva")]
    rows = rows_of(users, *given, others=(sessions,))
    assert {key: row["times"] for key, row in rows.items()} == {"ada": None, "eva": 1}


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no zone"):
        rows_of(plain_sessions, now=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="do not expire"):
        rows_of(note_sizes, now=START)  # type: ignore[call-overload]
