"""What a connector's errors say of changes that are missing."""

from __future__ import annotations

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.mysql.engine import BinlogDatabase, MariaDatabase, MySqlDatabase
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase


class Person(Captured, table="crm.people", key="id"):
    id: int


NAMES = SourceNames.of(Source("crm", (Person,), engine="mariadb"), "test")
MISREAD = [
    "Error processing row in people, internal schema size 4, but row size 5 , restart connector",
    "Data row is smaller than a column index, internal schema representation is probably out of sync with real "
    "database schema",
    "Encountered change event at offset {…} for table crm.people whose schema isn't known to this connector.",
]


@pytest.mark.parametrize("error", MISREAD)
@pytest.mark.parametrize("engine", [MariaDatabase, MySqlDatabase], ids=lambda each: each.engine)
def test_a_wrong_definition_of_a_table_needs_a_new_beginning(engine: type[BinlogDatabase], error: str) -> None:
    """A restart fails at the same row for ever."""
    why = engine.why_lost(f"Error processing binlog event: {error}")
    assert why is not None
    said = engine.lost_changes("crm", NAMES, why)
    assert "another definition of a table than the server" in said
    assert "run headwater sources remove crm, then apply" in said
    assert "binlog_expire_logs_seconds" not in said


def test_a_log_that_is_gone_is_kept_for_longer_the_next_time() -> None:
    why = MariaDatabase.why_lost("Could not find first log file name in binary log index file")
    said = MariaDatabase.lost_changes("crm", NAMES, why)
    assert "does not find its place" in said and said.endswith("raise binlog_expire_logs_seconds to prevent it")


def test_other_errors_are_no_loss() -> None:
    for engine in (MariaDatabase, MySqlDatabase, PostgresDatabase):
        assert engine.why_lost("Connection refused") is None
