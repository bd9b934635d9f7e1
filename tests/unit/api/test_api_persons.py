"""`GET /persons/{id}`: all events and rows of a person, for whom, in pages; and what a dry run of an erasure counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from headwater import Postgres, TableView, add, count, envelope
from headwater.api import known_persons_cli
from headwater.api.app import create_app
from headwater.api.reading import Made
from headwater.commands.declaring.registry import AnyAggregate
from headwater.eventlog.envelope import encode, timestamp_ms
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.projections.errors import StoreUnavailable
from headwater.projections.table.expressions import format_milliseconds
from tests.support.audited import MemoryTrail
from tests.support.personal_customers import Paid, customer
from tests.support.personal_tenants import Joined, member
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_api_personal import HIDDEN, read
from tests.unit.api.test_guard_routes import guarded

ALL = ("views:*", "streams:*", "personal")
CUSTOMERS = "tests.support.personal_customers"


def made(module: str) -> FakeService:
    service = guarded(fake_service(modules=[module]))
    catch_up(service)
    service.readers["postgres"].rows["streams"] = {}
    return service


def left_out(*streams: str, **reasons: str) -> dict[str, Any]:
    """What the answer lacks; reasons: by view."""
    return {"streams": list(streams), "views": sorted(reasons), "observations": [], "reasons": reasons}


def happened(
    service: FakeService, aggregate: AnyAggregate, stream: str, version: int, kind: str, **data: Any
) -> dict[str, Any]:
    """An event is in the view of all events; returns its data as it is stored."""
    fields = aggregate.events[kind].sealed_fields
    assert fields is not None
    sealed = fields.sealed(orjson.loads(orjson.dumps(data)), stream.partition("/")[2])
    recorded = event(stream, version, kind, **sealed)
    service.readers["postgres"].rows["streams"][recorded.id] = {
        "event_id": recorded.id,
        "stream": stream,
        "time": format_milliseconds(timestamp_ms(recorded.time)),
        "record": encode(recorded).decode(),
    }
    return sealed


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    """C1 is registered, and pays C2 and then nobody by name; C3 only is a contact of C1."""
    service = made(CUSTOMERS)
    contact = {"person_id": "C3", "phone": "+44-canary", "note": "note-canary"}
    registered = happened(
        service, customer, "customer/C1", 1, "customer.registered",
        customer_id="C1", email="ada@canary", name="Ada Canary", born=1815, contacts=[contact],
    )  # fmt: skip
    paid = happened(
        service, customer, "customer/C1", 2, "customer.paid",
        customer_id="C1", payee_id="C2", payer_name="Ada Canary", payee_name="Grace Canary", cents=5,
    )  # fmt: skip
    happened(
        service, customer, "customer/C1", 3, "customer.paid",
        customer_id="C1", payee_id="C2", payer_name=None, payee_name=None, cents=7,
    )  # fmt: skip
    happened(
        service, customer, "customer/C9", 1, "customer.registered",
        customer_id="C9", email="other@canary", name="Other", born=None, contacts=None,
    )  # fmt: skip
    rows = service.readers["postgres"].rows
    rows["customers"] = {
        "C1": {
            "customer_id": "C1", "email": registered["email"], "name": registered["name"],
            "born": registered["born"], "payees": [paid["payee_name"], None], "payments": 2,
        },
        "C9": {"customer_id": "C9", "email": None, "name": None, "born": None, "payees": None, "payments": 0},
    }  # fmt: skip
    everywhere = {"customer_id": "C1", "email": registered["email"], "contacts": orjson.dumps(registered["contacts"])}
    everywhere["contacts"] = everywhere["contacts"].decode()
    for reader in service.readers.values():
        reader.rows["customers_everywhere"] = {"C1": everywhere}
    return service


def test_all_events_and_rows_of_a_person_are_there_and_values_of_others_are_hidden(service: FakeService) -> None:
    answer = read(service, "/persons/C1", *ALL).json()
    assert [each["id"] for each in answer["events"]] == [f"customer/C1/{version}" for version in (1, 2, 3)]
    registered, paid, unnamed = (each["data"] for each in answer["events"])
    assert (registered["email"], registered["born"]) == ("ada@canary", 1815)
    assert registered["contacts"] == [{"person_id": "C3", "phone": HIDDEN, "note": "note-canary"}]
    assert (paid["payer_name"], paid["payee_name"], unnamed["cents"]) == ("Ada Canary", HIDDEN, 7)
    (row,) = answer["rows"]["customers"]
    assert (row["email"], row["payees"], row["payments"]) == ("ada@canary", [HIDDEN, None], 2)
    (other,) = answer["rows"]["customers_everywhere"]
    assert other["email"] == "ada@canary"
    assert other["contacts"] == [{"person_id": "C3", "phone": HIDDEN, "note": "note-canary"}]
    assert (answer["left_out"], answer["links"]) == (left_out(), {})


def test_a_person_that_others_name_has_only_the_events_and_rows_that_show_a_value(service: FakeService) -> None:
    answer = read(service, "/persons/C2", *ALL)
    (paid,) = answer.json()["events"]
    assert (paid["data"]["payee_name"], paid["data"]["payer_name"]) == ("Grace Canary", HIDDEN)
    (row,) = answer.json()["rows"]["customers"]
    assert (row["email"], row["name"], row["payees"]) == (HIDDEN, HIDDEN, ["Grace Canary", None])
    assert "customers_everywhere" not in answer.json()["rows"]
    assert "Ada" not in answer.text
    answer = read(service, "/persons/C3", *ALL).json()
    assert list(answer["rows"]) == ["customers_everywhere"], "the row of the other view has no value of theirs"
    (registered,) = answer["events"]
    assert registered["data"]["contacts"] == [{"person_id": "C3", "phone": "+44-canary", "note": HIDDEN}]


def test_nobody_is_known_by_a_name_that_nobody_has(service: FakeService, keys: MemoryKeys) -> None:
    answer = read(service, "/persons/nobody", *ALL).json()
    assert (answer["events"], answer["rows"]) == ([], {})
    assert keys.keys_of("nobody") == (), "asking makes no key"
    assert read(service, "/persons/%00", *ALL).status_code == 422
    assert read(service, f"/persons/{'x' * 1001}", *ALL).status_code == 422
    for query in ("limit=0", "limit=101", "cursor=x", "other=1"):
        assert read(service, f"/persons/C1?{query}", *ALL).status_code == 422


def test_pages_add_up(service: FakeService) -> None:
    path, found = "/persons/C1?limit=1", list[str]()
    while path:
        answer = read(service, path, *ALL).json()
        found += [each["id"] for each in answer["events"]]
        assert len(answer["events"]) == 1
        path = answer["links"].get("next")
    assert found == [f"customer/C1/{version}" for version in (1, 2, 3)]
    strange = "a b/%2F?ü"
    for version in (1, 2):
        mailed = {"customer_id": strange, "address": f"{version}@canary"}
        happened(service, customer, f"customer/{strange}", version, "customer.mailed", **mailed)
    answer = read(service, f"/persons/{quote(strange, safe='')}?limit=1", *ALL).json()
    (event,) = read(service, answer["links"]["next"], *ALL).json()["events"]
    assert (answer["person"], event["data"]["address"]) == (strange, "2@canary")
    cursor = read(service, "/persons/C1?limit=1", *ALL).json()["links"]["next"].partition("cursor=")[2]
    assert read(service, f"/persons/C2?cursor={cursor}", *ALL).status_code == 422, "it is of another person"


def test_after_an_erasure_what_is_left_is_shown_and_later_facts_are_found_by_their_key(
    service: FakeService, keys: MemoryKeys
) -> None:
    keys.erase("C1")
    happened(service, customer, "customer/C1", 4, "customer.mailed", customer_id="C1", address="late@canary")
    answer = read(service, "/persons/C1", *ALL)
    registered, _, _, late = (each["data"] for each in answer.json()["events"])
    assert (registered["email"], registered["name"], late["address"]) == (None, "(erased)", "late@canary")
    assert answer.json()["rows"]["customers"][0]["name"] == "(erased)"
    assert "Ada" not in answer.text
    (paid,) = read(service, "/persons/C2", *ALL).json()["events"]
    assert paid["data"]["payee_name"] == "Grace Canary"


def test_scopes_decide_and_the_answer_says_what_it_lacks(service: FakeService) -> None:
    for scopes in (("views:*", "streams:*", "operate"), ("erase",)):
        assert read(service, "/persons/C1", *scopes).status_code == 403
    answer = read(service, "/persons/C1", "personal").json()
    assert (answer["events"], answer["rows"]) == ([], {})
    assert answer["left_out"] == left_out("customer", customers="forbidden", customers_everywhere="forbidden")
    answer = read(service, "/persons/C1", "personal", "streams:customer", "views:customers").json()
    assert (len(answer["events"]), list(answer["rows"])) == (3, ["customers"])
    assert answer["left_out"] == left_out(customers_everywhere="forbidden")
    assert len(read(service, "/persons/C1", "personal", "operate").json()["events"]) == 3


def test_rows_whose_key_is_the_person_are_there_and_others_of_the_same_name_are_not(service: FakeService) -> None:
    """The row of a payee's payments is that of the payee; of views by stream and by event those of the own stream."""
    by_payee = TableView(name="paid", key="payee_id", columns={"cents": add({Paid: "cents"})}, stores=(Postgres(),))
    by_stream = TableView(
        name="by_stream", key=envelope("stream"), key_name="stream", columns={"n": count(Paid)}, stores=(Postgres(),)
    )
    views = {span.name: span for span in (by_payee, by_stream)}
    service = replace(service, views={**service.views, **views})
    rows = service.readers["postgres"].rows
    rows["paid"] = {"C2": {"payee_id": "C2", "cents": 12}}
    rows["by_stream"] = {"customer/C1": {"stream": "customer/C1", "n": 2}}
    of_payer, of_payee = (read(service, f"/persons/{each}", *ALL).json()["rows"] for each in ("C1", "C2"))
    assert (of_payer.get("by_stream"), of_payer.get("paid")) == ([{"stream": "customer/C1", "n": 2}], None)
    assert (of_payee.get("by_stream"), of_payee.get("paid")) == (None, [{"payee_id": "C2", "cents": 12}])


