"""Personal values over HTTP: who sees them, what others see, what an erasure leaves, and erasing itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from headwater import Postgres, TableView, collect, item, last, nested
from headwater.api.app import create_app
from headwater.api.guard.guard import Guard
from headwater.api.guard.tokens import Roles, Tokens
from headwater.eventlog.envelope import encode
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from tests.support.audited import MemoryTrail
from tests.support.personal_customers import Paid, Registered, customer
from tests.unit.api.asgi_client import AppClient, client_of
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, token
from tests.unit.api.test_guard_tokens import Known

HIDDEN = {"hidden": "personal"}
REGISTERED = {
    "customer_id": "C1",
    "email": "ada@canary.org",
    "name": "Ada Canary",
    "born": 1815,
    "contacts": [{"person_id": "C2", "phone": "+44-canary-1", "note": None}],
}
READER = ("views:*", "streams:*", "commands:*")


listed = TableView(
    name="customers_listed",
    key="customer_id",
    columns={
        "contacts": last({Registered: "contacts"}),
        "paid": collect({Paid: {"to": "payee_id", "name": "payee_name"}}),
        "payees": nested("payee", {Paid: "payee_id"}, {"name": last({Paid: "payee_name"})}),
        "each": nested("person", {Registered: item("contacts", "person_id")}, {
            "phone": last({Registered: item("contacts", "phone")}),
        }),
    },
    stores=(Postgres(),),
)  # fmt: skip
"""Values with personal parts and others."""


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    made = fake_service(modules=["tests.support.personal_customers", __name__])
    catch_up(made)
    made = replace(made, guard=Guard(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles"))))
    fields = customer.events["customer.registered"].sealed_fields
    assert fields is not None
    data = fields.sealed(orjson.loads(orjson.dumps(REGISTERED)), "C1")
    recorded = event("customer/C1", 1, "customer.registered", **data)
    reader = made.readers["postgres"]
    reader.rows["streams"] = {
        recorded.id: {
            "event_id": recorded.id,
            "stream": recorded.stream,
            "sequence": 1,
            "record": encode(recorded).decode(),
        }
    }
    payee = installed().seal("C3", "customer.paid", "payee_name", "Grace Canary")
    row = {"customer_id": "C1", "email": data["email"], "name": data["name"], "born": data["born"], "payments": 1}
    reader.rows["customers"] = {"C1": {**row, "payees": [payee, None]}}
    return made


def read(service: FakeService, path: str, *scopes: str, method: str = "GET", **more: Any) -> Any:
    return client_of(service).request(method, path, headers=bearer(token(*scopes)), **more)


def test_rows_are_opened_for_callers_with_the_scope_and_hidden_from_others(service: FakeService) -> None:
    opened = read(service, "/views/customers/C1", *READER, "personal").json()
    assert opened == {
        "customer_id": "C1",
        "email": "ada@canary.org",
        "name": "Ada Canary",
        "born": 1815,
        "payments": 1,
        "payees": ["Grace Canary", None],
    }
    for scopes in (READER, (*READER, "operate")):
        answer = read(service, "/views/customers/C1", *scopes)
        assert "canary" not in answer.text.lower()
        assert "sealed:" not in answer.text
        hidden = dict.fromkeys(("email", "name", "born"), HIDDEN)
        assert answer.json() == {"customer_id": "C1", **hidden, "payments": 1, "payees": [HIDDEN, None]}


def test_a_sealed_text_that_a_client_has_copied_into_a_plain_part_of_a_column_is_not_opened(
    service: FakeService,
) -> None:
    rows = service.readers["postgres"].rows
    taken = rows["customers"]["C1"]["email"]
    phone = installed().seal("C9", "customer.registered", "contacts.phone", "+44-canary-9")
    name = installed().seal("C9", "customer.paid", "payee_name", "Own Canary")
    contacts = [{"person_id": taken, "phone": phone, "extra": {"phone": taken}}]
    rows["customers_listed"] = {
        "C9": {
            "customer_id": "C9",
            "contacts": orjson.dumps(contacts).decode(),
            "paid": [{"to": taken, "name": name}],
            "payees": [{"payee": taken, "name": name}],
            "each": [{"person": taken, "phone": phone}],
        }
    }
    opened = read(service, "/views/customers_listed/C9", *READER, "personal")
    assert "ada@" not in opened.text
    assert opened.json() == {
        "customer_id": "C9",
        "contacts": [{"person_id": taken, "phone": "+44-canary-9", "extra": {"phone": taken}}],
        "paid": [{"to": taken, "name": "Own Canary"}],
        "payees": [{"payee": taken, "name": "Own Canary"}],
        "each": [{"person": taken, "phone": "+44-canary-9"}],
    }
    hidden = read(service, "/views/customers_listed/C9", *READER)
    assert "canary" not in hidden.text.lower()
    assert hidden.json()["each"] == [{"person": taken, "phone": HIDDEN}]


@pytest.mark.parametrize("path", ["/views/customers", "/views/customers/rows?key=C1"])
def test_pages_are_opened_and_hidden_as_rows(service: FakeService, path: str) -> None:
    assert read(service, path, *READER, "personal").json()["rows"][0]["email"] == "ada@canary.org"
    assert read(service, path, *READER).json()["rows"][0]["email"] == HIDDEN


@pytest.mark.parametrize("query", ["email=ada@canary.org", "born.gte=1", "sort=email", "sort=-name", "or=(email=x)"])
def test_rows_are_not_filtered_or_sorted_by_personal_columns(service: FakeService, query: str) -> None:
    assert read(service, f"/views/customers?{query}", *READER, "personal").status_code == 422


def test_events_and_states_are_opened_and_hidden(service: FakeService) -> None:
    (opened,) = read(service, "/streams/customer/C1", *READER, "personal").json()["events"]
    assert opened["data"] == REGISTERED
    answer = read(service, "/streams/customer/C1", *READER)
    assert "canary" not in answer.text.lower()
    assert answer.json()["events"][0]["data"]["email"] == HIDDEN
    state = read(service, "/streams/customer/C1?version=1", *READER, "personal").json()["state"]
    assert (state["email"], state["contacts"][0]["phone"]) == ("ada@canary.org", "+44-canary-1")
    hidden = read(service, "/streams/customer/C1?version=1", *READER)
    assert "canary" not in hidden.text.lower()
    assert hidden.json()["state"]["contacts"][0] == {"person_id": "C2", "phone": HIDDEN, "note": None}


def test_an_erased_person_is_shown_as_what_is_left(service: FakeService, keys: MemoryKeys) -> None:
    keys.erase("C1")
    row = read(service, "/views/customers/C1", *READER, "personal").json()
    assert (row["email"], row["name"], row["born"]) == (None, "(erased)", None)
    assert row["payees"] == ["Grace Canary", None]
    (shown,) = read(service, "/streams/customer/C1", *READER, "personal").json()["events"]
    assert (shown["data"]["name"], shown["data"]["contacts"][0]["phone"]) == ("(erased)", "+44-canary-1")
    state = read(service, "/streams/customer/C1?version=1", *READER, "personal").json()["state"]
    assert (state["email"], state["name"]) == (None, "(erased)")


def test_without_keys_what_is_not_personal_goes_on(service: FakeService, keys: MemoryKeys) -> None:
    keys.is_away = True
    away = read(service, "/views/customers/C1", *READER, "personal")
    assert (away.status_code, away.json()["type"].rpartition(":")[2]) == (503, "keys_unavailable")
    assert int(away.headers["Retry-After"]) > 0
    assert read(service, "/views/customers/C1?fields=payments", *READER, "personal").json() == {"payments": 1}
    assert read(service, "/views/customers/C1", *READER).json()["email"] == HIDDEN
    sent = read(service, "/commands/customer.register", *READER, method="POST", json=REGISTERED)
    assert (sent.status_code, sent.json()["type"].rpartition(":")[2]) == (503, "keys_unavailable")
    pay = {"customer_id": "C1", "payee_id": "C2", "cents": 1}
    assert read(service, "/commands/customer.pay", *READER, method="POST", json=pay).status_code == 201


def test_a_damaged_or_unknown_value_is_shown_as_unreadable(service: FakeService) -> None:
    rows = service.readers["postgres"].rows["customers"]
    rows["C1"]["email"] = f"sealed:1:{24 * '0'}1:customer.registered:email:AAAA".replace("0", "", 1)
    rows["C1"]["name"] = rows["C1"]["name"].replace("sealed:1:", "sealed:9:")
    row = read(service, "/views/customers/C1", *READER, "personal").json()
    assert row["email"] == row["name"] == {"hidden": "unreadable"}
    assert row["born"] == 1815


@pytest.mark.parametrize("text", ["sealed:", "sealed: yes", "sealed:9", "sealed:1:000:customer.registered:email:AAAA"])
def test_a_text_that_begins_as_a_sealed_one_is_what_somebody_has_written(service: FakeService, text: str) -> None:
    service.readers["postgres"].rows["customers"]["C1"]["email"] = text  # from before the field was personal
    for scopes in (READER, (*READER, "personal")):
        assert read(service, "/views/customers/C1", *scopes).json()["email"] == text


def test_a_sealed_text_that_a_client_has_copied_into_another_field_is_not_opened(service: FakeService) -> None:
    rows = service.readers["postgres"].rows["streams"]
    (taken,) = (orjson.loads(row["record"])["data"]["email"] for row in rows.values())
    fields = customer.events["customer.registered"].sealed_fields
    assert fields is not None
    told = {**REGISTERED, "customer_id": "C9", "contacts": [{"person_id": taken, "phone": taken, "note": taken}]}
    data = fields.sealed(orjson.loads(orjson.dumps(told)), "C9")
    for version, own in ((1, data), (1, {**data, "remark": taken, "more": {"email": taken}})):
        recorded = event("customer/C9", version, "customer.registered", **own)
        rows[recorded.id] = {
            "event_id": recorded.id,
            "stream": recorded.stream,
            "sequence": version,
            "record": encode(recorded).decode(),
        }
        answer = read(service, "/streams/customer/C9", *READER, "personal")
        assert answer.text.lower().count("ada@canary.org") == 1, "their own"
        (shown,) = answer.json()["events"]
        assert shown["data"]["contacts"][0]["note"] == taken


def test_erasing_needs_its_scope_is_recorded_and_can_be_repeated(
    service: FakeService, keys: MemoryKeys, audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(service, "/persons/C1", *READER, "operate", method="DELETE").status_code == 403
    before = len(audit_log.records)
    planned = read(service, "/persons/C1?dry_run=true", "erase", method="DELETE").json()
    assert (planned["dry_run"], len(planned["destroyed"]), len(audit_log.records)) == (True, 1, before)
    assert read(service, "/views/customers/C1", *READER, "personal").json()["email"] == "ada@canary.org"
    done = read(service, "/persons/C1", "erase", method="DELETE")
    assert done.status_code == 200
    assert [destroyed_key["key_id"] for destroyed_key in done.json()["destroyed"]] == [keys.keys_of("C1")[0].key_id]
    assert read(service, "/views/customers/C1", *READER, "personal").json()["email"] is None
    again = read(service, "/persons/C1", "erase", method="DELETE").json()
    assert (again["destroyed"], len(again["earlier"])) == ([], 1)
    begun, certificate, *_ = audit_log.records[before:]
    assert (begun.verb, begun.phase, certificate.phase, certificate.outcome) == ("erase", "begin", "end", "done")
    assert certificate.arguments == {"person": "C1", "keys": [key.key_id for key in keys.keys_of("C1")]}
    assert certificate.actor is not None
    assert keys.keys_of("C1")[0].key_id in (certificate.reason or "")
    assert "vacuum" in (certificate.reason or "")
    assert "canary" not in certificate.to_json().decode().lower()


def test_an_erasure_that_cannot_be_recorded_is_not_done(
    service: FakeService, keys: MemoryKeys, audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "fails", {"begin"})
    assert read(service, "/persons/C1", "erase", method="DELETE").status_code == 503
    assert [key.erased for key in keys.keys_of("C1")] == [None]


def test_a_deployment_without_personal_fields_has_no_such_path() -> None:
    assert AppClient(create_app(fake_service())).request("DELETE", "/persons/C1").status_code == 404
