"""`GET /persons/{id}`: the observations of a person, found by searching the topic page by page."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.api.known_stream_rows import COUNTED_PAGES
from headwater.api.reads.scans import ObservationReader
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import OBSERVATIONS
from tests.support.audited import MemoryTrail
from tests.unit.api.asgi_client import AppClient, client_of
from tests.unit.api.fake_service import PARTITIONS, FakeService, catch_up, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_api_personal import HIDDEN, read
from tests.unit.api.test_guard_routes import guarded

MODULES = ["tests.support.personal_visits", "tests.support.personal_customers"]
ALL = ("views:*", "streams:*", "personal")
NDJSON = {"content-type": "application/x-ndjson"}
SOURCES = ("door", "gate", "roof", "yard")


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    """V1 and V2 visit in turns, 40 times, W as companion of V1; and somebody rings as often."""
    made = fake_service(modules=MODULES)
    made = replace(made, recorder=ObservationRecorder(made.log))  # type: ignore[arg-type]
    client = AppClient(create_app(made))
    visits, rings = list[Any](), list[Any]()
    for number in range(40):
        first = number % 2 == 0
        data: dict[str, Any] = {"visitor_id": "V1" if first else "V2", "room": f"R{number}", "age": 36}
        data["name"] = f"canary {number}"
        data["companions"] = [{"person_id": "W", "phone": f"+44-canary-{number}"}] if first else None
        visits.append({"id": str(number), "source": SOURCES[number % 4], "data": data})
        rings.append({"id": str(number), "source": "door", "data": {"room": f"R{number}"}})
    for kind, reports in (("visited", visits), ("rang", rings)):
        sent = client.post(f"/observations/{kind}", content=b"\n".join(map(orjson.dumps, reports)), headers=NDJSON)
        assert sent.json()["stored"] == len(reports)
    for partition in range(PARTITIONS):
        made.log.submit(Entry(OBSERVATIONS, f"heartbeat/{partition}", b'{"type":"headwater.heartbeat"}', 1), partition)
    catch_up(made)
    made.readers["postgres"].rows["streams"] = {}
    return guarded(made)


def pages(service: FakeService, path: str, *scopes: str) -> list[Any]:
    found, client = list[Any](), client_of(service)
    while path:
        answer = client.get(path, headers=bearer(token(*(scopes or ALL))))
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        path = found[-1]["links"].get("next", "")
    return found


def of_observations(service: FakeService) -> str:
    """The first page of the observations of V1, behind those of events and of rows."""
    rows = read(service, "/persons/V1", *ALL).json()["links"]["next"]
    return str(read(service, rows, *ALL).json()["links"]["next"])


def rooms(found: list[Any]) -> list[int]:
    return sorted(int(event["data"]["room"][1:]) for page in found for event in page["observations"])


@pytest.mark.parametrize(("limit", "at_once"), [(1, 7), (3, 1_000), (100, 1), (100, 5), (50, 1_000)])
def test_pages_have_each_observation_once_and_say_how_far_they_searched(
    service: FakeService, limit: int, at_once: int
) -> None:
    service = replace(service, observed=ObservationReader(service.log, max_offsets=at_once))
    found = pages(service, f"/persons/V1?limit={limit}")
    assert rooms(found) == list(range(0, 40, 2))
    assert all(len(each["observations"]) <= limit for each in found)
    first, rows, *searching = found
    for each in (first, rows):
        assert (each["observations"], each["searched"]) == ([], None)
    size = 40 + 40 + PARTITIONS
    searched = [each["searched"]["observations"] for each in searching]
    assert searched == sorted(searched)
    assert all(after - before <= at_once for before, after in zip([0, *searched], searched, strict=False))
    assert searching[-1]["searched"] == {"observations": size, "of": size}
    assert all(each["left_out"]["observations"] == [] for each in found)


def test_values_of_others_are_hidden(service: FakeService) -> None:
    observed = [each for page in pages(service, "/persons/V1") for each in page["observations"]]
    assert {each["type"] for each in observed} == {"visited"}
    assert all(event["data"]["name"].startswith("canary") and event["data"]["age"] == 36 for event in observed)
    assert {orjson.dumps(event["data"]["companions"]) for event in observed} == {
        orjson.dumps([{"person_id": "W", "phone": HIDDEN}])
    }
    companion = [each for page in pages(service, "/persons/W") for each in page["observations"]]
    assert len(companion) == 20
    assert {orjson.dumps([event["data"]["name"], event["data"]["age"]]) for event in companion} == {
        orjson.dumps([HIDDEN, HIDDEN])
    }
    assert all(event["data"]["companions"][0]["phone"].startswith("+44") for event in companion)
    (nobody,) = pages(service, "/persons/nobody")
    assert (nobody["observations"], nobody["links"]) == ([], {}), "without a key, there is nothing to search"


def test_after_an_erasure_they_are_shown_without_values(service: FakeService, keys: MemoryKeys) -> None:
    keys.erase("V1")
    found = pages(service, "/persons/V1")
    assert rooms(found) == list(range(0, 40, 2))
    assert {event["data"]["name"] for page in found for event in page["observations"]} == {"(erased)"}


def test_who_may_not_read_all_streams_gets_none_and_the_answer_says_so(service: FakeService) -> None:
    for scopes in (("personal",), ("personal", "streams:customer", "observations:*", "views:*")):
        found = pages(service, "/persons/V1", *scopes)[-1]
        assert (found["observations"], found["left_out"]["observations"]) == ([], ["visited"])
    assert rooms(pages(service, "/persons/V1", "operate", "personal"))
    cursor = of_observations(service).partition("cursor=")[2]
    assert read(service, f"/persons/V1?cursor={cursor}", "personal").status_code == 422
    assert read(service, f"/persons/V2?cursor={cursor}", *ALL).status_code == 422, "it is of another person"


def test_with_tenants_observations_are_for_operators(keys: MemoryKeys) -> None:
    made = fake_service(modules=[*MODULES, "tests.support.personal_tenants"])
    catch_up(made)
    made.readers["postgres"].rows["streams"] = {}
    keys.key_of("V1")
    found = pages(guarded(made), "/persons/V1")[-1]
    assert found["left_out"]["observations"] == ["visited"]
    assert pages(guarded(made), "/persons/V1", "operate", "personal")[-1]["left_out"]["observations"] == []


def test_a_cursor_that_somebody_made_up_is_refused_or_finds_nothing(service: FakeService) -> None:
    cursor = of_observations(service).partition("cursor=")[2]
    kind, digest, *_ = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    client, headers = AppClient(create_app(service)), bearer(token(*ALL))

    def answer(*place: Any) -> Any:
        made = base64.urlsafe_b64encode(orjson.dumps([kind, digest, *place])).rstrip(b"=").decode()
        return client.get(f"/persons/V1?cursor={made}", headers=headers)

    assert (answer(99, 0).json()["observations"], answer(99, 0).json()["links"]) == ([], {})
    assert rooms([answer(0, 2**60).json()]), "those of the other partitions"
    for place in ((-1, 0), (0, -1), ("0", 0), (0,), (0, 0, 0), (0.5, 0), (None, None)):
        assert answer(*place).status_code == 422, place


def test_a_log_that_is_away_is_answered_later(
    service: FakeService, audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = of_observations(service)

    def away(*_: object) -> int:
        raise LogUnavailable("asking", "no answer")

    monkeypatch.setattr(service.log, "end", away)
    assert read(service, path, *ALL).status_code == 503
    assert audit_log.records[-1].outcome == "failed"
    erased = read(service, "/persons/V1", "erase", method="DELETE").json()
    assert (erased["observations"], len(erased["destroyed"])) == (None, 1), "it is erased, also if nobody can count"


def test_a_dry_run_and_the_certificate_count_them(service: FakeService, audit_log: MemoryTrail) -> None:
    planned = read(service, "/persons/W?dry_run=true", "erase", method="DELETE").json()
    assert (planned["events"], planned["observations"]) == (0, 20)
    assert read(service, "/persons/nobody?dry_run=true", "erase", method="DELETE").json()["observations"] == 0
    assert read(service, "/persons/V1", "erase", method="DELETE").json()["observations"] == 20
    assert "observations about the person: 20" in (audit_log.records[-1].reason or "")
    enough = -(-(80 + PARTITIONS) // COUNTED_PAGES)
    for at_once, count in ((enough, 20), (enough - 1, None)):
        some = replace(service, observed=ObservationReader(service.log, max_offsets=at_once))
        planned = read(some, "/persons/V1?dry_run=true", "erase", method="DELETE").json()
        assert planned["observations"] == count
