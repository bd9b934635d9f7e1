"""The address of a captured MariaDB or MySQL server, as PyMySQL and as Debezium write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.eventlog.capturing.database import Address
from headwater.eventlog.errors import SettingError

TIMEOUT_S: Final = 10
TLS_MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "mariadb": {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"},
    "mysql": {"disable": "disabled", "require": "required", "verify-ca": "verify_ca", "verify-full": "verify_identity"},
}
"""By engine: the values of `sslmode`, which are libpq's, each with Debezium's word for it."""
OPTIONS: Final = frozenset({"sslmode", "sslrootcert"})


@dataclass(frozen=True, slots=True)
class MySqlAddress(Address):
    """A server and the account that captures it. engine: `mariadb` or `mysql`. ca: file with trusted certificates."""

    engine: str
    sslmode: str = ""
    ca: str = ""

    @classmethod
    def read(cls, engine: str, variable: str, value: str) -> MySqlAddress:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""
        form = f"a connection such as {engine}://headwater:password@db:3306"
        if not value:
            raise SettingError(variable, "", form)
        try:
            parts = urlsplit(value)
            options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
            port = parts.port or 3306
        except ValueError:  # its text may have the password
            raise SettingError(variable, "…", form) from None
        if parts.scheme != engine or not parts.hostname or not parts.username:
            raise SettingError(variable, "…", f"{form}, with {engine}://, a user and a host")
        if parts.path not in ("", "/"):
            raise SettingError(variable, "…", f"{form}, without a database: the tables of the source name theirs")
        sslmode = options.get("sslmode", "")
        if options.keys() - OPTIONS or (sslmode and sslmode not in TLS_MODES[engine]):
            raise SettingError(variable, "…", f"{form}?sslmode=verify-full&sslrootcert=/ca.pem, with no other option")
        return cls(
            engine=engine,
            host=parts.hostname,
            port=port,
            user=unquote(parts.username),
            password=unquote(parts.password or ""),
            sslmode=sslmode,
            ca=options.get("sslrootcert", ""),
        )

    def for_pymysql(self) -> dict[str, Any]:
        """The arguments of a connection, which gives up after TIMEOUT_S."""
        found: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "connect_timeout": TIMEOUT_S,
            "charset": "utf8mb4",
            "autocommit": True,
        }
        if self.sslmode == "disable":
            return {**found, "ssl_disabled": True}
        if self.sslmode:
            verifies = self.sslmode != "require"
            tls = {"ca": self.ca or None, "verify_mode": verifies, "check_hostname": self.sslmode == "verify-full"}
            return {**found, "ssl": tls}
        return found

    def for_debezium(self) -> dict[str, str]:
        """Connect's workers trust the authorities that their Java does."""
        mode = {"database.ssl.mode": TLS_MODES[self.engine][self.sslmode]} if self.sslmode else {}
        return {**Address.for_debezium(self), **mode}
