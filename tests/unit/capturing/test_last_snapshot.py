"""What is said of the last snapshot, from what its connector reported."""

from __future__ import annotations

import json

import pytest

from eventlog.capturing import control_topics
from eventlog.capturing.control_topics import failed_tables, last_snapshot
from eventlog.capturing.naming import SourceNames
from eventlog.settings import LogSettings
from eventlog.sources.shop.shop import shop

INITIAL, INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([], None),
        ([(INITIAL, "STARTED"), (INITIAL, "IN_PROGRESS")], ("initial", "IN_PROGRESS", True)),
        ([(INITIAL, "STARTED"), (INITIAL, "COMPLETED"), (INITIAL, "SKIPPED")], ("initial", "COMPLETED", False)),
        ([(INITIAL, "TABLE_SCAN_COMPLETED"), (INITIAL, "SKIPPED")], ("initial", "COMPLETED", False)),
        ([(INITIAL, "ABORTED"), (INITIAL, "STARTED")], ("initial", "STARTED", True)),
        (
            [(INITIAL, "COMPLETED"), (INCREMENTAL, "IN_PROGRESS"), (INITIAL, "SKIPPED")],
            ("incremental", "IN_PROGRESS", True),
        ),
        ([(INITIAL, "SKIPPED")], None),
    ],
)
def test_an_initial_snapshot_that_is_skipped_later_was_completed(
    reports: list[tuple[str, str]], found: tuple[str, str, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [json.dumps({"aggregate_type": kind, "type": state}).encode() for kind, state in reports]
    monkeypatch.setattr(control_topics, "_recent", lambda *_: values)
    snapshot = last_snapshot(LogSettings(), SourceNames.of(shop, "test"))
    assert (snapshot and (snapshot.kind, snapshot.state, snapshot.is_running)) == found


def scanned(table: str, status: str, kind: str = INCREMENTAL) -> bytes:
    more = {"scanned_collection": table, "status": status, "total_rows_scanned": "0"}
    return json.dumps({"aggregate_type": kind, "type": "TABLE_SCAN_COMPLETED", "additional_data": more}).encode()


def test_a_table_that_a_completed_snapshot_could_not_read_has_failed_until_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [
        scanned("public.people", "SUCCEEDED"),
        scanned("public.people", "SQL_EXCEPTION"),
        scanned("public.places", "UNKNOWN_SCHEMA"),
        scanned("public.lines", "SQL_EXCEPTION"),
        scanned("public.orders", "NO_PRIMARY_KEY"),
        json.dumps({"aggregate_type": INCREMENTAL, "type": "COMPLETED"}).encode(),
        scanned("public.lines", "EMPTY"),
        scanned("public.orders", "SUCCEEDED", INITIAL),
        b"{}",
    ]
    monkeypatch.setattr(control_topics, "_recent", lambda *_: values)
    settings, names = LogSettings(), SourceNames.of(shop, "test")
    assert last_snapshot(settings, names) is not None
    assert failed_tables(settings, names) == {"public.people": "SQL_EXCEPTION", "public.places": "UNKNOWN_SCHEMA"}
