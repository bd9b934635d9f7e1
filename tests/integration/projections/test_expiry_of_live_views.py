"""A changed expiry reaches the SQL view of a live view, with what hangs on it; what expired for good is removed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.stores.open import backend
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import count
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.types import format_time
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_THING, Put

NOW = datetime.now(UTC)
AGES = {"new": timedelta(minutes=1), "hours": timedelta(hours=25), "days": timedelta(days=40), "none": None}


def view_with(expires: Mapping[str, str], version: int = 1) -> TableView:
    stores = tuple(store for store in BY_THING.stores if store.name == "postgres")
    return replace(BY_THING, stores=stores, expires=expires, version=version)


PLAIN = view_with({})


@pytest.fixture
def built(servers: dict[str, RealServer], settings: LogSettings) -> None:
    """A view that was built when its rows did not expire, with rows of every age."""
    generations = Generations(servers["postgres"].settings.postgres, settings.environment)
    generations.prepare()
    assert generations.swap(PLAIN.name, generations.begin(PLAIN, {}, {}, {}).generation)
    store, target = servers["postgres"].open(), Target(PLAIN, 1)
    store.create(target, {}, {0: 0})
    store.finish(target)
    patches = [
        Patch(key, "0", Place(offset, 0), {} if age is None else times(NOW - age))
        for offset, (key, age) in enumerate(AGES.items())
    ]
    store.apply([target], {0: Batch(len(patches), {PLAIN.tag: patches})})
    store.publish(target)
    store.settle(now=True)


def times(time: datetime) -> dict[str, object]:
    """What a patch brings of the columns `latest` and `first_due`, as their folds store it."""
    return {"latest": format_time(time), "first_due": time.date().isoformat(), "total": 1}


def run(stores: StoreSettings, statement: str, zone: str = "UTC") -> list[str]:
    with psycopg.connect(stores.postgres) as connection:
        connection.execute(
            f"SET search_path = {stores.environment}; SET timezone = '{zone}'; SET intervalstyle = iso_8601"
        )
        cursor = connection.execute(statement)
        return sorted(row[0] for row in cursor) if cursor.description else []


def start(settings: LogSettings, stores: StoreSettings, view: TableView) -> None:
    """What the read side does at its start."""
    Service(settings, stores, ViewRegistry([("here", view)])).add_to_stores()


KEYS = "SELECT thing_id FROM by_thing"
CHANGES: list[tuple[dict[str, str], set[str]]] = [
    ({"latest": "1d"}, {"new", "none"}),
    ({"latest": "86400s"}, {"new", "none"}),
    ({"latest": "30d"}, {"new", "hours", "none"}),
    ({"first_due": "30d"}, {"new", "hours", "none"}),
    ({"first_due": "36500d"}, set(AGES)),
    ({}, set(AGES)),
]


@pytest.mark.usefixtures("built")
def test_a_changed_expiry_reaches_the_live_view(settings: LogSettings, stores: StoreSettings) -> None:
    run(stores, "CREATE VIEW mine AS SELECT thing_id FROM by_thing")
    run(stores, "GRANT SELECT (thing_id) ON by_thing TO PUBLIC")
    assert set(run(stores, KEYS)) == set(AGES)
    shown: dict[str, str] = {}
    for expires, keys in CHANGES:
        view = view_with(expires)
        target = Target(view, 1)
        missing = backend("postgres").missing(stores, target)
        assert bool(missing) == (until(expires) != shown), expires
        start(settings, stores, view)
        shown = until(expires)
        assert backend("postgres").missing(stores, target) == []
        for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"):
            assert set(run(stores, KEYS, zone)) == keys, (expires, zone)
        assert set(run(stores, "SELECT thing_id FROM mine")) == keys
    assert run(stores, "SELECT grantee FROM information_schema.column_privileges WHERE grantee = 'PUBLIC'")


def until(expires: Mapping[str, str]) -> dict[str, str]:
    """The same expiry has one text."""
    return {column: "1d" if after == "86400s" else after for column, after in expires.items()}


@pytest.mark.usefixtures("built")
def test_a_plain_name_that_leads_to_a_later_version_stays(
    servers: dict[str, RealServer], settings: LogSettings, stores: StoreSettings
) -> None:
    later = view_with({"latest": "30d"}, version=2)
    store, target = servers["postgres"].open(), Target(later, 2)
    store.create(target, {}, {0: 0})
    store.finish(target)
    store.publish(target)
    start(settings, stores, view_with({"latest": "1d"}))
    assert run(stores, KEYS) == [] and backend("postgres").missing(stores, target) == []


@pytest.mark.usefixtures("built")
def test_rows_of_a_paused_view_stay_until_it_goes_on(
    servers: dict[str, RealServer], settings: LogSettings, stores: StoreSettings
) -> None:
    """The thread of the read side, with the registry."""
    view = replace(
        BY_THING,
        name="by_day",
        key=("group", "due"),
        key_name="key",
        columns={"puts": count(Put)},
        deleted_by=(),
        restored_by=(),
        stores=(Postgres(),),
        expires={"due": "30d"},
    )
    generations = Generations(stores.postgres, settings.environment)
    assert generations.swap(view.name, generations.begin(view, {}, {}, {}).generation)
    store, target = servers["postgres"].open(), Target(view, 1)
    store.create(target, {}, dict.fromkeys(range(settings.patch_partitions), 0))
    store.finish(target)
    # not on the last day, which may end before they are read
    days = {str(each): (NOW - timedelta(days=each)).date() for each in (1, 27, 40)}
    patches = [
        Patch(key, "0", Place(at, 0), {"group": key, "due": str(day)}) for at, (key, day) in enumerate(days.items())
    ]
    store.apply([target], {0: Batch(len(patches), {view.tag: patches})})
    store.publish(target)
    service = Service(settings, stores, ViewRegistry([("here", view), ("there", PLAIN)]))
    stored = f"SELECT key FROM {table_name(*target.id)}"
    generations.pause(view.name)
    turn(service)
    assert run(stores, stored) == ["1", "27", "40"]
    assert run(stores, "SELECT key FROM by_day") == ["1", "27"]
    generations.resume(view.name)
    turn(service)
    assert run(stores, stored) == ["1", "27"]


def turn(service: Service) -> None:
    """One turn of the thread: it looks at the stores before it waits."""

    class OneTurn(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    service.keep_removed(OneTurn())