def test_the_row_of_a_tenant_with_the_name_of_a_person_is_not_theirs(keys: MemoryKeys) -> None:
    by_tenant = TableView(name="by_tenant", key="tenant", columns={"n": count(Joined)}, stores=(Postgres(),))
    service = made("tests.support.personal_tenants")
    service = replace(service, views={**service.views, "by_tenant": by_tenant})
    data = {"tenant": "acme", "member_id": "M", "person_id": "acme", "name": "Ada"}
    happened(service, member, "member/acme/M", 1, "member.joined", **data)
    rows = service.readers["postgres"].rows
    rows["by_tenant"] = {"acme": {"tenant": "acme", "n": 100}}
    rows["member_of"] = {"acme": {"person_id": "acme", "tenant": "acme"}}
    answer = read(service, "/persons/acme/acme", "operate", "personal").json()
    assert ([each["data"]["name"] for each in answer["events"]], list(answer["rows"])) == (["Ada"], ["member_of"])


def test_rows_of_views_that_were_made_with_as_are_there_too(service: FakeService) -> None:
    rows, generations = service.readers["postgres"].rows, service.generations
    for name, view, version in (
        ("customers_then", "customers", 1),
        ("customers_once", "customers", 7),
        ("all_then", "streams", 1),
        ("of_nothing", "removed", 1),
    ):
        generations.made_views[name] = Made(name, view, version, "", {}, None)
    rows["customers_then"] = {"C1": rows["customers"]["C1"] | {"payments": 1}, "C9": rows["customers"]["C9"]}
    answer = read(service, "/persons/C1?after=0:1", *ALL).json()
    (row,) = answer["rows"]["customers_then"]
    assert (row["email"], row["payees"], row["payments"]) == ("ada@canary", [HIDDEN, None], 1)
    assert answer["left_out"] == left_out(customers_once="made_earlier", of_nothing="made_earlier")
    answer = read(service, "/persons/C1", "personal", "streams:customer", "views:customers").json()
    assert list(answer["rows"]) == ["customers"]
    assert answer["left_out"]["reasons"]["customers_then"] == "forbidden"
    everything = asyncio.run(known_persons_cli.everything(service, "C1"))
    assert [each["payments"] for each in everything["rows"]["customers_then"]] == [1]


