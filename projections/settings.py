"""The addresses of the stores, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from headwater.eventlog.programs.variables import Count, EnvironmentName, Processes, Variables
from headwater.eventlog.settings import LogSettings

VALKEY_SCHEMES: Final = ("valkey", "valkeys", "redis", "rediss")


@dataclass(frozen=True)
class StoreSettings:
    """The addresses of the stores, and the environment whose views they hold.

    The addresses may have passwords, so they are not in its text.

    patch_partitions: of `patches`; each has a ledger in every generation.
    loaders: processes per store; they share the partitions of `patches`, also with those of other machines.
    log: has the topics of views.
    """

    environment: str = "headwater"
    postgres: str = field(default="postgresql://headwater@127.0.0.1:15432/headwater", repr=False)
    elasticsearch: str = field(default="http://127.0.0.1:19200", repr=False)
    valkey: str = field(default="valkey://127.0.0.1:16379", repr=False)
    patch_partitions: int = LogSettings.patch_partitions
    loaders: int = 1
    log: LogSettings = field(default_factory=LogSettings)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> StoreSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong ones."""
        return cls(**StoreVariables.read(env).model_dump(), log=LogSettings.from_environment(env))

    @classmethod
    def of(cls, env: Mapping[str, str], log: LogSettings) -> StoreSettings:
        """The same with these settings of the log, such as those without modules."""
        return cls(**StoreVariables.read(env).model_dump(), log=log)


def _check_postgres(value: str) -> str:
    from psycopg import ProgrammingError  # noqa: PLC0415 - the client of one store, and half of a second
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        ports = str(conninfo_to_dict(value).get("port", "5432")).split(",")
    except ProgrammingError:
        raise ValueError("no connection string") from None
    if not all(port.isascii() and port.isdigit() and 0 < int(port) < 2**16 for port in ports if port):
        raise ValueError("a port is none")
    return value


def _check_elasticsearch(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.port:  # it may raise ValueError
        raise ValueError("scheme, host and port are needed")
    return value


def _check_valkey(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme == "unix":
        return value
    if parts.scheme not in VALKEY_SCHEMES or not parts.hostname or parts.port == 0:  # it may raise ValueError
        raise ValueError("scheme and host are needed")
    if parts.query:
        from valkey import ConnectionPool  # noqa: PLC0415 - nobody else needs the client for the address

        pool: ConnectionPool = ConnectionPool.from_url(value)  # type: ignore[no-untyped-call]
        try:
            pool.connection_class(**pool.connection_kwargs)
        except TypeError:
            raise ValueError("an option is none of the client's") from None
    return value


class StoreVariables(Variables):
    """The variables of StoreSettings."""

    never_empty: ClassVar[frozenset[str]] = frozenset({"environment"})

    environment: EnvironmentName = StoreSettings.environment
    postgres: Annotated[str, AfterValidator(_check_postgres)] = Field(
        StoreSettings.postgres,
        repr=False,
        description="the address of PostgreSQL, such as postgresql://headwater:password@db:5432/headwater",
    )
    elasticsearch: Annotated[str, AfterValidator(_check_elasticsearch)] = Field(
        StoreSettings.elasticsearch,
        repr=False,
        description="the address of Elasticsearch, such as http://127.0.0.1:9200",
    )
    valkey: Annotated[str, AfterValidator(_check_valkey)] = Field(
        StoreSettings.valkey,
        repr=False,
        description="the address of Valkey, such as valkey://127.0.0.1:6379",
    )
    patch_partitions: Count = StoreSettings.patch_partitions
    loaders: Processes = StoreSettings.loaders
