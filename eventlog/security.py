"""How Kafka clients encrypt connections and log in, in the configuration of librdkafka and of Java."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import IN_FILE, Variables

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
        login = ("mechanism", "user", "password") if given.security.startswith("SASL") else ()
        files = ("ca", "certificate", "key") if given.security.endswith("SSL") else ()
        variable = SecurityVariables.variable
        for name in SecurityVariables.model_fields:
            if name in given.model_fields_set and name not in ("security", *login, *files):
                needs = f"nothing, because {given.security} does not use it, or set {SECURITY} to a protocol that does"
                is_in_file = not env.get(variable(name))
                raise SettingError(variable(name) + (IN_FILE if is_in_file else ""), "…", needs)
        for name in ("user", "password") if login else ():
            if not getattr(given, name):
                raise SettingError(variable(name), "", "the user name and password of this client")
        if bool(given.certificate) != bool(given.key):
            missing = "key" if given.certificate else "certificate"
            raise SettingError(variable(missing), "", "a PEM file: certificate and key are needed together")
        texts = [_pem(variable(name), getattr(given, name)) for name in ("ca", "certificate", "key")]
        return cls(given.security, given.mechanism, given.user, given.password, *texts)

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
    """The variables of KafkaSecurity."""

    model_config = SettingsConfigDict(env_prefix="HEADWATER_KAFKA_")

    security: Protocol = Field("PLAINTEXT", description=f"one of {', '.join(PROTOCOLS)}")
    mechanism: Mechanism = Field("SCRAM-SHA-512", description=f"one of {', '.join(MECHANISMS)}")
    user: str = ""
    password: str = Field("", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""


SECURITY: Final = SecurityVariables.variable("security")
SECURITY_VARIABLES: Final = (
    *map(SecurityVariables.variable, SecurityVariables.model_fields),
    SecurityVariables.variable("password") + IN_FILE,
)


def _pem(variable: str, path: str) -> str:
    """The text of the file that a variable names; empty if it names none."""
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
