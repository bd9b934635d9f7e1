"""What is between the place of a connector and the end of a binary log, with a server in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.eventlog.capturing.mysql import captured_log
from headwater.eventlog.capturing.mysql.captured_log import has_captured, past_statements, with_gtid

START = [(4, "Format_desc"), (256, "Gtid_list")]
LOGS = {
    "binlog.999999": [
        *START, (300, "Gtid"), (342, "Table_map"), (400, "Write_rows_v1"), (500, "Xid"), (531, "Gtid"), (573, "Query"),
        (600, "Rotate"),
    ],
    "binlog.1000000": [*START, (300, "Gtid"), (342, "Query"), (400, "Gtid"), (442, "Annotate_rows"), (500, "Xid")],
}  # fmt: skip
END = 700
GTIDS = {
    ("binlog.999999", 300): "BEGIN GTID 0-1-1",
    ("binlog.999999", 531): "GTID 0-1-2",
    ("binlog.1000000", 300): "GTID 0-1-3 ddl",
    ("binlog.1000000", 400): "BEGIN GTID 0-1-4",
}
STORED = {"0-1-2", "0-1-3"}


class Server:
    """Has these logs; each event ends where the next one begins."""

    gtids = GTIDS

    def logs(self) -> dict[str, int]:
        return dict.fromkeys(LOGS, END)

    def try_rows(self, _query: str, values: Mapping[str, Any], refused: frozenset[int]) -> list[dict[str, Any]] | None:
        events = LOGS[values["file"]]
        if values["pos"] not in [pos for pos, _ in events] + [END]:
            assert 1220 in refused
            return None
        ends = [pos for pos, _ in events[1:]] + [END]
        found = [
            {
                "Pos": pos,
                "Event_type": kind,
                "End_log_pos": end,
                "Info": self.gtids.get((values["file"], pos), "use `crm`; ALTER TABLE people ADD more int"),
            }
            for (pos, kind), end in zip(events, ends, strict=True)
            if pos >= values["pos"]
        ]
        return found[: values["events"]]


@pytest.mark.parametrize("at_once", [1, 2, 500])
@pytest.mark.parametrize(
    ("offset", "end", "expected"),
    [
        ((999999, 700), (999999, 700), True),
        ((1000000, 4), (999999, 700), True),
        ((999999, 531), (999999, 700), True),  # TRUNCATE is no transaction, so the connector stays before it
        ((999999, 300), (999999, 531), False),
        ((999999, 500), (999999, 531), False),
        ((999999, 531), (1000000, 400), True),
        ((999999, 531), (1000000, 531), False),
        ((999999, 531), (1000000, 442), True),
        ((999999, 299), (999999, 700), False),  # there is no event
        ((999998, 4), (999999, 700), False),  # the log was removed
        ((999999, 4), (999999, 300), True),
    ],
)
def test_it_has_if_no_changes_of_rows_are_in_between(
    offset: tuple[int, int], end: tuple[int, int], expected: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_log, "EVENTS", at_once)
    start, until = ({"file": f"binlog.{file}", "pos": pos} for file, pos in (offset, end))
    assert has_captured(Server(), start, until, lambda: STORED) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "known", "expected"),
    [
        ({"0-1-2"}, {}, True),
        (set(), {}, False),  # its definition may be another one, and what is read meanwhile be misread
        (set(), {"transaction_id": "0-1-2", "event": 2}, True),  # such as GRANT, which is not stored
        (set(), {"transaction_id": "0-1-2", "event": 1}, False),
        (set(), {"transaction_id": "0-1-1", "event": 5}, False),
    ],
)
def test_a_statement_is_captured_once_it_is_read(stored: set[str], known: dict[str, Any], expected: bool) -> None:
    offset = {"file": "binlog.999999", "pos": 531, **known}
    end = {"file": "binlog.1000000", "pos": 256}
    assert has_captured(Server(), offset, end, lambda: stored) is expected  # type: ignore[arg-type]


PLACE = {"file": "binlog.999999", "pos": 531, "gtids": "1-9-7,0-1-1", "server_id": 1, "ts_sec": 5}
BEFORE = PLACE | {"transaction_id": "0-1-2", "event": 7, "row": 1, "transaction_data_collection_order_crm.people": 1}


@pytest.mark.parametrize(
    ("offset", "stored", "expected"),
    [
        (BEFORE, STORED, PLACE | {"file": "binlog.1000000", "pos": 400, "gtids": "1-9-7,0-1-3"}),
        (BEFORE, {"0-1-2"}, PLACE | {"pos": 600, "gtids": "1-9-7,0-1-2"}),
        (BEFORE, {"0-1-3"}, PLACE | {"file": "binlog.1000000", "pos": 400, "gtids": "1-9-7,0-1-3"}),
        (BEFORE | {"event": 1}, set(), None),  # it is still to be read
        (PLACE, STORED, PLACE | {"file": "binlog.1000000", "pos": 400, "gtids": "1-9-7,0-1-3"}),
        (BEFORE | {"pos": 300, "transaction_id": "0-1-1"}, STORED, None),  # it is in the middle of changes of rows
        ({"file": "binlog.999999", "pos": 531, "event": 7, "transaction_id": "0-1-2"}, STORED, None),  # no GTIDs
        (BEFORE | {"file": "binlog.999998"}, STORED, None),  # the log was removed
    ],
)
def test_a_connector_goes_on_behind_statements_that_it_has_read(
    offset: dict[str, Any], stored: set[str], expected: dict[str, Any] | None
) -> None:
    assert past_statements(Server(), offset, lambda: stored) == expected  # type: ignore[arg-type]


def test_mysql_shows_gtids_in_another_form() -> None:
    server, uuid = Server(), "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    numbers = enumerate(GTIDS, 1)
    server.gtids = {at: f"SET @@SESSION.GTID_NEXT= '{uuid}:{number}'" for number, at in numbers}
    offset = PLACE | {"gtids": f"{uuid}:1", "transaction_id": f"{uuid}:2", "event": 3}
    found = past_statements(server, offset, lambda: {f"{uuid}:3"})  # type: ignore[arg-type]
    assert found == PLACE | {"file": "binlog.1000000", "pos": 400, "gtids": f"{uuid}:1-3"}


@pytest.mark.parametrize(
    ("gtids", "gtid", "expected"),
    [
        ("0-7-16", "0-7-17", "0-7-17"),
        ("0-7-16,2-7-1", "0-8-17", "2-7-1,0-8-17"),
        ("0-7-16", "10-7-1", "0-7-16,10-7-1"),
        ("a:1-16", "a:17", "a:1-17"),
        ("a:1", "a:2", "a:1-2"),
        ("a:1-4:6-16,b:3", "a:17", "a:1-4:6-17,b:3"),
        ("a:1-16", "a:19", "a:1-16:19"),
        ("a:1-16,b:1-2", "b:3", "a:1-16,b:1-3"),
        ("a:1-16", "b:1", "a:1-16,b:1"),
    ],
)
def test_the_next_gtid_is_added(gtids: str, gtid: str, expected: str) -> None:
    assert with_gtid(gtids, gtid) == expected