def test_a_view_without_rows_is_named(service: FakeService) -> None:
    service.generations.missing.add("customers")
    answer = read(service, "/persons/C1", *ALL).json()
    assert (len(answer["events"]), list(answer["rows"])) == (3, ["customers_everywhere"])
    assert answer["left_out"] == left_out(customers="no_rows")


def test_without_keys_it_is_answered_later(service: FakeService, keys: MemoryKeys, audit_log: MemoryTrail) -> None:
    keys.is_away = True
    assert read(service, "/persons/C1", *ALL).status_code == 503
    assert audit_log.records[-1].outcome == "failed"


def test_who_asked_is_recorded_without_what_was_found(service: FakeService, audit_log: MemoryTrail) -> None:
    assert read(service, "/persons/C1?limit=0", *ALL).status_code == 422
    assert not audit_log.records, "nothing was read"
    assert read(service, "/persons/C1", *ALL).status_code == 200
    begun, ended = audit_log.records
    assert (begun.verb, begun.phase, begun.arguments) == ("person", "begin", {"person": "C1"})
    assert begun.actor
    assert (ended.action, ended.outcome, ended.reason) == (begun.action, "done", None)
    assert not any(b"anary" in each for each in audit_log.stored)
    assert read(service, "/persons/C1?cursor=x", *ALL).status_code == 422
    assert audit_log.records[-1].outcome == "refused"


