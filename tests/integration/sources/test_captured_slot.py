"""The replication slot of a source while the source itself is quiet."""

from __future__ import annotations

import psycopg
import pytest

from headwater.compose.stack import Stack
from headwater.samples.shop.source import shop
from tests.integration.sources.captured import captured
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Kafka Connect")]

ELSEWHERE_BYTES = 64 << 20
HELD_BYTES = 32 << 20


def test_a_quiet_source_does_not_hold_the_log_of_the_whole_server(capturing: Stack) -> None:
    """All databases of a server share a write-ahead log; heartbeats let go of what others have written."""
    with (
        captured(capturing, shop) as connector,
        psycopg.connect(capturing.endpoints.postgres, autocommit=True) as other,
    ):
        connector.put()
        connector.wait_read()
        eventually(lambda: connector.slot().get("active"), "the connector reads the slot")
        began = connector.slot()
        other.execute("CREATE TABLE elsewhere (filled text)")
        try:
            other.execute("ALTER TABLE elsewhere ALTER COLUMN filled SET STORAGE EXTERNAL")
            other.execute(
                "INSERT INTO elsewhere SELECT repeat('x', 8000) FROM generate_series(1, %s)", [ELSEWHERE_BYTES // 8000]
            )
            eventually(lambda: connector.slot()["confirmed_flush_lsn"] != began["confirmed_flush_lsn"], "it is moved")

            def is_let_go() -> bool:
                # PostgreSQL writes this by itself every 15 s, and a slot can only be moved to such a place
                other.execute("SELECT pg_log_standby_snapshot()")
                return bool(connector.slot()["holds"] < HELD_BYTES)

            eventually(is_let_go, "the log is let go")
        finally:
            other.execute("DROP TABLE elsewhere")
