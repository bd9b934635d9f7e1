"""Personal values on real servers: every path is used, and no byte that is stored has one, before or after erasing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import valkey
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.commands.errors import DecideFailed, Rejected
from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment
from tests.acceptance.personal_deployment import VISITS, PersonalDeployment
from tests.support.personal_customers import Break, Contact, Mail, Pay, Register
from tests.support.personal_visits import Companion, Visited
from tests.support.seeds import is_long
from tests.support.waiting import BOUND_S, eventually

pytestmark = pytest.mark.xdist_group("a deployment of its own")

MARK = uuid.uuid4().hex[:12]
NDJSON = {"content-type": "application/x-ndjson"}
VISIBLE = f"C-{MARK}"
"""An id, which stays in plaintext: where it is not found, nothing was searched."""
CANARIES = [f"{name}{MARK}" for name in ("mail", "name", "phone", "note", "payee", "secret", "later", "rejected")]
MAIL, NAME, PHONE, NOTE, PAYEE, SECRET, LATER, REJECTED = CANARIES
VISITOR, COMPANION, MANY = SEEN = [f"{name}{MARK}" for name in ("visitor", "companion", "many")]
CANARIES += SEEN


def records(deployment: RunningDeployment) -> dict[str, bytes]:
    """By topic of the deployment, all keys and values, as a client reads them: batches may be compressed on disk."""
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": deployment.servers.endpoints.kafka}
    prefix = f"{deployment.variables['HEADWATER_ENVIRONMENT']}."
    topics = AdminClient(servers).list_topics(timeout=BOUND_S).topics
    left = {
        (name, partition) for name, topic in topics.items() if name.startswith(prefix) for partition in topic.partitions
    }
    parts: dict[str, list[bytes]] = {name: [] for name, _ in left}
    read = {"group.id": f"search-{MARK}", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    with closing(Consumer({**servers, **read})) as consumer:
        consumer.assign([TopicPartition(name, each, 0) for name, each in left])
        while left:
            message = consumer.poll(BOUND_S)
            assert message is not None, f"{left} do not answer"
            name, partition = message.topic() or "", message.partition() or 0
            if message.error():
                left.discard((name, partition))
            else:
                parts[name] += [message.key() or b"", message.value() or b"", repr(message.headers()).encode()]
    return {name.removeprefix(prefix): b"\n".join(found) for name, found in parts.items()}


def records_with(deployment: RunningDeployment, text: str, *names: str) -> dict[str, bytes]:
    """The same, once each of these topics has the text: without it, nothing was searched."""

    def found() -> dict[str, bytes] | None:
        topics = records(deployment)
        return topics if all(text.encode() in topics[name] for name in names) else None

    return eventually(found, f"{text} is in {', '.join(names)}", every_s=0.5) or {}


def files_with(folder: Path, *texts: str) -> list[str]:
    """The files below a folder that have any of these texts; those that vanish meanwhile have none."""
    words = [word for text in texts for word in ("-e", text)]
    # -z: it skips the holes of sparse files, which Kafka's indexes are, 20 MB per partition
    ran = subprocess.run(
        ["grep", "-rlaFz", *words, f"{folder}/"], capture_output=True, text=True, check=False, timeout=600
    )
    return ran.stdout.split()


def searched(deployment: RunningDeployment, stack: StackSettings) -> None:
    """Assert that no canary is anywhere, and that the id is where it must be."""
    own = Path(deployment.variables["HEADWATER_STATE"])
    topics = records_with(
        deployment,
        VISIBLE,
        "commands",
        "events",
        "snapshots",
        "receipts",
        "processes",
        "process-inbox",
        "patches",
        "views.customers_everywhere",
    )
    for canary in CANARIES:
        assert [topic for topic, content in topics.items() if canary.encode() in content] == []
    assert files_with(own, VISIBLE)
    memory = valkey_memory(deployment, stack)
    assert VISIBLE.encode() in memory
    assert [canary for canary in CANARIES if canary.encode() in memory] == []
    # segments of Kafka and Elasticsearch, heaps, indexes and WAL of PostgreSQL, what Valkey has saved, and all logs
    assert files_with((stack.state / "postgres").resolve(), VISIBLE)
    for folder in (own, stack.state.resolve(), (stack.state / "postgres").resolve()):
        assert files_with(folder, *CANARIES) == []


def valkey_memory(deployment: RunningDeployment, stack: StackSettings) -> bytes:
    """All keys and values of the deployment in Valkey's memory, as it dumps them without compression."""
    with closing(valkey.Valkey.from_url(stack.endpoints.valkey)) as opened:
        client: Any = opened
        client.config_set("rdbcompression", "no")
        keys = list(client.scan_iter(f"{deployment.variables['HEADWATER_ENVIRONMENT']}:*", count=1_000))
        assert keys
        return b"\n".join(part for key in keys for part in (key, client.dump(key) or b""))


