"""Who finds rows by plaintext columns, and what an erasure says of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from headwater.api.guard.guard import Guard
from headwater.api.guard.tokens import Roles, Tokens
from headwater.eventlog.erasing.person import RowsFound
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from tests.support.audited import MemoryTrail
from tests.unit.api.fake_service import FakeService, catch_up, fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER
from tests.unit.api.test_api_personal import HIDDEN, READER, read
from tests.unit.api.test_guard_tokens import Known

PATH = "/views/known_customers"


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    made = fake_service(modules=["tests.support.clear_customers"])
    catch_up(made)
    mail = installed().seal("C1", "customer.registered", "email", "ada@canary.org")
    empty = {"customer_id": "C1", "name": None, "born": None, "payee": None, "payments": 1}
    for name in ("postgres", "elasticsearch"):
        made.readers[name].rows["known_customers"] = {"C1": {**empty, "email": mail}}
    return replace(made, guard=Guard(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles"))))


@pytest.mark.parametrize(
    "query",
    ["email=ada@canary.org", "email.prefix=a", "born=1815", "payee.is_null=true", "or=(email=x,payments=1)"],
)
@pytest.mark.parametrize("path", [PATH, f"{PATH}/search"])
def test_only_callers_with_the_scope_filter_by_them(service: FakeService, path: str, query: str) -> None:
    assert read(service, f"{path}?{query}", *READER, "personal").status_code == 200
    refused = read(service, f"{path}?{query}", *READER, "operate")
    assert (refused.status_code, "scope personal" in refused.text) == (422, True)


@pytest.mark.parametrize("query", ["name=Ada", "sort=email", "sort=-born"])
def test_sealed_columns_and_orders_are_refused_as_ever(service: FakeService, query: str) -> None:
    assert read(service, f"{PATH}?{query}", *READER, "personal").status_code == 422


def test_words_of_them_are_searched_for_callers_with_the_scope_only(service: FakeService) -> None:
    path = f"{PATH}/search?q=ada&highlight=true"
    assert read(service, path, *READER, "personal").json()["rows"][0]["email"] == "ada@canary.org"
    assert read(service, path, *READER, "operate").status_code == 403
    # a search without columns for it would look into every field
    assert read(service, "/views/unsearched_customers/search?q=ada@canary.org", *READER).status_code == 403
    assert read(service, f"{PATH}/search", *READER).json()["rows"][0]["email"] == HIDDEN


def test_the_document_has_the_filters_of_the_store_that_answers(service: FakeService) -> None:
    paths = read(service, "/openapi.json", *READER, "operate").json()["paths"]
    for path in (PATH, f"{PATH}/search"):
        names = {entry["name"] for entry in paths[path]["get"]["parameters"]}
        assert {"email", "email.prefix", "born", "payee"} <= names
        assert not {"name", "name.prefix"} & names
    sealed = {entry["name"] for entry in paths["/views/sealed_customers"]["get"]["parameters"]}
    assert "email" not in sealed


class Emptied:
    """Rows in two stores, of which one does not answer."""

    def __init__(self) -> None:
        self.key_ids: list[list[str]] = []

    def count(self, key_ids: Collection[str]) -> Sequence[RowsFound]:
        return self.empty(key_ids)

    def empty(self, key_ids: Collection[str]) -> Sequence[RowsFound]:
        self.key_ids.append(list(key_ids))
        return [RowsFound("postgres", "known_customers", 2, 3), RowsFound("elasticsearch", problem="it is away")]


def test_a_dry_run_and_the_certificate_say_what_was_found_where(
    service: FakeService, keys: MemoryKeys, audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = Emptied()
    served = replace(service, in_clear=clear)
    before = [key.key_id for key in keys.keys_of("C1")]
    planned = read(served, "/persons/C1?dry_run=true", "erase", method="DELETE").json()
    assert [(store["store"], store["rows"], store["problem"]) for store in planned["in_clear"]] == [
        ("postgres", 3, ""),
        ("elasticsearch", 0, "it is away"),
    ]
    done = read(served, "/persons/C1", "erase", method="DELETE").json()
    again = read(served, "/persons/C1", "erase", method="DELETE").json()
    assert (len(done["destroyed"]), len(again["destroyed"])) == (1, 0)
    assert clear.key_ids == [before, before, before], "also of an erasure that was interrupted"
    reason = audit_log.records[-1].reason or ""
    assert "rows whose plaintext values were emptied: postgres known_customers g2: 3" in reason
    assert "elasticsearch was unavailable, and is emptied by a running read side: it is away" in reason
    assert read(service, "/persons/C1?dry_run=true", "erase", method="DELETE").json()["in_clear"] is None
