"""Rows for their readers: what is not the caller's does not exist for it, in any kind of read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from headwater import Claim
from headwater.api.app import create_app
from headwater.api.guard.caller import readable
from headwater.api.guard.needs import needs_of
from headwater.api.reading import Live, Made
from headwater.api.served_views import ServedView
from headwater.projections.view import View
from tests.support import own_rows
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_guard_routes import guarded

MODULES = ("tests.support.own_rows",)
MINE, HERS = "user-1", "user-2"
ELSEWHERE = "zebra"
"""In every value of a row that is not the caller's, so that an answer with one is found."""
QUERIES = ("", "?count=true", "?q=z&highlight=true", "?key=h1&key=b", "?sort=-size", "?size.gte=0")
ALL = ("views:*", "streams:*")


def written(key: str, owner: Any = MINE, **columns: Any) -> dict[str, Any]:
    row = {
        "owner": owner,
        "team": 1,
        "words": f"{key} {ELSEWHERE if owner != MINE else 'mine'}",
        "size": 1,
        "about": key,
    }
    return {"note_id": key} | row | columns


ROWS = [
    written("n1", size=5),
    written("n2", size=3),
    written("h1", HERS, size=9),
    written("h2", HERS, size=4, team=2),
    written("none", None),
]


@pytest.fixture
def service() -> FakeService:
    made = guarded(fake_service(modules=MODULES))
    catch_up(made)
    for reader in made.readers.values():
        for name in ("notes", "plain_notes", "team_notes", "cached_notes", "then"):
            reader.rows[name] = {row["note_id"]: dict(row) for row in ROWS}
        reader.rows["readers"] = {name: {"owner": name, "notes": 2} for name in (MINE, HERS)}
        reader.rows["subjects"] = {
            each: {"about": each, "note": note} for each, note in (("a", "n1"), ("b", "h1"), ("c", "gone"))
        }
        reader.rows["note_sizes"] = {
            row["note_id"]: {"id": row["note_id"], "owner": row["owner"], "size": row["size"]} for row in ROWS
        }
    view = made.views["notes"]
    made.generations.made_views["then"] = Made("then", "notes", view.version, "", {}, None)
    return made


@pytest.fixture
def app(service: FakeService) -> FastAPI:
    return create_app(service)


@pytest.fixture
def client(app: FastAPI) -> AppClient:
    return AppClient(app)


def caller(*scopes: str, **claims: Any) -> dict[str, str]:
    return bearer(token(*(scopes or ALL), **claims))


def keys(answer: Any) -> list[str | None]:
    assert answer.status_code == 200, answer.text
    return [row and row["note_id"] for row in answer.json()["rows"]]


def reads_of_views(app: FastAPI, service: FakeService) -> Iterator[str]:
    """Every path that reads rows of a view that has readers, or looks them up: found, not listed."""
    restricted = [view.name for view in service.views.values() if view.readable_by or view.lookups]
    for route, need in needs_of(app.routes):
        if not need.scope.startswith("views:"):
            continue
        for view in [*restricted, "then"] if "{view" in route.path else restricted:
            path = re.sub(r"{view(:\w+)?}", view, route.path)
            if path.startswith(f"/views/{view}"):
                yield from (re.sub(r"{key(:\w+)?}", key, path) for key in ("h1", "b", HERS))


def test_no_route_shows_a_row_of_somebody_else(app: FastAPI, service: FakeService, client: AppClient) -> None:
    paths = sorted(set(reads_of_views(app, service)))
    assert len(paths) > 30
    for path in paths:
        queries = ["?for_ms=20", "?for_ms=20&key=h1"] if path.endswith("/changes") else QUERIES
        for query in queries:
            answer = client.get(f"{path}{query}", headers=caller(sub="nobody"))
            if answer.status_code == 404:
                assert answer.json()["type"] == "urn:headwater:problem:row_missing"
                continue
            text = answer.text.replace(path, "")
            assert HERS not in text and ELSEWHERE not in text, (path, query, text)
            if answer.status_code == 200 and "/subjects" not in path and not path.endswith("/changes"):
                found = answer.json()
                assert not any(found["rows"]) and not found.get("total"), (path, query, found)
    seen = [
        path
        for path in paths
        if not path.endswith("/changes") and ELSEWHERE in client.get(path, headers=caller("operate")).text
    ]
    assert len(seen) > 10, "else the test could not fail"


