"""Personal values of observations over HTTP: sealed before the log, one and many; without keys, others go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.commands.declaring.observation import sealed_fields
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.topics import OBSERVATIONS
from tests.support.personal_visits import Visited
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import PARTITIONS, FakeService, catch_up, fake_service
from tests.unit.api.test_api_personal import HIDDEN, read
from tests.unit.api.test_guard_routes import guarded

MODULE = "tests.support.personal_visits"
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def service(keys: MemoryKeys) -> FakeService:
    made = fake_service(modules=[MODULE])
    return replace(made, recorder=ObservationRecorder(made.log))  # type: ignore[arg-type]


@pytest.fixture
def client(service: FakeService) -> AppClient:
    return AppClient(create_app(service))


def visited(number: int, **changes: Any) -> dict[str, Any]:
    data = {"visitor_id": "V1", "room": f"R{number}", "name": f"Ada Canary {number}"}
    return {"id": str(number), "source": "door", "data": data | changes}


def lines(*reports: dict[str, Any]) -> bytes:
    return b"\n".join(map(orjson.dumps, reports))


def recorded(service: FakeService) -> list[bytes]:
    partition = partition_of("visited/door", PARTITIONS)
    return [record.value or b"" for record in service.log.read(OBSERVATIONS, partition, 0)]


def test_one_and_many_are_sealed_in_their_order(client: AppClient, service: FakeService) -> None:
    assert client.post("/observations/visited", json=visited(0)).status_code == 201
    many = client.post("/observations/visited", content=lines(*map(visited, range(1, 250))), headers=NDJSON)
    assert many.json() == {"stored": 249, "refused": 0, "problems": []}
    found = recorded(service)
    assert not any(b"anary" in each for each in found)
    data = [orjson.loads(each)["data"] for each in found]
    assert [row["room"] for row in data] == [f"R{number}" for number in range(250)]
    assert all(entry["name"].startswith("sealed:1:") for entry in data)


def test_without_keys_only_observations_with_personal_fields_are_refused(client: AppClient, keys: MemoryKeys) -> None:
    keys.is_away = True
    refused = client.post("/observations/visited", json=visited(0))
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (503, "keys_unavailable")
    many = client.post("/observations/visited", content=lines(visited(0)), headers=NDJSON).json()
    assert (many["stored"], many["problems"][0]["problem"]["status"]) == (0, 503)
    rang = {"id": "1", "source": "door", "data": {"room": "R1"}}
    assert client.post("/observations/rang", json=rang).status_code == 201
    keys.is_away = False
    assert client.post("/observations/visited", json=visited(0)).status_code == 201


def test_a_value_that_belongs_to_nobody_is_refused(client: AppClient) -> None:
    refused = client.post("/observations/visited", json=visited(0, visitor_id=""))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/data")


def test_persons_have_routes_if_only_observations_have_personal_fields(client: AppClient) -> None:
    client.post("/observations/visited", json=visited(0))
    planned = client.request("DELETE", "/persons/V1?dry_run=true").json()
    assert len(planned["destroyed"]) == 1


def test_rows_of_stream_views_are_opened_for_callers_with_the_scope_until_an_erasure(
    service: FakeService, keys: MemoryKeys
) -> None:
    made = guarded(service)
    catch_up(made)
    fields = sealed_fields(Visited)
    assert fields is not None
    data = {"visitor_id": "V1", "room": "R1", "name": "Ada Canary", "age": 36}
    row = fields.sealed(dict(data), "")
    for reader in made.readers.values():
        reader.rows["last_visitor"] = {"R1": {**row, "companions": None, "visits": 1}}
    shown = read(made, "/views/last_visitor/R1", "views:*", "personal").json()
    assert shown == {**data, "companions": None, "visits": 1}
    hidden = read(made, "/views/last_visitor/R1", "views:*", "operate").json()
    assert (hidden["name"], hidden["age"], hidden["visits"]) == (HIDDEN, HIDDEN, 1)
    assert read(made, "/views/last_visitor?name=x", "views:*", "personal").status_code == 422
    keys.erase("V1")
    erased = read(made, "/views/last_visitor/R1", "views:*", "personal").json()
    assert (erased["name"], erased["age"]) == ("(erased)", None)
    keys.is_away = True
    away = read(made, "/views/last_visitor/R1", "views:*", "personal")
    assert away.status_code == 503
