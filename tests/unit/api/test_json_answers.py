"""Columns of JSON over HTTP: answers have JSON, and not texts that hold JSON, with all digits as they were recorded."""

from __future__ import annotations

import asyncio
import html
import json
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from headwater.api.app import create_app
from headwater.api.changes.changed_rows import ChangedRows
from headwater.api.changes.patch_tail import Touch
from headwater.api.changes.subscription import Change
from headwater.api.guard.caller import ANYONE
from headwater.api.guard.guard import Guard
from headwater.api.guard.tokens import Roles, Tokens
from headwater.api.reading import KeyReaders, Row
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.projections.kinds import table_view
from headwater.projections.reading import reader
from tests.support.planned import LONG, STORES, answered, planned, sources
from tests.unit.api.asgi_client import client_of
from tests.unit.api.console_world import Browser
from tests.unit.api.fake_service import FakeService, catch_up, fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, token
from tests.unit.api.test_guard_tokens import Known

P1 = planned()
P2 = planned("P2", rank=2, note="[1", stage="draft", details={}, parts=[], people=[])
P3 = planned("P3", rank=3, note="5", stage=None, details={"b": "1"})
READER = ("views:*",)


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    made = fake_service(modules=["tests.support.planned"])
    catch_up(made)
    made = replace(made, guard=Guard(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles"))))
    for name, view in made.views.items():
        if name.startswith("plan"):
            rows = reader.fold(table_view(view), sources(P1, P2, P3))
            made.readers[view.stores[0].name].rows[name] = rows
    return made


def read(service: FakeService, path: str, *scopes: str) -> Any:
    answer = client_of(service).get(path, headers=bearer(token(*READER, *scopes)))
    assert answer.status_code == 200, answer.text
    return answer


def shown(row: Row) -> Row:
    return {name: row[name] for name in answered(P1, opened=True)}


@pytest.mark.parametrize("store", STORES)
def test_every_read_of_rows_answers_json(service: FakeService, store: str) -> None:
    path = f"/views/plans_in_{store}"
    for data in (P1, P2, P3):
        row = read(service, f"{path}/{data['plan_id']}", "personal").json()
        assert shown(row) == answered(data, opened=True)
        assert row["record"]["data"]["details"] == data["details"]
    one, none, two = read(service, f"{path}/rows?key=P1&key=P9&key=P2", "personal").json()["rows"]
    assert (shown(one), none, shown(two)) == (answered(P1, opened=True), None, answered(P2, opened=True))
    page = read(service, f"{path}?sort=-rank&limit=2", "personal").json()
    assert [shown(row) for row in page["rows"]] == [answered(P3, opened=True), answered(P2, opened=True)]
    (last,) = read(service, page["links"]["next"], "personal").json()["rows"]
    assert shown(last) == answered(P1, opened=True)
    assert read(service, f"{path}/P1?fields=details").json() == {"details": P1["details"]}
    assert read(service, f"{path}/P1?fields=rank").json() == {"rank": 1}


def test_a_search_answers_json(service: FakeService) -> None:
    found = read(service, "/views/plans_in_elasticsearch/search?q=plan&highlight=true", "personal").json()
    assert [shown(row) for row in found["rows"]] == [answered(each, opened=True) for each in (P1, P2, P3)]


def test_numbers_are_answered_digit_by_digit(service: FakeService) -> None:
    text = read(service, "/views/plans_in_postgres/P1", "personal").text
    assert f'"details":{{"n":{LONG},"deep":[{{"a":[1,2.5,null,true,' in text
    assert f'"age":{LONG}' in text, "beside a value that was sealed"
    assert f'"extra":{{"n":{LONG}}}' in text, "in a list"


@pytest.mark.parametrize("opened", [True, False])
def test_what_is_personal_is_opened_or_hidden_inside_of_json(service: FakeService, opened: bool) -> None:
    row = read(service, "/views/plans_in_postgres/P1", *(["personal"] if opened else [])).json()
    assert row["people"] == answered(P1, opened=opened)["people"]
    assert row["people"][0]["age"] == LONG


def test_looked_up_columns_are_json(service: FakeService) -> None:
    row = read(service, "/views/plan_parts/S2", "personal").json()
    known = answered(P3, opened=True)
    assert row["sizes"] == [1, 2.5]
    looked_up = (row["plan_details"], row["plan_people"], row["plan_story"])
    assert looked_up == (known["details"], known["people"], known["story"])
    hidden = read(service, "/views/plan_parts/S2").json()
    assert (hidden["plan_people"], hidden["plan_details"]) == (answered(P3, opened=False)["people"], known["details"])


def test_a_view_of_all_events_has_them_as_json(service: FakeService) -> None:
    event = sources(P2)[0]
    columns = {"event_id": event.envelope.id, "stream": event.envelope.stream, "record": event.record}
    service.readers["postgres"].rows["streams"] = {event.envelope.id: columns}
    answer = read(service, f"/views/streams/{event.envelope.id}", "streams:*")
    assert answer.json()["record"] == json.loads(event.record)


def test_null_stays_null(service: FakeService) -> None:
    reader = service.readers["postgres"]
    row = reader.rows["plans_in_postgres"]["P1"]
    reader.rows["plans_in_postgres"]["P1"] = {name: None for name in row} | {"plan_id": "P1"}
    assert set(read(service, "/views/plans_in_postgres/P1").json().values()) == {None, "P1"}


def test_the_document_says_what_columns_of_json_may_have(service: FakeService) -> None:
    document = read(service, "/openapi.json").json()
    schemas = document["components"]["schemas"]
    columns = schemas["plans_in_postgres.row"]["properties"]
    assert columns["details"]["anyOf"][0]["type"] == "object"
    assert columns["price"]["anyOf"][0]["type"] == "string"
    assert columns["whole_parts"]["anyOf"][0]["items"] == {
        "$ref": "#/components/schemas/plans_in_postgres.row.whole_parts.Part"
    }
    assert "description" in columns["people"], "a personal column"
    row = jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/plans_in_postgres.row", "components": document["components"]}
    )
    part = jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/plan_parts.row", "components": document["components"]}
    )
    for scopes in ((), ("personal",)):
        for key in ("P1", "P2", "P3"):
            row.validate(read(service, f"/views/plans_in_postgres/{key}", *scopes).json())
        part.validate(read(service, "/views/plan_parts/S2", *scopes).json())
    with pytest.raises(jsonschema_rs.ValidationError):
        row.validate(read(service, "/views/plans_in_postgres/P1").json() | {"whole_parts": "[]"})


