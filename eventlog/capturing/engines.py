"""The kinds of databases that can be captured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.mysql.engine import MARIADB, MYSQL
from headwater.eventlog.capturing.ports import Engine
from headwater.eventlog.capturing.postgres.engine import PostgresEngine

ENGINES: Final[Mapping[str, Engine]] = {
    "postgresql": PostgresEngine(),
    "mariadb": MARIADB,
    "mysql": MYSQL,
}
"""By the `engine` of a Source."""


def engine_of(source: Source) -> Engine:
    """The kind of database that a source is."""
    return ENGINES[source.engine]
