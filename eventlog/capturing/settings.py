"""The addresses that capturing needs beside those of the log, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import AnyHttpUrl, Field

from eventlog.capturing.declaring import Source
from eventlog.capturing.engines import engine_of
from eventlog.capturing.ports import Address
from eventlog.errors import SettingError
from eventlog.settings import LogSettings
from eventlog.variables import Brokers, Variables


@dataclass(frozen=True)
class SourceSettings:
    """What one source needs of the environment.

    connect: URL of Kafka Connect's REST API.
    connect_kafka: Kafka's `host:port` list as Connect's worker reaches it.
    database: as this process reaches it.
    connect_database: as Connect's worker reaches it.
    salt: of hashed columns.
    """

    log: LogSettings
    connect: str
    connect_kafka: str
    database: Address
    connect_database: Address
    salt: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, source: Source, env: Mapping[str, str]) -> SourceSettings:
        """Read the variables of `source` and of the log; raises SettingError naming the wrong one."""
        log, read = LogSettings.from_environment(env), engine_of(source).read_address
        for_connect = f"{source.prefix}_CONNECT_DATABASE"
        database = env.get(source.database, "")
        salt = env.get(source.salt, "")
        if source.hashes and not salt:
            raise SettingError(source.salt, "", "a secret text: columns of this source are hashed with it")
        if salt and not (salt.isascii() and salt.isalnum()):
            raise SettingError(source.salt, "…", "letters and digits only: Debezium takes it in the name of a property")
        return cls(
            log=log,
            connect=read_connect(env),
            connect_kafka=ConnectVariables.read(env).connect_kafka or log.bootstrap,
            database=read(source.database, database),
            connect_database=read(for_connect, env.get(for_connect) or database),
            salt=salt,
        )


class ConnectVariables(Variables):
    """The variables of Kafka Connect, which all sources share."""

    connect: AnyHttpUrl = Field(
        AnyHttpUrl("http://127.0.0.1:18083"),
        description="the address of Kafka Connect, such as http://127.0.0.1:8083",
    )
    connect_kafka: Brokers = ""


def read_connect(env: Mapping[str, str]) -> str:
    """The URL of Kafka Connect's REST API, without a slash at its end; raises SettingError."""
    return str(ConnectVariables.read(env).connect).rstrip("/")
