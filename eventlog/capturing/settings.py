"""The addresses that capturing needs beside those of the log, read once from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import AnyHttpUrl, Field

from headwater.eventlog.capturing.database import Address, Database
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.mysql.engine import MariaDatabase, MySqlDatabase
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Brokers, Variables, secret
from headwater.eventlog.security import KafkaSecurity
from headwater.eventlog.settings import LogSettings

ENGINES: Final[Mapping[str, type[Database]]] = {
    "postgresql": PostgresDatabase,
    "mariadb": MariaDatabase,
    "mysql": MySqlDatabase,
}
"""By the `engine` of a Source."""


def engine_of(source: Source) -> type[Database]:
    """The kind of database that a source is."""
    return ENGINES[source.engine]


REFERENCES: Final = "a reference to a config provider of Connect's workers, such as ${env:KAFKA_PASSWORD}"
_REFERENCE: Final = re.compile(r"\$\{[^:{}\"\\]+:[^{}\"\\]+\}")
OR_NONE: Final = rf"^({_REFERENCE.pattern})?$"


def is_reference(secret: str) -> bool:
    """Whether Connect replaces it by what a config provider has, each time when a connector starts."""
    return _REFERENCE.fullmatch(secret) is not None


@dataclass(frozen=True)
class SourceSettings:
    """What one source needs of the environment.

    connect: URL of Kafka Connect's REST API, which may have a password.
    connect_security: how Connect's worker logs in to Kafka; its secrets may be references to config providers.
    connect_kafka: Kafka's `host:port` list as Connect's worker reaches it.
    database: as this process reaches it.
    connect_database: as Connect's worker reaches it.
    salt: of hashed columns.
    """

    log: LogSettings
    connect: str = field(repr=False)
    connect_kafka: str
    database: Address
    connect_database: Address
    salt: str = field(default="", repr=False)
    connect_security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @classmethod
    def from_environment(cls, source: Source, env: Mapping[str, str]) -> SourceSettings:
        """Read the variables of `source` and of the log; raises SettingError naming the wrong one."""
        log, read = LogSettings.from_environment(env), engine_of(source).read_address
        for_connect = f"{source.prefix}_CONNECT_DATABASE"
        database = secret(env, source.database)
        salt = secret(env, source.salt)
        if source.hashes and not salt:
            raise SettingError(source.salt, "", "a secret text: columns of this source are hashed with it")
        if salt and not (salt.isascii() and salt.isalnum()):
            raise SettingError(source.salt, "…", "letters and digits only: Debezium takes it in the name of a property")
        given, security = ConnectVariables.read(env), log.security
        for name, has, needs in (
            ("connect_kafka_password", security.user, "HEADWATER_KAFKA_USER"),
            ("connect_kafka_key", security.certificate, "HEADWATER_KAFKA_CERTIFICATE"),
        ):
            if getattr(given, name) and not has:
                raise SettingError(ConnectVariables.variable(name), "…", f"nothing, because {needs} is not set")
        password, key = given.connect_kafka_password or security.password, given.connect_kafka_key or security.key
        return cls(
            log=log,
            connect=read_connect(env),
            connect_kafka=given.connect_kafka or log.bootstrap,
            database=read(source.database, database),
            connect_database=read(for_connect, secret(env, for_connect) or database),
            salt=salt,
            connect_security=replace(security, password=password, key=key),
        )


class ConnectVariables(Variables):
    """The variables of Kafka Connect, which all sources share."""

    connect: AnyHttpUrl = Field(
        AnyHttpUrl("http://127.0.0.1:18083"),
        repr=False,  # it may have a password
        description="the address of Kafka Connect, such as http://127.0.0.1:8083",
    )
    connect_kafka: Brokers = ""
    connect_kafka_password: str = Field("", pattern=OR_NONE, repr=False, description=REFERENCES)
    connect_kafka_key: str = Field("", pattern=OR_NONE, repr=False, description=REFERENCES)


def read_connect(env: Mapping[str, str]) -> str:
    """The URL of Kafka Connect's REST API, without a slash at its end; raises SettingError."""
    return str(ConnectVariables.read(env).connect).rstrip("/")