def sent_again(deployment: RunningDeployment, person: str) -> list[Any]:
    """Send commands with the same ids: alone, among many, and with the Python client; their answers."""
    body = {"customer_id": person, "address": MAIL}
    headers = {"idempotency-key": f"mail-{MARK}"}
    alone = deployment.http.post("/commands/customer.mail", json=body, headers=headers).raise_for_status().json()
    line = orjson.dumps({"type": "customer.mail", "id": f"line-{MARK}", "body": body})
    many = deployment.http.post("/commands", content=line, headers=NDJSON).raise_for_status().json()
    code = (
        "import sys; from headwater.client import open_blocking_client; "
        "from tests.support.personal_customers import Mail\n"
        "with open_blocking_client() as client:\n"
        "    print(client.send(Mail(customer_id=sys.argv[1], address=sys.argv[2]), command_id=sys.argv[3]).position)"
    )
    return [alone, many["accepted"], python(deployment, "-c", code, person, MAIL, f"client-{MARK}")]


def headwater(deployment: RunningDeployment, *words: str) -> str:
    return python(deployment, "-m", "headwater", *words)


def python(deployment: RunningDeployment, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **deployment.variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def everything_is_shown_to_the_person(deployment: RunningDeployment, events: int) -> None:
    known = deployment.http.get(f"/persons/{VISIBLE}").raise_for_status().json()
    assert [event["data"].get("email", MAIL) for event in known["events"]] == [MAIL] * events
    assert known["rows"]["customers"][0]["email"] == MAIL
    page = known
    while "next" in page["links"]:  # rows of stream views, and then observations, which have nothing of a customer
        page = deployment.http.get(page["links"]["next"]).raise_for_status().json()
        assert (page["events"], page["rows"], page["observations"]) == ([], {}, [])
    assert page["searched"] is not None
    contact = deployment.http.get(f"/persons/P-{MARK}").raise_for_status()
    assert PHONE in contact.text
    assert not any(each in contact.text for each in (MAIL, NAME, NOTE, PAYEE))
    printed = json.loads(headwater(deployment, "person", VISIBLE))
    assert printed == {name: each for name, each in known.items() if name not in ("links", "searched")}
    assert VISIBLE in headwater(deployment, "audit", "--verb", "person")
    planned = deployment.http.delete(f"/persons/{VISIBLE}?dry_run=true").raise_for_status().json()
    assert (planned["events"], len(planned["destroyed"])) == (events, 1)


def test_no_byte_has_a_personal_value_and_an_erased_person_is_gone_everywhere(
    deployment: RunningDeployment, stack: StackSettings
) -> None:
    contact = Contact(person_id=f"P-{MARK}", phone=PHONE, note=NOTE)
    register = Register(customer_id=VISIBLE, email=MAIL, name=NAME, born=1815, contacts=[contact])
    deployment.send(register)
    with pytest.raises(Rejected) as rejected:
        deployment.send(Register(customer_id=VISIBLE, name=REJECTED))
    assert REJECTED not in str(rejected.value)
    with pytest.raises(DecideFailed):
        deployment.send(Break(customer_id=VISIBLE, secret=SECRET))
    deployment.send(Pay(customer_id=VISIBLE, payee_id=f"Q-{MARK}", payee_name=PAYEE, cents=5))

    row = deployment.row("customers", VISIBLE)
    assert row is not None
    assert (row["email"], row["name"], row["born"], row["payees"]) == (MAIL, NAME, 1815, [PAYEE])
    for store_row in deployment.rows("customers_everywhere"):
        assert store_row["email"] == MAIL
        assert PHONE in str(store_row["contacts"])
    stream = f"/streams/customer/{VISIBLE}"

    def events() -> list[dict[str, Any]]:
        return list(deployment.http.get(stream).json()["events"])

    eventually(lambda: any(event["type"] == "customer.mailed" for event in events()), "the process has sent a command")
    assert deployment.http.get(f"{stream}?version=1").json()["state"]["email"] == MAIL
    topic = "views.customers_everywhere"  # no query waits for it
    eventually(lambda: VISIBLE.encode() in records(deployment)[topic], "the topic has the row")
    searched(deployment, stack)

    everything_is_shown_to_the_person(deployment, len(events()))
    assert "would be destroyed" in headwater(deployment, "erase", VISIBLE, "--dry-run")
    assert "destroyed: " in headwater(deployment, "erase", VISIBLE, "--yes")
    eventually(lambda: deployment.http.get(f"/views/customers/{VISIBLE}").json()["email"] is None, "it is forgotten")
    row = deployment.http.get(f"/views/customers/{VISIBLE}").json()
    assert (row["email"], row["name"], row["born"], row["payees"]) == (None, "(erased)", None, [PAYEE])
    assert PHONE in deployment.http.get(stream).text
    assert not any(each in deployment.http.get(stream).text for each in (MAIL, NAME, NOTE))
    state = deployment.http.get(f"{stream}?version=1").json()["state"]
    assert (state["email"], state["name"], state["contacts"][0]["phone"]) == (None, "(erased)", PHONE)
    certificates = headwater(deployment, "audit", "--verb", "erase").splitlines()
    assert len([line for line in certificates if "done" in line and VISIBLE in line]) == 1

    # the handler has the state in memory, and opens it anew; later facts of the person have a new key
    deployment.send(Mail(customer_id=VISIBLE, address=LATER))
    deployment.send(Pay(customer_id=VISIBLE, payee_id=f"Q-{MARK}", payee_name=PAYEE, cents=5))

    def payers() -> list[object]:
        return [event["data"]["payer_name"] for event in events() if event["type"] == "customer.paid"]

    eventually(lambda: len(payers()) == 2, "the payment is shown")
    assert payers() == [None, "(erased)"]
    assert LATER in deployment.http.get(stream).text

    def known() -> httpx.Response:
        return deployment.http.get(f"/persons/{VISIBLE}").raise_for_status()

    # a process may still send something
    eventually(lambda: len(known().json()["events"]) == len(events()), "all events are known")
    assert LATER in known().text
    assert MAIL not in known().text
    # a replay copies the same texts, and verifying compares them
    deployment.rebuild("customers", "customers_everywhere")
    deployment.verify("customers", "customers_everywhere", "streams")
    assert deployment.http.delete(f"/persons/P-{MARK}").raise_for_status().json()["destroyed"]
    eventually(lambda: PHONE not in deployment.http.get(stream).text, "the other person is erased, too")
    assert deployment.http.get(f"/views/customers/{VISIBLE}").json()["payees"] == [PAYEE, PAYEE]
    searched(deployment, stack)


@pytest.mark.complete
def test_what_was_decided_and_is_sent_again_brings_no_person_back(deployment: RunningDeployment) -> None:
    person = f"again-{MARK}"

    def keys() -> tuple[int, int]:
        planned = deployment.http.delete(f"/persons/{person}?dry_run=true").raise_for_status().json()
        return len(planned["destroyed"]), len(planned["earlier"])

    first = sent_again(deployment, person)
    assert keys() == (1, 0)
    assert "destroyed: " in headwater(deployment, "erase", person, "--yes")
    assert sent_again(deployment, person) == first, "the receipt of each"
    assert keys() == (0, 1)
    deployment.http.post(
        "/commands/customer.mail",
        json={"customer_id": person, "address": LATER},
        headers={"idempotency-key": f"later-{MARK}"},
    ).raise_for_status()
    assert keys() == (1, 1), "a new fact has a new key"


@pytest.mark.complete
@pytest.mark.soak
def test_observations_are_sealed_and_stream_views_show_them_until_their_person_is_erased(
    personal: PersonalDeployment, stack: StackSettings
) -> None:
    deployment = personal.running(VISITS)
    visitor, room = f"V-{MARK}", f"R-{MARK}"
    companion = Companion(person_id=f"W-{MARK}", phone=COMPANION)
    deployment.report(Visited(visitor_id=visitor, room=room, name=VISITOR, age=36, companions=[companion]), id="one")
    lines = [
        {"id": f"many-{number}", "source": "door", "data": {"visitor_id": visitor, "room": f"{room}-2", "name": MANY}}
        for number in range(150)
    ]
    sent = deployment.http.post(
        "/observations/visited", content=b"\n".join(map(orjson.dumps, lines)), headers=NDJSON
    ).json()
    assert sent == {"stored": 150, "refused": 0, "problems": []}

    def row() -> dict[str, Any]:
        return deployment.row("last_visitor", room) or {}

    def shown() -> list[Any]:
        return [row()[name] for name in ("visitor_id", "name", "age", "visits")]

    def at_once() -> set[str]:
        return {row["name"] for row in deployment.rows("visits_at_once", room=room)}

    assert shown() == [visitor, VISITOR, 36, 1]
    assert COMPANION in str(row()["companions"])
    assert at_once() == {VISITOR}
    second = f"/views/last_visitor/{room}-2"
    eventually(lambda: deployment.http.get(second).json().get("visits") == 150, "all are counted")
    assert deployment.http.get(second).json()["name"] == MANY
    assert deployment.http.get("/views/last_visitor?name=x").status_code == 422

    def stored() -> None:
        own = Path(deployment.variables["HEADWATER_STATE"])
        topics = records_with(deployment, room, "observations", "patches", "views.visits_at_once")
        assert [topic for topic, content in topics.items() for canary in CANARIES if canary.encode() in content] == []
        for folder in (own, stack.state.resolve(), (stack.state / "postgres").resolve()):
            assert files_with(folder, *CANARIES) == []

    stored()
    deployment.rebuild("last_visitor", "visits_at_once")
    if is_long():  # another time than below, with a key that is not destroyed
        deployment.verify("last_visitor", "visits_at_once")
    assert (shown(), at_once()) == ([visitor, VISITOR, 36, 1], {VISITOR})
    known = json.loads(headwater(deployment, "person", visitor))
    assert (known["events"], known["left_out"]["observations"], known["left_out"]["reasons"]) == ([], [], {})
    assert {row["room"]: row["name"] for row in known["rows"]["last_visitor"]} == {room: VISITOR, f"{room}-2": MANY}
    assert len(known["rows"]["visits_at_once"]) == 151
    assert COMPANION not in str(known["rows"])
    observed = known["observations"]
    assert sorted(event["data"]["name"] for event in observed) == [MANY] * 150 + [VISITOR]
    assert COMPANION not in str(observed)
    planned = deployment.http.delete(f"/persons/{visitor}?dry_run=true").raise_for_status().json()
    assert planned["observations"] == 151
    assert planned["stream_rows"] == {"last_visitor": 2, "last_visitor_late": 0, "visits_at_once": 151}

    assert "destroyed: " in headwater(deployment, "erase", visitor, "--yes")
    eventually(lambda: row()["name"] == "(erased)", "the visitor is forgotten")
    assert shown() == [visitor, "(erased)", None, 1]
    assert COMPANION in str(row()["companions"])
    if is_long():  # it starts Spark once more, to find in each row what is looked at below in some
        deployment.verify("last_visitor", "visits_at_once")
    deployment.rebuild("last_visitor", "visits_at_once")
    assert (shown(), at_once()) == ([visitor, "(erased)", None, 1], {"(erased)"})
    deployment.report(Visited(visitor_id=visitor, room=room, name=MANY), id="two")
    eventually(lambda: row().get("visits") == 2, "a later visit has a new key")
    assert shown() == [visitor, MANY, None, 2]
    stored()


def test_an_api_with_keys_for_callers_is_needed_to_hide_values(deployment: RunningDeployment) -> None:
    """An open API listens on this machine only, and shows everything to everybody; others hide: see the unit tests."""
    assert httpx.get(f"{deployment.api}/openapi.json").json()["paths"]["/persons/{person}"]["delete"]
