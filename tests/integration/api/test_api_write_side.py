"""Commands over HTTP, with the real handler on a real log."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

import httpx
import orjson
import pytest

from headwater.commands.errors import Rejected
from headwater.commands.sending.client import open_blocking_client
from headwater.compose.ports import free_port
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import OBSERVATIONS
from headwater.samples.listings.domain import ChangePrice, ListProperty
from tests.integration.api.api_deployment import PATIENT, START_S, Deployment, is_ready, stop
from tests.support.badly_behaved import BAD, BAD_COMMANDS, CODES
from tests.support.domains import SHIPPED
from tests.support.waiting import eventually

DETAILS = {
    "city": "GALT",
    "zip": "95632",
    "property_type": "Condo",
    "beds": 2,
    "baths": 1.5,
    "square_feet": 900,
    "price": 250_000,
    "latitude": 38.25,
    "longitude": -121.3,
}


class Handler:
    """The one handler process of the deployment."""

    def __init__(self, deployment: Deployment, api: httpx.Client) -> None:
        self._deployment, self._api = deployment, api
        self.start()

    def start(self) -> None:
        """Start it, and return when it answers in each partition."""
        self.process = self._deployment.start("commands")
        for number in range(8):  # ids of all partitions: each is handled as soon as it is restored
            eventually(partial(self._is_rejected, f"nobody-{number}"), "the handler answers", START_S)

    def _is_rejected(self, listing_id: str) -> bool:
        return self._api.post("/commands/listing.withdraw", json={"listing_id": listing_id}).status_code == 409


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    return (*SHIPPED, "tests.support.badly_behaved")


@pytest.fixture(scope="module")
def handler(api: httpx.Client, deployment: Deployment) -> Iterator[Handler]:
    started = Handler(deployment, api)
    yield started
    stop(started.process)


@pytest.fixture(scope="module")
def client(api: httpx.Client, handler: Handler) -> httpx.Client:
    return api


@pytest.fixture
def listed(client: httpx.Client) -> str:
    listing_id = f"ü/{uuid.uuid4().hex[:8]} %"
    answer = client.post("/commands/listing.list_property", json={"listing_id": listing_id} | DETAILS)
    assert answer.status_code == 201, answer.text
    return listing_id


def send(client: httpx.Client, command: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return client.post(f"/commands/listing.{command}", json=body, headers=headers)


@pytest.mark.complete
def test_a_life(client: httpx.Client, listed: str) -> None:
    offer = send(client, "put_under_offer", {"listing_id": listed, "offer": 1})
    assert (offer.status_code, offer.headers["etag"]) == (201, '"2"')
    assert offer.json()["stream"] == f"listing/{listed}"
    assert offer.json()["events"][0]["id"] == f"listing/{listed}/2"
    partition, _, offset = offer.json()["position"].partition(":")
    assert int(partition) in range(4)
    assert int(offset) > 0
    refused = send(client, "change_price", {"listing_id": listed, "price": 5})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_listed")
    assert send(client, "sell", {"listing_id": listed, "sold_for": 9}).headers["etag"] == '"3"'
    assert send(client, "sell", {"listing_id": listed, "sold_for": 9}).json()["code"] == "already_sold"


def test_nothing_to_change(client: httpx.Client, listed: str) -> None:
    answer = send(client, "change_price", {"listing_id": listed, "price": DETAILS["price"]})
    assert (answer.status_code, answer.headers["etag"], answer.json()["events"]) == (200, '"1"', [])


def test_versions(client: httpx.Client, listed: str) -> None:
    body = {"listing_id": listed, "price": 1}
    wrong = send(client, "change_price", body, **{"If-Match": '"7"'})
    assert (wrong.status_code, wrong.json()["expected"], wrong.json()["actual"]) == (412, 7, 1)
    exists = send(client, "change_price", body, **{"If-None-Match": "*"})
    assert (exists.status_code, exists.json()["expected"], exists.json()["actual"]) == (412, 0, 1)
    assert send(client, "change_price", body, **{"If-Match": '"1"'}).status_code == 201


def test_of_many_at_one_version_one_wins(client: httpx.Client, listed: str) -> None:
    def change(price: int) -> int:
        body = {"listing_id": listed, "price": price}
        return send(client, "change_price", body, **{"If-Match": '"1"'}).status_code

    with ThreadPoolExecutor(8) as threads:
        statuses = sorted(threads.map(change, range(1, 17)))
    assert statuses == [201] + [412] * 15


def test_a_retry_gets_the_first_answer(client: httpx.Client, listed: str) -> None:
    key = {"Idempotency-Key": f"k/{uuid.uuid4().hex}"}
    body = {"listing_id": listed, "price": 7}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: send(client, "change_price", body, **key), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    reused = send(client, "change_price", body | {"price": 8}, **key)
    assert (reused.status_code, reused.json()["type"]) == (422, "urn:headwater:problem:idempotency_key_reused")
    assert send(client, "change_price", body, **key).content == answers[0].content
    receipt = client.get(answers[0].json()["links"]["receipt"])
    assert (receipt.status_code, receipt.json()["outcome"], receipt.headers["etag"]) == (200, "accepted", '"2"')


def test_a_body_with_other_spacing_is_the_same_body(client: httpx.Client, listed: str) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex, "content-type": "application/json"}
    url = "/commands/listing.change_price"
    first = client.post(url, content=f'{{"listing_id": "{listed}", "price": 9}}', headers=headers)
    second = client.post(url, content=f'{{"price":9,"listing_id":"{listed}"}}', headers=headers)
    assert (first.status_code, second.content) == (201, first.content)


@pytest.mark.parametrize(
    "listing_id", ["日本", "a/b/c", "?&=#%2F", "..", " ", "\n\t", "\u0000x", "🏠" * 25, "'; --", "é"]
)
def test_strange_ids(client: httpx.Client, listing_id: str) -> None:
    unique = uuid.uuid4().hex[:8] + listing_id
    answer = send(client, "list_property", {"listing_id": unique} | DETAILS)
    if "\0" in listing_id:
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:headwater:problem:malformed_command")
    else:
        assert (answer.status_code, answer.json()["stream"]) == (201, f"listing/{unique}")
        assert answer.headers["location"].isascii()


NDJSON = {"content-type": "application/x-ndjson"}


def line(command: str, body: dict[str, Any], **options: Any) -> bytes:
    return orjson.dumps({"type": f"listing.{command}", "body": body, **options}, option=orjson.OPT_APPEND_NEWLINE)


def test_many_commands_in_one_request(client: httpx.Client) -> None:
    ids = [f"bulk-{uuid.uuid4().hex}" for _ in range(40)]
    lines = [line("list_property", {"listing_id": id_} | DETAILS, id=f"{id_}/1") for id_ in ids]
    lines += [line("change_price", {"listing_id": id_, "price": 1}, id=f"{id_}/2", expected_version=1) for id_ in ids]
    content = b"".join([*lines, b"{nonsense\n", line("sell", {"listing_id": ids[0], "sold_for": 1})])

    def send_all() -> dict[int, dict[str, Any]]:
        with client.stream("POST", "/commands", content=content, headers=NDJSON) as answer:
            assert answer.status_code == 200
            return {found["line"]: found for found in map(orjson.loads, answer.iter_lines())}

    first = send_all()
    assert [first[number]["status"] for number in range(1, 83)] == [201] * 80 + [400, 409]
    assert {found["accepted"]["version"] for found in first.values() if found["line"] in range(41, 81)} == {2}
    again = send_all()
    assert [again[number] for number in range(1, 81)] == [first[number] for number in range(1, 81)]


def test_no_command_stops_its_partition_whatever_its_rules_do(client: httpx.Client, handler: Handler) -> None:
    unique = uuid.uuid4().hex

    def send_both(number: int, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answers to a command that cannot be decided, and to a good one for the same aggregate."""
        bad, good = (
            {"type": "wild.do", "body": {"wild_id": unique, "what": each}, "id": f"{unique}-{number}-{place}"}
            for place, each in enumerate((what, "good"))
        )
        answer = client.post("/commands", content=orjson.dumps(bad) + b"\n" + orjson.dumps(good), headers=NDJSON)
        first, second = sorted(map(orjson.loads, answer.iter_lines()), key=itemgetter("line"))
        assert (first["status"], second["status"]) == (500, 201), (what, first, second)
        assert "error_id" in first["problem"]
        return first, second

    answers = [send_both(number, what) for number, what in enumerate(BAD)]
    assert answers[-1][1]["accepted"]["version"] == len(BAD)
    assert handler.process.poll() is None
    stop(handler.process)
    handler.start()
    for number, what in enumerate(BAD[:3], len(BAD)):
        assert send_both(number, what)[1]["accepted"]["version"] == number + 1
    for (first, _), what in zip(answers, BAD, strict=True):
        receipt = asked(client, first["id"], f"wild/{unique}")
        if what in BAD_COMMANDS:  # it was not sent
            assert receipt is None
        else:
            assert receipt["error"]["code"] == CODES.get(what, "internal_error")


