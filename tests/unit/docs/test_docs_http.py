"""docs/http.md has every path, parameter, operator, event and limit of the API, docs/problems.md every problem."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from headwater.api.app import create_app
from headwater.api.changes import recent, subscription
from headwater.api.limits import MAX_BODIES_BYTES, MAX_PAGE_BYTES, READS_AT_ONCE, Limits, Work
from headwater.api.problems import MEANINGS
from headwater.api.reads import scans
from headwater.api.reads.elasticsearch import MAX_FACETS
from headwater.api.requests import filters, query
from headwater.api.requests.body import MAX_LEVELS
from headwater.api.routes import changes, log, observations, views
from headwater.api.server.connections import MAX_HEAD_BYTES
from headwater.api.waiting.waiter import MAX_POSITIONS, MAX_WAITING
from headwater.commands.declaring.observation import MAX_AHEAD
from tests.support.domains import SHIPPED
from tests.support.pages import first_cells, read_page
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import fake_service

PAGE = read_page("http.md")
LIMITS = Limits()
WORK = Work()


def at_once(kind: str) -> int:
    """How many pieces of this kind of work run at once."""
    return int(getattr(WORK, kind).at_once)


MIB, KIB = 1024 * 1024, 1024
"""A phrase of the page for each limit."""
PHRASES = (
    f"{at_once('scans')} pages of `/streams/$all`, {at_once('folds')} states of streams and {READS_AT_ONCE} queries",
    f"It serves {at_once('many_lines')} requests with\n  many lines, {at_once('bodies'):,} with one body "
    f"({MAX_BODIES_BYTES // MIB} MiB of bodies in all), and",
    f"and {MAX_WAITING:,} that wait for a position",
    f"`HEADWATER_BODY_LIMIT_BYTES` ({LIMITS.body_bytes // KIB} KiB)",
    f"`HEADWATER_BODY_LIMIT_VALUES` ({LIMITS.body_values:,}) values in {MAX_LEVELS} levels",
    f"`HEADWATER_ANSWER_TIMEOUT_S` ({LIMITS.answer_timeout_s:g} seconds)",
    f"At most {LIMITS.in_flight:,} lines of a request",
    f"at most {LIMITS.in_flight_in_all:,} lines with {LIMITS.in_flight_bytes // KIB**2} MiB",
    f"Path, query and headers have at most {MAX_HEAD_BYTES // KIB} KiB",
    f"without a complete request head for {LIMITS.idle_s:g} s is closed",
    f"does not arrive within {LIMITS.body_s:g} s,\n  or no more of an NDJSON body for {LIMITS.body_s:g} s",
    f"reads nothing of an answer for {LIMITS.stall_s:g} s is disconnected",
    f"at most {MAX_AHEAD.total_seconds():g} s in\nthe future",
    f"of at most {observations.MAX_PROBLEMS} lines",
    f"up to {views.MAX_KEYS} rows by `key`",
    f"rows on a page, 1 to {query.MAX_ROWS:,} | {query.Query((), ()).limit} |",
    f"{filters.MAX_VALUES:,} values per column for `eq` and `in`",
    f"{filters.MAX_PATTERNS} for each of `prefix`, `ieq` and `iprefix`",
    f"at most {filters.MAX_PATTERN_CHARACTERS} characters",
    f"{filters.MAX_ORS} `or` with\n  {filters.MAX_CONDITIONS} conditions each",
    f"up to {MAX_POSITIONS} positions",
    f"{LIMITS.wait_ms:,} by default, 0 to {LIMITS.max_wait_ms:,}",
    f"At most {query.MAX_TEXT:,} characters",
    f"at most {MAX_FACETS} values",
    f"for up to {changes.MAX_KEYS} rows",
    f"1 to {changes.MAX_FOLLOWING_MS:,} (a day)",
    f"Every {LIMITS.heartbeat_s:g} seconds",
    f"more than {subscription.MAX_CHANGES:,} changed rows, or {subscription.MAX_UNREAD_BYTES // MIB} MiB of them",
    f"Up to {recent.MAX_CATCH_UP:,} missed",
    f"serves {LIMITS.followers:,} followers",
    f"for up to {log.MAX_TYPES} types",
    f"ends early with the row that reaches {MAX_PAGE_BYTES // MIB} MiB",
    f"early at {MAX_PAGE_BYTES // MIB} MiB",
    f"{scans.MAX_OFFSETS:,} offsets or {scans.MAX_READ_BYTES // MIB} MiB",
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return AppClient(create_app(fake_service(modules=SHIPPED))).get("/openapi.json").json()  # type: ignore[no-any-return]


def general(path: str) -> str:
    """The path as the page writes it: with a placeholder for what a deployment declares."""
    path = re.sub(r"^/(commands|observations)/.+", r"/\1/{type}", path)
    path = re.sub(r"^/views/[^/]+", "/views/{view}", path)
    return re.sub(r"^/streams/[^/$]+/.+", "/streams/{type}/{id}", path)


def test_every_path_is_in_the_table_and_no_other(document: dict[str, Any]) -> None:
    declared = {f"{method.upper()} {general(path)}" for path, item in document["paths"].items() for method in item}
    assert set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", PAGE, re.MULTILINE)) == declared


def test_every_parameter_is_in_a_table(document: dict[str, Any]) -> None:
    columns = {name for view in fake_service(modules=SHIPPED).views.values() for name in view.types}
    operations = [each for item in document["paths"].values() for each in item.values()]
    given = {
        entry["name"] for operation in operations for entry in operation.get("parameters", ()) if entry["in"] != "path"
    }
    plain = {name for name in given if name.partition(".")[0] not in columns or name in query.PAGING + query.SEARCHING}
    rows = "\n".join(first_cells(PAGE))
    assert {name for name in plain if not re.search(rf"`{re.escape(name)}\b|^`?{re.escape(name)}=", rows)} == set()


def test_every_operator_is_in_the_table() -> None:
    shown = re.findall(r"^\| (`[a-z]+[.=].*?) \|", PAGE, re.MULTILINE)
    named = {name for each in shown if not each.startswith("`or=") for name in re.findall(r"`\w+\.(\w+)=", each)}
    assert named == filters.FILTER_DESCRIPTIONS.keys()


def test_every_event_and_reason_of_changes_is_in_the_table() -> None:
    events = set(re.findall(r"^- `(\w+)`: `", changes.DESCRIPTION, re.MULTILINE))
    assert events == {"open", "change", "reset", "end"}
    reasons = {*get_args(subscription.Reason), *get_args(subscription.ResetReason)}
    assert {event for event in events | reasons if f"`{event}`" not in PAGE} == set()


def test_limits_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert [phrase for phrase in PHRASES if " ".join(phrase.split()) not in text] == []


def test_the_page_of_problems_lists_every_type() -> None:
    rows = [line.split(" | ") for line in read_page("problems.md").splitlines() if line.startswith("| `")]
    documented = {row[0].strip("| `"): (int(row[1]), row[2], set(re.findall(r"`(\w+)`", row[3]))) for row in rows}
    expected = {
        meaning.code: (
            meaning.status,
            meaning.title,
            set(meaning.members) | ({"error_id"} if meaning.status == 500 else set()),
        )
        for meaning in MEANINGS.values()
    }
    assert documented == expected
