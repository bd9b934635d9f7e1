"""How Kafka clients encrypt connections and log in, in the configuration of librdkafka and of Java."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import IN_FILE, Variables, secret

SECURITY: Final = "HEADWATER_KAFKA_SECURITY"
MECHANISM: Final = "HEADWATER_KAFKA_MECHANISM"
USER: Final = "HEADWATER_KAFKA_USER"
PASSWORD: Final = "HEADWATER_KAFKA_PASSWORD"  # noqa: S105  # the name of the variable
CA: Final = "HEADWATER_KAFKA_CA"
CERTIFICATE: Final = "HEADWATER_KAFKA_CERTIFICATE"
KEY: Final = "HEADWATER_KAFKA_KEY"
SECURITY_VARIABLES: Final = (SECURITY, MECHANISM, USER, PASSWORD, PASSWORD + IN_FILE, CA, CERTIFICATE, KEY)

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: Final[Mapping[Mechanism, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class KafkaSecurity:
    """What a broker's listener requires of its clients.

    protocol: one of PROTOCOLS. mechanism: one of MECHANISMS, with `user` and `password`, if the protocol has SASL. ca,
    certificate, key: PEM text, if it has SSL: the trusted CA (empty: those of the system), and the client's certificate
    with its key (PKCS #8, not encrypted), if the broker requires one.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism = "SCRAM-SHA-512"
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> KafkaSecurity:
        """Read the `HEADWATER_KAFKA_*` variables of `env`, and the files that they name.

        Raises SettingError naming the variable that is missing, wrong, or not used by the protocol.
        """
        given = SecurityVariables.read(env)
        protocol, mechanism = given.security, given.mechanism
        user = password = ca = certificate = key = ""
        if protocol.startswith("SASL"):
            user, password = (
                _needed(env, each, "the user name and password of this client") for each in (USER, PASSWORD)
            )
        else:
            _refuse(env, (MECHANISM, USER, PASSWORD, PASSWORD + IN_FILE), protocol)
        if protocol.endswith("SSL"):
            ca, certificate, key = (_pem(env, each) for each in (CA, CERTIFICATE, KEY))
            if certificate or key:
                for each in (CERTIFICATE, KEY):
                    _needed(env, each, "a PEM file: certificate and key are needed together")
        else:
            _refuse(env, (CA, CERTIFICATE, KEY), protocol)
        return cls(protocol, mechanism, user, password, ca, certificate, key)

    def for_librdkafka(self) -> dict[str, str]:
        """Configuration of confluent-kafka's clients."""
        config = {
            "ssl.ca.pem": self.ca,
            "ssl.certificate.pem": self.certificate,
            "ssl.key.pem": self.key,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "sasl.mechanism": self.mechanism if self.user else "",
            "security.protocol": "" if self.protocol == "PLAINTEXT" else self.protocol,
        }
        return {name: value for name, value in config.items() if value}

    def for_java(self) -> dict[str, str]:
        """Configuration of Java's clients, without files, because they also run on other machines."""
        if self.protocol == "PLAINTEXT":
            return {}
        config: dict[str, str] = {"security.protocol": self.protocol}
        if self.user:
            who = f"username={_quoted(self.user)} password={_quoted(self.password)}"
            login = f"{MECHANISMS[self.mechanism]} required {who};"
            config |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        if self.ca:
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca}
        if self.certificate:
            config |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": self.certificate}
            config |= {"ssl.keystore.key": self.key}
        return config


class SecurityVariables(Variables):
    """The variables of KafkaSecurity that are one of several words."""

    model_config = SettingsConfigDict(env_prefix="HEADWATER_KAFKA_")

    security: Protocol = Field("PLAINTEXT", description=f"one of {', '.join(PROTOCOLS)}")
    mechanism: Mechanism = Field("SCRAM-SHA-512", description=f"one of {', '.join(MECHANISMS)}")


def _needed(env: Mapping[str, str], variable: str, needs: str) -> str:
    value = secret(env, variable) if variable == PASSWORD else env.get(variable, "")
    if not value:
        raise SettingError(variable, "", needs)
    return value


def _refuse(env: Mapping[str, str], variables: Iterable[str], protocol: str) -> None:
    for variable in variables:
        if env.get(variable):
            needs = f"nothing, because {protocol} does not use it, or set {SECURITY} to a protocol that does"
            raise SettingError(variable, "…", needs)


def _pem(env: Mapping[str, str], variable: str) -> str:
    """The text of the file that `variable` names; empty if it names none."""
    path = env.get(variable, "")
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(variable, path, f"a readable PEM file ({error})") from error
    if "-----BEGIN " not in text:
        raise SettingError(variable, path, "a PEM file (it has no line that starts with -----BEGIN)")
    return text


def _quoted(text: str) -> str:
    """Quoted for JAAS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