def test_a_row_by_key_is_missing_exactly_as_one_that_never_was(client: AppClient) -> None:
    for view in ("notes", "plain_notes", "cached_notes", "then"):
        assert client.get(f"/views/{view}/n1", headers=caller()).json()["note_id"] == "n1"
        hers, none = (client.get(f"/views/{view}/{key}", headers=caller()) for key in ("h1", "x1"))
        assert (hers.status_code, hers.headers["content-type"]) == (404, "application/problem+json")
        assert hers.text.replace("h1", "x1") == none.text
        assert hers.headers == none.headers
        several = client.get(f"/views/{view}/rows?key=h1&key=n1&key=x&fields=words,note_id", headers=caller())
        assert keys(several) == [None, "n1", None]
        assert client.get(f"/views/{view}/h1", headers=caller("operate")).status_code == 200


def test_lists_counts_and_searches(client: AppClient) -> None:
    for view in ("notes", "plain_notes", "then"):
        answer = client.get(f"/views/{view}?count=true", headers=caller())
        assert (keys(answer), answer.json()["total"]) == (["n1", "n2"], 2)
        assert keys(client.get(f"/views/{view}?owner={HERS}", headers=caller())) == []
        assert keys(client.get(f"/views/{view}?owner.ne={MINE}", headers=caller())) == []
        assert keys(client.get(f"/views/{view}?or=(owner={HERS},owner.is_null=true)", headers=caller())) == []
        every = client.get(f"/views/{view}?count=true", headers=caller("operate"))
        assert every.json()["total"] == len(ROWS)
    found = client.get("/views/notes/search?q=x", headers=caller())
    assert (keys(found), found.json()["total"]) == (["n1", "n2"], 2)


@pytest.mark.parametrize("scope", ["rows:notes", "rows:*", "rows:not*"])
def test_who_may_read_all_rows_of_a_view_needs_nothing_else(client: AppClient, scope: str) -> None:
    receptionist = bearer(token(scope, sub="nobody"))
    assert len(client.get("/views/notes", headers=receptionist).json()["rows"]) == len(ROWS)
    assert client.get("/views/notes/search?q=x", headers=receptionist).json()["total"] == len(ROWS)
    assert [client.get(f"/views/notes/{key}", headers=receptionist).status_code for key in ("n1", "h1")] == [200, 200]
    assert client.get("/views", headers=receptionist).json()["views"], "it may read them"
    assert client.get("/views/notes/changes?for_ms=1", headers=receptionist).status_code == 200
    for path in ("/console", "/streams/note/n1", "/streams/$all", "/views/streams", "/metrics"):
        assert client.get(path, headers=receptionist).status_code == 403, path
    assert client.get("/views/plain_notes", headers=receptionist).status_code == (200 if scope == "rows:*" else 403)
    both = bearer(token("rows:notes", "views:plain_notes", sub="nobody"))
    assert client.get("/views/plain_notes", headers=both).json()["rows"] == [], "those of others of another view"


def test_rankings_of_one_owner_answer_and_those_of_all_do_not(client: AppClient, service: FakeService) -> None:
    service.readers["postgres"].rows["notes"].clear()
    assert keys(client.get(f"/views/notes?sort=-size&owner={MINE}", headers=caller())) == ["n1", "n2"]
    assert keys(client.get(f"/views/notes?sort=-size&owner={HERS}", headers=caller())) == []
    # the condition itself says whose group it is
    assert keys(client.get("/views/notes?sort=-size", headers=caller())) == ["n1", "n2"]
    assert len(keys(client.get("/views/notes?sort=-size", headers=caller("operate")))) == len(ROWS)


def test_a_cursor_is_of_no_use_to_another_reader(client: AppClient) -> None:
    pages = {}
    for name, headers in (("mine", caller()), ("hers", caller(sub=HERS)), ("all", caller("operate"))):
        first = client.get("/views/notes?limit=1&sort=-words", headers=headers).json()
        pages[name] = first["next"]
        same = client.get(
            "/views/notes", params={"limit": 1, "sort": "-words", "cursor": first["next"]}, headers=headers
        )
        assert same.status_code == 200
    for name in ("hers", "all"):
        refused = client.get(
            "/views/notes", params={"limit": 1, "sort": "-words", "cursor": pages[name]}, headers=caller()
        )
        assert (refused.status_code, refused.json()["parameter"]) == (422, "cursor")
    document = json.loads(base64.urlsafe_b64decode(pages["mine"] + "=="))
    assert ELSEWHERE not in str(document)
    document[1:] = ["zzz", "zzz"]  # made up: a position says nothing about rows that are not there
    forged = base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
    answer = client.get("/views/notes", params={"limit": 1, "sort": "-words", "cursor": forged}, headers=caller())
    assert len(keys(answer)) == 1


