"""What is said of the last snapshot, from what its connector reported."""

from __future__ import annotations

import json

import pytest

from headwater.eventlog.capturing.control_topics import ControlTopics, last_snapshot
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.settings import LogSettings
from headwater.samples.shop.source import shop

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
        ([(INITIAL, "STARTED"), (INITIAL, "SKIPPED")], ("initial", "SKIPPED", False)),
        ([(INITIAL, "IN_PROGRESS"), (INITIAL, "SKIPPED")], ("initial", "SKIPPED", False)),
    ],
)
def test_an_initial_snapshot_that_is_skipped_later_was_completed_if_its_last_table_was(
    reports: list[tuple[str, str]], found: tuple[str, str, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [json.dumps({"aggregate_type": kind, "type": state}).encode() for kind, state in reports]
    monkeypatch.setattr(ControlTopics, "_recent", lambda *_: values)
    snapshot = last_snapshot(LogSettings(), SourceNames.of(shop, "test"))
    assert (snapshot and (snapshot.kind, snapshot.state, snapshot.is_running)) == found
