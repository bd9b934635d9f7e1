"""The address of a captured PostgreSQL database, as psycopg and as Debezium write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.eventlog.capturing.database import Address
from headwater.eventlog.errors import SettingError

FORM: Final = "a connection such as postgresql://headwater:password@db:5432/shop"
TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
"""Parameters of libpq that Debezium takes as `database.<name>`."""
TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class PostgresAddress(Address):
    """A database and the role that captures it. tls: parameters of libpq by name, those in TLS."""

    database: str
    tls: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, variable: str, value: str) -> PostgresAddress:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""
        if not value:
            raise SettingError(variable, "", FORM)
        try:
            parts = {name: str(part) for name, part in conninfo_to_dict(value).items()}
        except (psycopg.ProgrammingError, UnicodeError):
            raise SettingError(variable, "…", FORM) from None  # its text may have the password
        missing = [name for name in ("host", "dbname", "user") if not parts.get(name)]
        port = parts.get("port", "5432")
        if missing or "," in parts["host"] or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            lacks = f", which lacks {' and '.join(missing)}" if missing else ", with one host and one port"
            raise SettingError(variable, "…", FORM + lacks)
        return cls(
            host=parts["host"],
            port=int(port),
            database=parts["dbname"],
            user=parts["user"],
            password=parts.get("password", ""),
            tls=tuple((name, parts[name]) for name in TLS if name in parts),
        )

    def for_psycopg(self) -> str:
        """The connection for psycopg, which gives up after TIMEOUT_S.

        A query fails instead of leaving out rows that a policy hides: `sweep` would delete them.
        """
        return make_conninfo(
            host=self.host,
            port=self.port,
            dbname=self.database,
            user=self.user,
            password=self.password or None,
            connect_timeout=TIMEOUT_S,
            application_name="headwater",
            options="-c row_security=off",
            **dict(self.tls),
        )

    def for_debezium(self) -> dict[str, str]:
        return {
            **Address.for_debezium(self),
            "database.dbname": self.database,
            **{f"database.{name}": value for name, value in self.tls},
        }