def test_changes_bring_json(service: FakeService) -> None:
    view, reader = service.views["plans_in_postgres"], service.readers["postgres"]
    reader.reached = {0: 10}

    async def changes() -> list[Change]:
        rows = ChangedRows(view, KeyReaders(service.readers, view), service.lookups, service.generations, ANYONE)
        touched = {key: Touch(0, 5, None) for key in ("P1", "P2", "P9")}
        return [change async for portion in rows.portions(touched) for change in portion]

    told = [json.loads(each.event.partition(b"data: ")[2]) for each in asyncio.run(changes())]
    assert [shown(change["row"]) for change in told[:2]] == [answered(each, opened=True) for each in (P1, P2)]
    assert told[2]["row"] is None


@pytest.mark.parametrize(
    ("path", "data"),
    [("plans_in_valkey?sort=-rank", P1), ("plans_in_valkey/row?key=P1", P1), ("plan_parts", P3)],
)
def test_the_console_shows_json_that_can_be_read(service: FakeService, path: str, data: dict[str, Any]) -> None:
    page = Browser(create_app(replace(service, guard=fake_service().guard))).get(f"/console/views/{path}")
    assert page.status_code == 200, page.text
    text = html.unescape(page.text)
    assert json.dumps(data["details"], ensure_ascii=False) in text
    assert "Fragment" not in text