def test_rows_that_are_looked_up(client: AppClient) -> None:
    rows = client.get("/views/subjects", headers=caller()).json()["rows"]
    assert {row["about"]: (row["words"], row["note_owner"]) for row in rows} == {
        "a": ("n1 mine", MINE),
        "b": (None, None),
        "c": (None, None),
    }
    assert client.get("/views/subjects/b", headers=caller()).json()["words"] is None
    assert client.get("/views/subjects/b", headers=caller("operate")).json()["words"] == f"h1 {ELSEWHERE}"


NO_CLAIMS: list[Any] = [None, True, 2.0, "02", "2 ", "+2", "٢", [], {}, [[2]], 2**63, "x" * 50]


@pytest.mark.parametrize(
    ("claims", "seen"),
    [
        ({"teams": 1}, {"n1", "n2", "h1", "none"}),
        ({"teams": [2, 3]}, {"h2"}),
        ({"teams": "2"}, {"h2"}),
        ({"teams": ["1", 2]}, {row["note_id"] for row in ROWS}),
        ({}, set()),
        *(({"teams": value}, set()) for value in NO_CLAIMS),
    ],
)
def test_what_a_claim_equals(client: AppClient, claims: dict[str, Any], seen: set[str]) -> None:
    assert set(keys(client.get("/views/team_notes", headers=caller(**claims)))) == seen


@pytest.mark.parametrize("value", ["", "USER-1", "user-1 ", "user-1\0", "user-1\ufffd", "\ud800", 1, True, ["user-10"]])
def test_a_text_is_equal_or_not(service: FakeService, value: Any) -> None:
    (condition,) = readable(service.views["notes"], {"sub": value})
    assert MINE not in condition.values
    assert all(isinstance(each, str) and "\0" not in each for each in condition.values)


def test_without_a_reader_nothing_is_readable(service: FakeService) -> None:
    """A route that forgets to say who reads shows nothing: every store adds these conditions to every read."""
    view = service.views["notes"]
    live = Live(view, 1, view.tag, {})
    assert not any(map(live.shows, ROWS))
    assert all(not each.values for each in live.of_reader)
    assert Live(service.views["streams"], 1, "", {}).conditions == ()


def test_a_key_has_its_name_and_claims_and_its_changed_claims_end_what_it_follows() -> None:
    from headwater.api.guard.keys import _content, new_key, now

    _, stored = new_key("ci", ["views:*"], now(), None, {"tenant": "acme"})
    view = fake_service(modules=MODULES).views["notes"]
    assert _content({stored.id: stored}).callers[stored.id].readable(view)[0].values == ("ci",)
    changed = msgspec.structs.replace(stored, claims={"tenant": "other"})
    assert _content({stored.id: changed}).callers != _content({stored.id: stored}).callers


def test_an_open_api_shows_all_rows_and_says_so(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    opened = fake_service(modules=MODULES)
    catch_up(opened)
    opened.readers["postgres"].rows["notes"] = {row["note_id"]: row for row in ROWS}
    assert len(keys(AppClient(create_app(opened)).get("/views/notes"))) == len(ROWS)
    assert "readable_by" in caplog.text and "notes" in caplog.text
    caplog.clear()
    create_app(service)
    assert "readable_by" not in caplog.text


def test_views_without_readers_are_read_as_before(service: FakeService) -> None:
    view: View = service.views["streams"]
    assert not view.readable_by
    assert own_rows.notes.fingerprint == replace(own_rows.notes, readable_by={}).fingerprint
    assert own_rows.note_sizes.fingerprint == replace(own_rows.note_sizes, readable_by={}).fingerprint
    assert replace(own_rows.notes, readable_by={"team": Claim("t")}).named("x").readable_by == {"team": Claim("t")}
    assert ServedView(service, view).finder is not None