def test_what_a_client_submitted_before_it_went_away_is_decided(client: httpx.Client) -> None:
    ids = [f"gone-{uuid.uuid4().hex}" for _ in range(5)]
    content = b"".join(line("list_property", {"listing_id": id_} | DETAILS, id=id_) for id_ in ids)
    head = "POST /commands HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80)) as wire:
        wire.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(content):x}\r\n".encode() + content + b"\r\n")
        assert wire.recv(1)  # an answer has begun: the first line was decided
    for id_ in ids:
        receipt = eventually(lambda each=id_: asked(client, each, f"listing/{each}"), "the receipt is there")  # type: ignore[misc]
        assert receipt["outcome"] == "accepted"
    eventually(lambda: is_ready(client), "the API is ready")


def asked(client: httpx.Client, command_id: str, stream: str) -> Any:
    answer = client.get(f"/receipts/{command_id}", params={"stream": stream})
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.complete
def test_a_receipt_is_found_by_an_api_that_started_later(
    client: httpx.Client, listed: str, deployment: Deployment
) -> None:
    key = uuid.uuid4().hex
    first = send(client, "change_price", {"listing_id": listed, "price": 7}, **{"Idempotency-Key": key})
    path, port = f"/receipts/{key}?stream=listing/{listed}", free_port()
    process = deployment.start("api", HEADWATER_API_PORT=str(port), **PATIENT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as later:
            eventually(lambda: is_ready(later), "the API is ready", START_S)
            assert later.get(path).json() == client.get(path).json()
            again = send(later, "change_price", {"listing_id": listed, "price": 7}, **{"Idempotency-Key": key})
            assert again.content == first.content
    finally:
        stop(process)


def test_a_service_beside_kafka_needs_no_http(client: httpx.Client, deployment: Deployment) -> None:
    with open_blocking_client(deployment.variables) as beside:
        listing = ListProperty.model_validate({"listing_id": f"beside-{uuid.uuid4().hex}", **DETAILS})
        receipt = beside.send(listing, command_id=uuid.uuid4().hex, expected_version=0)
        prices = [ChangePrice(listing_id=listing.listing_id, price=price) for price in range(1, 101)]
        outcomes = list(beside.send_many(prices))
        assert sorted(outcome.receipt.version for outcome in outcomes if outcome.receipt) == list(range(2, 102))
        positions = [outcome.receipt.position for outcome in outcomes if outcome.receipt and outcome.receipt.position]
        assert beside.position == str(max(positions))
        with pytest.raises(Rejected):
            beside.send(listing)
    path = f"/receipts/{receipt.command_id}?stream={receipt.stream}"
    assert client.get(path).json()["events"][0]["id"] == f"{receipt.stream}/1"


def test_observations_are_in_the_log_when_they_are_answered(api: httpx.Client, deployment: Deployment) -> None:
    source = f"site-{uuid.uuid4().hex}"
    reports = [{"id": f"v{number}", "source": source, "data": {"listing_id": "L1"}} for number in range(500)]
    one = api.post("/observations/listing_viewed", json=reports[0])
    content = b"".join(orjson.dumps(report, option=orjson.OPT_APPEND_NEWLINE) for report in reports)
    many = api.post("/observations/listing_viewed", content=content + b"{}\n", headers=NDJSON).json()
    assert (one.status_code, many["stored"], many["refused"]) == (201, 500, 1)
    position = SourcePosition.parse(one.json()["position"]).position
    log = KafkaLog(deployment.log)
    found = [record.key for record in log.read(OBSERVATIONS, position.partition, position.offset)]
    log.close()
    mine = [key.rpartition("@")[0] for key in found if key.startswith(f"listing_viewed/{source}/")]
    assert mine == [f"listing_viewed/{source}/v{number}" for number in (0, *range(500))]


def test_what_a_request_brings_is_found_in_the_whole_log(client: httpx.Client) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = {"X-Correlation-ID": "c-1", "X-Causation-ID": "b-1", "traceparent": trace, "Idempotency-Key": "k-1"}
    listing_id, since = f"traced-{uuid.uuid4().hex}", datetime.now(UTC).isoformat()
    first = send(client, "list_property", {"listing_id": listing_id} | DETAILS, **traced)
    second = send(client, "change_price", {"listing_id": listing_id, "price": 5})
    query = {"since": since, "type": ["listing.listed", "listing.price_changed"]}
    page = client.get("/streams/$all", params=query).json()
    listed, changed = (event["event"] for event in page["events"])
    assert [event["position"] for event in page["events"]] == [answer.json()["position"] for answer in (first, second)]
    assert (listed["correlationid"], listed["causationid"], listed["traceparent"]) == ("c-1", "k-1", trace)
    command_id = second.json()["command_id"]
    assert (changed["correlationid"], changed["causationid"]) == (command_id, command_id)
    assert "next" not in page["links"]


def test_the_whole_log_in_pages(client: httpx.Client, listed: str) -> None:
    found, path = [], "/streams/$all?limit=7"
    while path:
        page = client.get(path).json()
        found += [event["event"]["id"] for event in page["events"]]
        path = page["links"].get("next")
    whole = client.get("/streams/$all?limit=1000").json()
    assert found == [event["event"]["id"] for event in whole["events"]]
    assert len(set(found)) == len(found) > 7
    assert f"listing/{listed}/1" in found
    assert not any(each.startswith("heartbeat") for each in found)
