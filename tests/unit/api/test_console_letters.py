"""Dead letters and the audit log in the console, and the commands that its pages show: it starts none itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headwater.api.console.operations import shape
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.envelope import encode
from headwater.eventlog.letters import Letter
from tests.unit.api.console_world import Links, open_console
from tests.unit.api.fake_service import event


@pytest.mark.parametrize("verb", ["rebuild", "verify", "rollback"])
def test_a_view_shows_the_commands_about_it_and_starts_none(verb: str) -> None:
    _, browser = open_console()
    page = browser.get("/console/views/listings").text
    assert f"<code>replay {verb} listings</code>" in page and 'method="post"' not in page
    assert browser.post(f"/console/views/listings/{verb}", {}).status_code == 404
    assert browser.post("/console/letters", {}).status_code == 405


def letter(reason: str = "it lacks a field", **data: Any) -> Letter:
    record = encode(event("listing/L1", 2, "listing.sold", **(data or {"secret": "4111 1111", "count": 42})))
    return Letter(reason, "2026-01-02T03:04:05Z", b"listing/L1/2", record)


def test_letters_are_grouped_and_their_values_are_hidden() -> None:
    service, browser = open_console()
    service.overseer.waiting = {
        "events/0/1": letter(),
        "events/0/2": letter("<b>bold</b>"),
        "commands/1/9": Letter("it raised", "2026-01-02T03:04:05Z", b"k", b'{"no": "envelope 4111 1111"}'),
        "patches/0/1-5": Letter("deleted", "", None, None),
        "events/0/3": Letter("no JSON", "", None, b"\xff4111"),
    }
    answer = browser.get("/console/letters")
    text = answer.text
    assert "Unreadable event: 3" in text and "Unreadable command: 1" in text and "Deleted unread: 1" in text
    assert "4111" not in text and ": 42" not in text and "&#34;secret&#34;: &#34;text of 9 characters&#34;" in text
    assert "&lt;b&gt;bold" in text and "b" not in Links(text).tags
    assert "replay dead-letters retry events/0/1" in text and "retry one only if its client" in text
    assert "<code>replay dead-letters retry events/0/3 events/0/2 events/0/1</code>" in text
    assert "dead-letters retry patches/0/1-5" not in text


def test_a_shape_is_bounded() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = {"a": [deep]}
    assert len(str(shape({str(number): deep for number in range(1_000)}))) < 40_000


def test_what_operators_did_is_listed() -> None:
    service, browser = open_console()
    record = AuditRecord.begin("replay erase", {"stream": "<script>"}, "t", {"HEADWATER_ACTOR": "ada"})
    service.overseer.records = [record, replace_record(record)]
    text = browser.get("/console/audit").text
    assert "replay erase" in text and "&lt;script&gt;" in text and "no end" in text and "refused" in text
    assert re.search(r"ada <span class=\"state\">as ", text)


def replace_record(record: AuditRecord) -> AuditRecord:
    return record.ended("refused", 2, "it is not there")
