"""A Kafka that is reached encrypted only, with a certificate and a password, and that lets nobody do anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headwater.compose.parts import kafka
from headwater.compose.ports import free_port, free_ports
from headwater.compose.settings import HOST, StackSettings
from headwater.compose.stack import fetch_jars
from headwater.projections.supervision.supervised import Supervisor

SUPER_USER, PASSWORD = "ada", 'pass "word" \\ with = all; of it'
"""Of a client that may do anything."""
DENIALS = """
logger.denials.name = kafka.authorizer.logger
logger.denials.level = info
"""


@dataclass(frozen=True)
class Secured:
    """The broker.

    variables: of its super user. internal, admin: the listener by which it talks to itself, and a client of that.
    tools: the classpath of Kafka's own programs.
    """

    variables: dict[str, str]
    internal: str
    admin: AdminClient
    log: Path
    tools: str

    @property
    def bootstrap(self) -> str:
        """Its address."""
        return self.variables["HEADWATER_KAFKA"]

    def variables_of(self, user: str, password: str) -> dict[str, str]:
        """The variables with which this user logs in."""
        return self.variables | {"HEADWATER_KAFKA_USER": user, "HEADWATER_KAFKA_PASSWORD": password}

    def add_user(self, name: str, password: str) -> None:
        """Let a user log in."""
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(name, credentials, password.encode())
        for done in self.admin.alter_user_scram_credentials([user]).values():
            done.result()

    def denied(self) -> list[str]:
        """What it has refused to those who were logged in."""
        return [line for line in self.log.read_text().splitlines() if "is Denied" in line]


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    """A broker of its own."""
    ca, stack, port = trustme.CA(), StackSettings(folder, free_ports()), free_port()
    plain = kafka.spec(stack, fetch_jars()["kafka"])
    logging = folder / "log4j2.properties"
    logging.write_text(kafka.LOG4J.read_text() + DENIALS)

    def prepare() -> None:
        plain.prepare()
        with Path(plain.argv[-1]).open("a") as properties:
            properties.write(listener(stack, port, ca))

    argv = tuple(each.replace(str(kafka.LOG4J), str(logging)) for each in plain.argv)
    supervisor = Supervisor([replace(plain, prepare=prepare, argv=argv)])
    supervisor.start()
    try:
        internal = stack.endpoints.kafka
        admin = AdminClient({"bootstrap.servers": internal, "log_level": 0})
        variables = client_variables(folder, f"{HOST}:{port}", ca)
        secured = Secured(variables, internal, admin, plain.log, plain.env["CLASSPATH"])
        secured.add_user(SUPER_USER, PASSWORD)
        yield secured
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
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{SUPER_USER}",
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
        "HEADWATER_KAFKA_USER": SUPER_USER,
        "HEADWATER_KAFKA_PASSWORD": PASSWORD,
        **{f"HEADWATER_KAFKA_{name}": str(folder / f"{name}.pem") for name in files},
    }


def pkcs8(key: bytes) -> str:
    """As Java reads keys."""
    from cryptography.hazmat.primitives import serialization as as_

    loaded = as_.load_pem_private_key(key, None)
    return loaded.private_bytes(as_.Encoding.PEM, as_.PrivateFormat.PKCS8, as_.NoEncryption()).decode()