def test_nothing_is_shown_that_cannot_be_recorded(service: FakeService, audit_log: MemoryTrail) -> None:
    for phase in ("begin", "end"):
        audit_log.fails = {phase}
        answer = read(service, "/persons/C1", *ALL)
        problem = {"begin": "audit_log_unavailable", "end": "log_unavailable"}[phase]
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, problem)
        assert "anary" not in answer.text and "no broker" not in answer.text and answer.headers["retry-after"]


def test_a_dry_run_and_the_certificate_count_the_events(
    service: FakeService, audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(service, "/persons/C2?dry_run=true", "erase", method="DELETE").json()["events"] == 1
    assert read(service, "/persons/C1", "erase", method="DELETE").json()["events"] == 3
    assert "events about the person: 3" in (audit_log.records[-1].reason or "")
    service.readers["postgres"].errors.append(StoreUnavailable("PostgreSQL", "no answer"))
    done = read(service, "/persons/C2", "erase", method="DELETE").json()
    assert (done["events"], len(done["destroyed"])) == (None, 1), "it is erased, also if nobody can count"


@pytest.mark.parametrize("limit", [1, 50])
def test_of_other_tenants_nothing_is_known(keys: MemoryKeys, limit: int) -> None:
    service = made("tests.support.personal_tenants")
    rows = service.readers["postgres"].rows
    rows["members"] = {}
    for version, tenant in enumerate(("acme", "other", "acme", "other", "other"), 1):
        member_id = f"M{version}"
        data = {"tenant": tenant, "member_id": member_id, "person_id": "P", "name": f"{tenant} name"}
        sealed = happened(service, member, f"member/{tenant}/{member_id}", version, "member.joined", **data)
        key = f"{tenant}/{member_id}"
        rows["members"][key] = {"key": key, "tenant": tenant, "member_id": member_id, "name": sealed["name"]}
    rows["member_of"] = {"P": {"person_id": "P", "tenant": "other"}}

    def known(person: str, *scopes: str, **claims: Any) -> tuple[list[str], list[str], list[Any]]:
        client = AppClient(create_app(service))
        events, members, others = list[str](), list[str](), list[Any]()
        path = f"/persons/{person}?limit={limit}"
        while path:
            answer = client.request("GET", path, headers=bearer(token(*scopes, **claims))).json()
            assert answer["events"] or not events, "no page is empty because the events that follow are of others"
            events += [each["data"]["name"] for each in answer["events"]]
            members += [entry["name"] for entry in answer["rows"].get("members", ())]
            others += answer["rows"].get("member_of", ())
            path = answer["links"].get("next")
        return events, members, others

    assert known("acme/P", *ALL, tenant="acme") == (["acme name"] * 2, ["acme name"] * 2, [])
    assert known("acme/P", *ALL) == known("other/P", *ALL, tenant="acme") == ([], [], [])
    assert len(known("other/P", *ALL, tenant="other")[0]) == 3
    assert known("other/P", *ALL, tenant="other")[2]
    assert len(known("acme/P", "operate", "personal")[0]) == 2
    assert known("P", "operate", "personal")[0] == []


def test_a_person_is_erased_in_one_tenant_and_only_by_a_caller_of_it(keys: MemoryKeys) -> None:
    service = made("tests.support.personal_tenants")
    for tenant in ("acme", "other"):
        data = {"tenant": tenant, "member_id": "M", "person_id": "P", "name": f"{tenant} name"}
        happened(service, member, f"member/{tenant}/M", 1, "member.joined", **data)
    ours, theirs = keys.keys_of("acme/P"), keys.keys_of("other/P")
    assert (len(ours), len(theirs), keys.keys_of("P")) == (1, 1, ())

    def erase(path: str, *scopes: str, **claims: Any) -> Any:
        client = AppClient(create_app(service))
        return client.request("DELETE", f"/persons/{path}", headers=bearer(token("erase", *scopes, **claims)))

    for path in ("other/P", "other/P?dry_run=true", "other/nobody", "P", "acme", "acme%2FP/P"):
        assert erase(path, tenant="acme").status_code == 403, path
    assert erase("acme/P").status_code == 403, "a caller without a tenant"
    planned = erase("acme/P?dry_run=true", tenant="acme").json()
    assert (planned["events"], [destroyed_key["key_id"] for destroyed_key in planned["destroyed"]]) == (
        1,
        [ours[0].key_id],
    )
    assert len(erase("acme/P", tenant="acme").json()["destroyed"]) == 1
    assert keys.keys_of("other/P")[0].erased is None
    assert len(erase("other/P", "operate").json()["destroyed"]) == 1
