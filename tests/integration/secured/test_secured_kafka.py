"""A Kafka that is reached encrypted only, and asks every client for a certificate and a password."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compose.parts import kafka
from compose.ports import free_port, free_ports
from compose.settings import HOST, StackSettings
from compose.stack import fetch_jars
from eventlog import admin
from eventlog.envelope import Envelope, encode
from eventlog.errors import LogUnavailable
from eventlog.kafka import KafkaLog
from eventlog.letters import Letter
from eventlog.ports import Entry
from eventlog.settings import LogSettings
from eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, PATCHES, SNAPSHOTS
from projections.loading.dead_letters import DeadLetters
from projections.spark.kafka_source import read_ranges
from projections.spark.live import start_live
from projections.supervision.supervisor import Supervisor
from tests.support.spark_rows import session
from tests.support.table_views import table_views
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")

USER, PASSWORD = "ada", 'pass "word" \\ with = all; of it'
BOUND_S = 300.0


class Secured(NamedTuple):
    """The broker's address, and the variables with which a client is let in."""

    bootstrap: str
    variables: dict[str, str]

    def settings(self, state: Path, **other: str) -> LogSettings:
        variables = self.variables | {
            "HEADWATER_ENVIRONMENT": f"t_{uuid.uuid4().hex[:12]}",
            "HEADWATER_MODULES": "listings",
            "HEADWATER_PARTITIONS": "1",
        }
        return replace(LogSettings.from_environment(variables | other), state=state)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, ca = tmp_path_factory.mktemp("secured"), trustme.CA()
    stack, port = StackSettings(folder, free_ports()), free_port()
    plain = kafka.spec(stack, fetch_jars()["kafka"])

    def prepare() -> None:
        plain.prepare()
        with Path(plain.argv[-1]).open("a") as properties:
            properties.write(listener(stack, port, ca))

    supervisor = Supervisor([replace(plain, prepare=prepare)])
    supervisor.start()
    try:
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(USER, credentials, PASSWORD.encode())
        client = AdminClient({"bootstrap.servers": stack.endpoints.kafka})
        for done in client.alter_user_scram_credentials([user]).values():
            done.result()
        yield Secured(f"{HOST}:{port}", client_variables(folder, f"{HOST}:{port}", ca))
    finally:
        supervisor.stop()


def listener(stack: StackSettings, port: int, ca: trustme.CA) -> str:
    """A second listener; by the first one the broker talks to itself."""
    certificate = ca.issue_cert(HOST)
    chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
    plain, controller = stack.ports.kafka, stack.ports.kafka_controller
    ours = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": pkcs8(certificate.private_key_pem.bytes()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ca.cert_pem.bytes().decode(),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    properties = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},CONTROLLER://{HOST}:{controller},SECURED://{HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
        **{f"listener.name.secured.{name}": value for name, value in ours.items()},
    }
    # as Java writes a line break in a property
    return "".join(name + "=" + value.replace("\n", r"\n") + "\n" for name, value in properties.items())


def client_variables(folder: Path, bootstrap: str, ca: trustme.CA) -> dict[str, str]:
    certificate = ca.issue_cert("client.example")
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    files = {"CA": ca.cert_pem.bytes(), "CERTIFICATE": chain}
    files["KEY"] = pkcs8(certificate.private_key_pem.bytes()).encode()
    for name, content in files.items():
        (folder / f"{name}.pem").write_bytes(content)
    return {
        "HEADWATER_KAFKA": bootstrap,
        "HEADWATER_KAFKA_SECURITY": "SASL_SSL",
        "HEADWATER_KAFKA_USER": USER,
        "HEADWATER_KAFKA_PASSWORD": PASSWORD,
        **{f"HEADWATER_KAFKA_{name}": str(folder / f"{name}.pem") for name in files},
    }


def pkcs8(key: bytes) -> str:
    """As Java reads keys."""
    from cryptography.hazmat.primitives import serialization as as_

    loaded = as_.load_pem_private_key(key, None)
    return loaded.private_bytes(as_.Encoding.PEM, as_.PrivateFormat.PKCS8, as_.NoEncryption()).decode()


def test_the_log_is_written_and_read(secured: Secured, tmp_path: Path) -> None:
    settings = secured.settings(tmp_path)
    admin.prepare(settings)
    with closing(KafkaLog(settings)) as log:
        assert log.submit(Entry(COMMANDS, "counter/c", b"{}", 0), 0).result(240) == 0
        with closing(log.join(lambda _: None)) as member:
            eventually(lambda: member.poll(0.1) == {0}, "the group has its member")
        with closing(log.own(0)) as writer:
            transaction = writer.begin()
            transaction.append([Entry(SNAPSHOTS, "counter/c", b"{}", 0)])
            transaction.commit(1)
        with closing(log.tail(SNAPSHOTS, {0: 0})) as tail:
            eventually(lambda: [record.key for record in tail.poll(10, 0.1)], "the snapshot is read")
        assert log.next_offset(0) == 1
    letters = DeadLetters(settings)
    letters.add("patches/postgres/x", "refused", b"a")
    with closing(KafkaLog(settings)) as log:
        assert [Letter.from_json(each.value or b"").reason for each in log.read(DEAD_LETTERS, 0, 0)] == ["refused"]


def test_spark_reads_the_log_and_writes_patches(secured: Secured, tmp_path: Path) -> None:
    settings = secured.settings(tmp_path, HEADWATER_PATCH_PARTITIONS="1")
    admin.prepare(settings)
    data = {"listing_id": "L1", "price": 5}
    event = Envelope("listing/L1/2", "listing.price_changed", "listing/L1", datetime.now(UTC), data, sequence=2)
    with closing(KafkaLog(settings)) as log:
        log.submit(Entry(EVENTS, event.id, encode(event), 1), 0).result(240)
        records = read_ranges(session(), settings, {"0": (0, 1)}).collect()
        assert [bytes(row.key) for row in records] == [b"listing/L1/2"]
        views = [table_views()["streams"]]
        query = start_live(session(), views, settings, checkpoint=tmp_path / "checkpoint")
        try:
            eventually(lambda: list(log.read(PATCHES, 0, 0)) or query.exception(), "a patch is written", BOUND_S)
            assert [record.key.partition("@")[0] for record in log.read(PATCHES, 0, 0)] == ["streams"]
        finally:
            query.stop()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"HEADWATER_KAFKA_PASSWORD": "another"}, "invalid credentials"),
        ({"HEADWATER_KAFKA_CERTIFICATE": "", "HEADWATER_KAFKA_KEY": ""}, "certificate required"),
        ({"HEADWATER_KAFKA_CA": ""}, "certificate (could not be verified|verify failed)"),
    ],
)
def test_who_is_not_let_in_is_told_why(secured: Secured, tmp_path: Path, wrong: dict[str, str], why: str) -> None:
    with pytest.raises(LogUnavailable, match=f"reaching Kafka at {secured.bootstrap} by SASL_SSL.*{why}"):
        admin.prepare(secured.settings(tmp_path, **wrong))
