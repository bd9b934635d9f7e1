"""Whether a connector has captured a binary log up to a place, with a server in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eventlog.capturing.mysql import captured_log
from eventlog.capturing.mysql.captured_log import has_captured

START = [(4, "Format_desc"), (256, "Gtid_list")]
LOGS = {
    "binlog.999999": [
        *START, (300, "Gtid"), (342, "Table_map"), (400, "Write_rows_v1"), (500, "Xid"), (531, "Gtid"), (573, "Query"),
        (600, "Rotate"),
    ],
    "binlog.1000000": [*START, (300, "Gtid"), (342, "Query"), (400, "Gtid"), (442, "Annotate_rows"), (500, "Xid")],
}  # fmt: skip
END = 700


class Server:
    """Has these logs; each event ends where the next one begins."""

    def logs(self) -> dict[str, int]:
        return dict.fromkeys(LOGS, END)

    def try_rows(self, _query: str, values: Mapping[str, Any], refused: frozenset[int]) -> list[dict[str, Any]] | None:
        events = LOGS[values["file"]]
        if values["pos"] not in [pos for pos, _ in events] + [END]:
            assert 1220 in refused
            return None
        ends = [pos for pos, _ in events[1:]] + [END]
        found = [
            {"Pos": pos, "Event_type": kind, "End_log_pos": end}
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
    places = [{"file": f"binlog.{file}", "pos": pos} for file, pos in (offset, end)]
    assert has_captured(Server(), *places) is expected  # type: ignore[arg-type]
