"""`GET /persons/{id}`: the rows of stream views that show values of a person, found by an index of their tables."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from headwater import INTEGER, TEXT, Cache, Claim, Postgres, StreamView, observations
from headwater.api.app import create_app
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.projections.errors import StoreUnavailable
from headwater.projections.stream.sources import StreamSource
from tests.support.audited import MemoryTrail
from tests.support.personal_visits import Rang, Visited, last_visitor
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_api_person_observations import pages
from tests.unit.api.test_api_personal import HIDDEN, read
from tests.unit.api.test_guard_routes import guarded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ALL = ("views:*", "streams:*", "personal")
VIEWS = ["last_visitor", "last_visitor_late", "visits_at_once"]


def sealed(person: str, field: str, value: Any) -> str:
    return installed().seal(person, "visited", field, value)


def visit(room: str, visitor: str, companion: str | None = None) -> dict[str, Any]:
    phone = None if companion is None else sealed(companion, "companions.phone", f"+44-canary-{companion}")
    companions = orjson.dumps([{"person_id": companion, "phone": phone}]).decode() if companion else None
    name, age = sealed(visitor, "name", f"canary {visitor}"), sealed(visitor, "age", 36)
    return {"room": room, "visits": 1, "visitor_id": visitor, "name": name, "age": age, "companions": companions}


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    """V1 was last in every other one of ten rooms, V2 in the others, and W was with V2."""
    made = fake_service(modules=["tests.support.personal_visits"])
    catch_up(made)
    rooms = {f"R{n}": visit(f"R{n}", *(("V2", "W") if n % 2 else ("V1",))) for n in range(10)}
    late = {"id": "late", "data": orjson.dumps({"name": sealed("V1", "name", "canary late")}).decode()}
    made.readers["postgres"].rows |= {
        "streams": {},
        "last_visitor": {**rooms, "R-before": {**visit("R-before", "V1"), "name": "in clear", "age": None}},
        "last_visitor_late": {"late": dict.fromkeys(made.views["last_visitor_late"].types) | late},
        "visits_at_once": {
            f"v{n}": {"id": f"v{n}", "room": f"R{n}", "name": sealed("V1", "name", f"{n}")} for n in (1, 2)
        },
    }
    return guarded(made)


def rows_of(found: list[Any]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for page in found:
        for view, some in page["rows"].items():
            rows.setdefault(view, []).extend(some)
    return rows


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_each_row_is_on_one_page_with_the_values_of_this_person(service: FakeService, limit: int) -> None:
    found = pages(service, f"/persons/V1?limit={limit}")
    assert all(len(some) <= limit for page in found for some in page["rows"].values())
    rows = rows_of(found)
    assert list(rows) == VIEWS
    assert [row["room"] for row in rows["last_visitor"]] == [f"R{n}" for n in range(0, 10, 2)]
    assert {(entry["name"], entry["age"]) for entry in rows["last_visitor"]} == {("canary V1", 36)}
    assert [event["data"] for event in rows["last_visitor_late"]] == [{"name": "canary late"}]
    assert [entry["name"] for entry in rows["visits_at_once"]] == ["1", "2"]
    assert {orjson.dumps(each["left_out"]["views"]) for each in found} == {b"[]"}


def test_values_of_others_are_hidden(service: FakeService) -> None:
    rows = rows_of(pages(service, "/persons/W"))
    assert list(rows) == ["last_visitor"], "the key of W is inside the JSON of a column"
    assert [row["room"] for row in rows["last_visitor"]] == [f"R{n}" for n in range(1, 10, 2)]
    for entry in rows["last_visitor"]:
        assert (entry["name"], entry["age"]) == (HIDDEN, HIDDEN)
        assert entry["companions"] == [{"person_id": "W", "phone": "+44-canary-W"}]
    assert rows_of(pages(service, "/persons/nobody")) == {}


def test_after_an_erasure_they_are_found_by_the_key_that_was_destroyed(service: FakeService, keys: MemoryKeys) -> None:
    keys.erase("V1")
    rows = rows_of(pages(service, "/persons/V1"))
    assert [len(rows[view]) for view in VIEWS] == [5, 1, 2]
    assert {entry["name"] for entry in rows["last_visitor"]} == {"(erased)"}


def test_scopes_and_readers_decide(service: FakeService) -> None:
    found = pages(service, "/persons/V1", "views:visits_at_once", "streams:*", "personal")
    assert list(rows_of(found)) == ["visits_at_once"]
    assert found[-1]["left_out"]["reasons"] == dict.fromkeys(VIEWS[:2], "forbidden")
    path = read(service, "/persons/V1", *ALL).json()["links"]["next"]
    assert read(service, path, "views:visits_at_once", "personal").status_code == 422, "its view is not for the caller"
    assert read(service, path.replace("V1", "W"), *ALL).status_code == 422, "it is of another person"
    own = replace(last_visitor, late="drop", readable_by={"room": Claim("room")})
    service = replace(service, views={**service.views, "last_visitor": own})
    assert "last_visitor" not in rows_of(pages(service, "/persons/V1"))
    headers = bearer(token(*ALL, room="R4"))
    rows = AppClient(create_app(service)).get(path, headers=headers).json()["rows"]
    assert [row["room"] for row in rows["last_visitor"]] == ["R4"]


def test_views_without_a_table_and_without_rows_are_named(service: FakeService) -> None:
    cached = replace(last_visitor, name="cached", stores=(Cache(),), late="drop")
    service = replace(service, views={**service.views, "cached": cached})
    service.generations.missing.add("last_visitor")
    found = pages(service, "/persons/V1")
    assert all(page["left_out"]["reasons"]["cached"] == "no_index" for page in found)
    assert any(page["left_out"]["reasons"].get("last_visitor") == "no_rows" for page in found)
    assert list(rows_of(found)) == VIEWS[1:]
    planned = read(service, "/persons/V1?dry_run=true", "erase", method="DELETE").json()
    assert planned["stream_rows"] == {"cached": None, "last_visitor": None, "last_visitor_late": 1, "visits_at_once": 2}


def rooms_of(visits: DataFrame) -> DataFrame:
    return visits.groupBy("visitor_id", "room").count()


def of_rings(rings: DataFrame) -> DataFrame:
    return rings.groupBy("room").count()


def keyed(name: str, *key: str, **more: Any) -> StreamView:
    """A view of visits without their names, in clear."""
    columns = {**dict.fromkeys(key, TEXT), "count": INTEGER, **more.pop("columns", {})}
    stores = more.pop("stores", (Postgres(),))
    sources = {"visits": observations(Visited, late_after="1h")}
    return StreamView(name=name, key=key, columns=columns, sources=sources, query=rooms_of, stores=stores, **more)


def test_rows_whose_key_names_the_person_are_found_without_any_sealed_column(
    service: FakeService, keys: MemoryKeys
) -> None:
    rooms = keyed("rooms_of_visitors", "visitor_id", "room")
    views = (rooms, keyed("visitors", "visitor_id"), keyed("by_room", "room"))
    service = replace(service, views={**service.views, **{view.name: view for view in views}})
    service.readers["postgres"].rows |= {
        "rooms_of_visitors": {
            f"{visitor}/{room}": {"key": f"{visitor}/{room}", "visitor_id": visitor, "room": room, "count": 3}
            for visitor in ("V1", "V2")
            for room in ("R1", "R2", "V1")
        },
        "visitors": {visitor: {"visitor_id": visitor, "count": 3} for visitor in ("V1", "V2", "never had a key")},
        "by_room": {"V1": {"room": "V1", "count": 3}},
    }
    for limit in (1, 100):
        rows = rows_of(pages(service, f"/persons/V1?limit={limit}"))
        assert list(rows) == [*VIEWS[:2], "rooms_of_visitors", "visitors", VIEWS[2]]
        assert [change["key"] for change in rows["rooms_of_visitors"]] == ["V1/R1", "V1/R2", "V1/V1"]
        assert [each["visitor_id"] for each in rows["visitors"]] == ["V1"]
    found = pages(service, "/persons/never%20had%20a%20key")
    assert rows_of(found) == {"visitors": [{"visitor_id": "never had a key", "count": 3}]}
    keys.erase("V1")
    assert [each["visitor_id"] for each in rows_of(pages(service, "/persons/V1"))["visitors"]] == ["V1"]


def test_views_that_may_be_keyed_by_a_person_and_are_not_searched_are_named(service: FakeService) -> None:
    cached = keyed("cached", "visitor_id", stores=(Cache(),))
    renamed = keyed("renamed", "who", "room")
    numbered = replace(keyed("numbered", "visitor_id"), columns={"visitor_id": INTEGER}, key_name="number")
    by_room = keyed("by_room", "room")
    rang: dict[str, StreamSource] = {"rings": observations(Rang, late_after="1h")}
    of_nobody = replace(renamed, name="of_nobody", sources=rang, query=of_rings)
    views = (cached, renamed, numbered, by_room, of_nobody)
    service = replace(service, views={**service.views, **{view.name: view for view in views}})
    reasons = {"cached": "no_index", "renamed": "unknown_key", "numbered": "unknown_key"}
    for page in pages(service, "/persons/V1"):
        assert page["left_out"]["reasons"] == reasons
        assert page["left_out"]["views"] == sorted(reasons)


def test_a_dry_run_and_the_certificate_count_them(service: FakeService, audit_log: MemoryTrail) -> None:
    own = replace(last_visitor, late="drop", readable_by={"room": Claim("room")})
    service = replace(service, views={**service.views, "last_visitor": own})
    for person, counts in (("V1", [5, 1, 2]), ("W", [5, 0, 0]), ("nobody", [0, 0, 0])):
        planned = read(service, f"/persons/{person}?dry_run=true", "erase", method="DELETE").json()
        assert planned["stream_rows"] == dict(zip(VIEWS, counts, strict=True)), "whoever may read them"
    read(service, "/persons/V1", "erase", method="DELETE")
    assert "rows of last_visitor about the person: 5" in (audit_log.records[-1].reason or "")


def test_a_store_that_is_away_is_answered_later(service: FakeService) -> None:
    path = read(service, "/persons/V1", *ALL).json()["links"]["next"]
    service.readers["postgres"].errors = [StoreUnavailable("PostgreSQL", "no answer")]
    assert read(service, path, *ALL).status_code == 503
    service.readers["postgres"].errors = [StoreUnavailable("PostgreSQL", "no answer")] * 4
    erased = read(service, "/persons/V1", "erase", method="DELETE").json()
    assert (erased["stream_rows"], len(erased["destroyed"])) == (dict.fromkeys(VIEWS), 1)


def test_a_cursor_that_somebody_made_up_is_refused(service: FakeService) -> None:
    cursor = read(service, "/persons/V1", *ALL).json()["links"]["next"].partition("cursor=")[2]
    kind, digest, *_ = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    places: list[Any] = [[], ["streams", None], ["other", None], [None, None], [[], {}], ["last_visitor"]]
    places += [["last_visitor", 1], ["last_visitor", "\0"], ["last_visitor", "R1", 1]]
    for place in places:
        made = base64.urlsafe_b64encode(orjson.dumps([kind, digest, *place])).rstrip(b"=").decode()
        assert read(service, f"/persons/V1?cursor={made}", *ALL).status_code == 422, place
