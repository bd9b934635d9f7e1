"""The pages of the console: what they show; no value becomes markup, and a browser loads nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import pytest

from headwater.api.app import create_app
from headwater.api.console import views
from headwater.api.console.pages import FOLDER, HEADERS, assets, marked, pretty, seconds, shown_value
from headwater.api.reads.deployment import DeploymentLook
from headwater.api.reads.scans import AuditPage, AuditReader, EventFilter
from headwater.eventlog.capturing.capture_progress import Commit
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.times import now_ms
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.view_metrics import Sample
from headwater.replay.parts import Part
from tests.unit.api.console_world import (
    HOSTILE,
    Browser,
    Links,
    add_listing,
    guarded_console,
    open_console,
    well,
    world,
)

PATHS = (
    "/console",
    "/console/views",
    "/console/views/listings",
    "/console/views/listings?sort=-price&city=GALT&limit=1",
    "/console/views/listing_search?q=condo",
    "/console/views/listing_card",
    "/console/views/hourly_views",
    "/console/views/listings/row?key=L1",
    "/console/views/listings/row?key=L1&column=price",
    "/console/views/listings/row/scan?key=L1",
    "/console/views/city_market/row?key=GALT",
    "/console/views/city_market/row/scan?key=GALT",
    "/console/views/hourly_views/row?key=x",
    "/console/views/streams/row?key=listing/L1/2",
    "/console/streams",
    "/console/streams?since=2026-01-01T00:00:00Z",
    "/console/streams?stream=listing/L1",
    "/console/streams/listing/L1?version=3",
    "/console/followed?stream=listing/L1&version=2",
    "/console/processes",
    "/console/processes/scan",
    "/console/processes/instance?process=expiry&key=L1",
    "/console/sources",
    "/console/letters",
    "/console/audit",
    "/console/audit?days=30",
)


@pytest.fixture(scope="module")
def browser() -> Browser:
    return open_console()[1]


def check(answer: httpx.Response) -> Links:
    """A page is one, loads nothing elsewhere, and has what a screen reader needs."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    page = Links(answer.text)
    for _, place in page.places:
        parts = urlsplit(place)
        assert not parts.scheme and not parts.netloc, place
        assert place.startswith(("/console", "#", "?")), place
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert page.tags.count("h1") == page.tags.count("main") == 1 and "style" not in page.tags
    assert page.tags.count("table") == page.tags.count("caption")
    labelled = {value for name, value in page.attributes if name == "for"}
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) and labelled <= set(ids)
    for name, value in page.attributes:
        if name in ("aria-labelledby", "aria-describedby"):
            assert value in ids, value
    return page


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_whole_and_loads_nothing_elsewhere(browser: Browser, path: str) -> None:
    check(browser.get(path))


def test_every_link_of_every_page_leads_to_a_page(browser: Browser) -> None:
    seen = set(PATHS)
    for path in PATHS:
        for tag, place in check(browser.get(path)).places:
            if tag == "a" and not place.startswith("#") and place.partition("#")[0] not in seen:
                seen.add(place.partition("#")[0])
                assert browser.get(place).status_code == 200, (path, place)
    assert len(seen) > 60


def test_no_file_of_the_console_names_another_host() -> None:
    for file in (*FOLDER.glob("templates/*"), *FOLDER.glob("static/*")):
        found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", file.read_text())
        assert not set(found) - {"http://www.w3.org"}, file


@pytest.mark.parametrize("name", ["console.css", "console.js", "icon.svg"])
def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(browser: Browser, name: str) -> None:
    answer = browser.get(f"/console/static/{name}?v={assets()[name].version}")
    assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert browser.get(f"/console/static/{name}?v=old").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fpages.py", "%2e%2e", "console.css%00"])
def test_no_other_file_is_served(browser: Browser, name: str) -> None:
    assert browser.get(f"/console/static/{name}").status_code in (404, 405)


def test_the_console_is_not_in_the_document_of_the_api(browser: Browser) -> None:
    assert "/console" not in browser.get("/openapi.json").text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_value_becomes_markup(hostile: str) -> None:
    service = world()
    if hostile not in ("..",):
        add_listing(service, hostile, city=hostile, description=hostile)
    service.overseer.found = DeploymentLook((Part("view", hostile, hostile, hostile, "store"),), Sample())
    browser = Browser(create_app(service))
    key = quote(hostile, safe="")
    for path in (
        "/console",
        "/console/views/listings",
        f"/console/views/listings?{urlencode({'city': hostile})}",
        f"/console/views/listings?{urlencode({hostile: hostile})}",
        f"/console/views/listing_search?{urlencode({'q': hostile})}",
        f"/console/views/listings/row?key={key}",
        f"/console/views/listings/row/scan?key={key}",
        f"/console/streams?{urlencode({'stream': f'listing/{hostile}'})}",
        f"/console/streams?{urlencode({'type': hostile})}",
        f"/console/sign-in?{urlencode({'next': hostile})}",
        f"/console/followed?{urlencode({'stream': f'listing/{hostile}', 'version': 2})}",
    ):
        answer = browser.get(path)
        assert answer.status_code in (200, 303, 404, 422, 400, 431), (path, answer.text)
        page = Links(answer.text)
        assert page.tags.count("script") in (0, 1) and "img" not in page.tags, path
        assert not [name for name, _ in page.attributes if name.startswith("on")], path
        assert not [place for _, place in page.places if urlsplit(place).scheme], path
        assert "60481729" not in answer.text, path
        assert len(answer.text) < 400_000


def test_what_is_not_well_comes_first_with_what_helps() -> None:
    service = world()
    well(
        service,
        Lag("a", "postgres", 1, 3, "caught up", {"0": 2}, 0, 0, 0.0),
        Lag("z", "valkey", 1, None, "not built", {}, problem="version 2 is not built: run `replay rebuild z`"),
        Lag("s", "elasticsearch", 1, 1, "away", {}, problem="elasticsearch does not answer"),
        Lag("l", "postgres", 1, 1, "stalled", {}, 5, 5, 9.0, "the loader of postgres makes no progress: see its log"),
    )
    text = Browser(create_app(service)).get("/console").text
    assert text.index("replay rebuild z") < text.index("Views in their stores")
    assert "3 parts need attention" in text
    for fault in ("nobody", "store", "loader"):
        assert f'<span class="fault" title="the part at fault">{fault}</span>' in text
    table = text[text.index("<tbody") :]
    assert table.index(">z</a>") < table.index(">a</a>")


def test_a_page_says_when_all_is_well(browser: Browser) -> None:
    text = browser.get("/console").text
    assert "All well" in text and re.search(r">[0-9.]+ (s|min)<", text)


@pytest.mark.parametrize("error", [LogUnavailable("reading", "no broker"), StoreUnavailable("PostgreSQL", "no answer")])
def test_an_error_is_a_page_for_people_and_a_problem_document_for_programs(error: Exception) -> None:
    service = world()
    service.generations.error = error
    browser = Browser(create_app(service))
    page = browser.get("/console/views")
    assert page.status_code == 503 and page.headers["content-type"].startswith("text/html")
    assert "problem+json" in browser.get("/console/views", headers={"accept": "*/*"}).headers["content-type"]


def test_the_page_of_a_view_says_when_its_rows_expire() -> None:
    browser = Browser(create_app(world(("listings", "tests.support.expiring"))))
    text = "A row expires 60 min after its <code>seen_at</code>, and is not found any more then."
    assert text in browser.get("/console/views/sessions").text
    assert "A row expires" not in browser.get("/console/views/users").text


def test_a_cell_is_three_clicks_from_its_event(browser: Browser) -> None:
    row = browser.get("/console/views/listings").text
    (cell,) = re.findall(r'href="([^"]*column=price#why)"', row)
    why = browser.get(cell.replace("&amp;", "&")).text
    shown = why[why.index('id="changes"') :]
    assert shown.count("<li id=") == 7 and "listing.price_changed" in shown
    assert re.search(r'class="before"><bdi>106</bdi></td><td><span class="after"><bdi>107', shown)
    event = re.findall(r'<h3><a href="([^"]+)">listing.price_changed', shown)[-1].replace("&amp;", "&")
    stream = browser.get(event).text
    assert "State at version 7 of 7" in stream and "command-7" in stream and "clerk L1" in stream
    assert event.endswith("#v7") and 'id="v7"' in stream


def test_events_that_did_not_change_a_column_are_left_out(browser: Browser) -> None:
    text = browser.get("/console/views/listings/row?key=L1&column=city").text
    assert text[text.index('id="changes"') :].count("<li id=") == 1


def test_a_row_that_no_key_leads_to_is_found_in_the_log(browser: Browser) -> None:
    page = browser.get("/console/views/city_market/row?key=GALT").text
    assert "The log must be read: 1 offsets" in page or "The log must be read" in page
    text = browser.get("/console/views/city_market/row/scan?key=GALT").text
    assert text.count("<li id=") == 7
    assert text.index("offsets read") < text.index("The end of the log")
    assert text.rstrip().endswith("</html>")


def test_the_state_at_any_version(browser: Browser) -> None:
    for version, price in ((1, 100), (4, 104), (7, 107)):
        text = browser.get(f"/console/streams/listing/L1?version={version}").text
        assert f"&#34;price&#34;: {price}" in text and f"State at version {version} of 7" in text
    assert "State at version 7 of 7" in browser.get("/console/streams/listing/L1?version=99").text


def test_the_rows_of_an_event_and_what_followed_it(browser: Browser) -> None:
    text = browser.get("/console/followed?stream=listing/L1&version=2").text
    assert text.count('<div class="event-head">') == 5
    for name in ("listings L1", "city_market GALT", "listing_card L1"):
        assert f">{name}</a>" in text


def test_an_event_that_was_erased_is_said_so() -> None:
    service = world()
    del service.readers["postgres"].rows["streams"]["listing/L1/3"]
    text = Browser(create_app(service)).get("/console/streams/listing/L1?version=3").text
    assert "was erased" in text and "after version 2" in text


def test_a_filter_of_the_form_is_one_of_the_api(browser: Browser) -> None:
    page = "/console/views/listings?column=price&operator=gte&value="
    assert ">L1</bdi>" in browser.get(f"{page}107").text
    found = browser.get(f"{page}108").text
    assert "No rows." in found and "price.gte=108" in found
    assert "is not a number" in browser.get(f"{page}x").text or 'role="alert"' in browser.get(f"{page}x").text


def test_a_view_that_changes_is_followed_by_its_page(browser: Browser) -> None:
    assert 'data-changes="/console/views/listings/changes"' in browser.get("/console/views/listings").text
    row = browser.get("/console/views/listings/row?key=L1").text
    assert 'data-changes="/console/views/listings/changes?key=L1"' in row


def test_pages_that_are_open_share_a_look() -> None:
    service, browser = open_console()
    for _ in range(5):
        browser.get("/console")
    assert service.overseer.looks == 1


def test_unknown_pages_say_so(browser: Browser) -> None:
    for path in ("/console/views/nothing", "/console/streams?stream=nothing/1", "/console/streams?stream=listing/none"):
        answer = browser.get(path)
        assert answer.status_code == 404 and "<h1>" in answer.text
    assert browser.get("/console/streams?stream=nothing").status_code == 422
    assert browser.get("/console/views/listings/row?key=L1&column=nothing").status_code == 422


def test_who_may_not_operate_sees_nothing(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path, "views:*", "streams:*")
    for path in PATHS:
        answer = browser.get(path, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 403 and "L1" not in answer.text.replace(path, ""), path


def test_a_row_with_too_many_events_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    _, browser = open_console()
    for name, limit in (("MAX_FOLDED", 3), ("MAX_FOLDED_BYTES", 1_000)):
        with monkeypatch.context() as patched:
            patched.setattr(views, name, limit)
            text = browser.get("/console/views/listings/row?key=L1").text
        assert "too many events to fold" in text and "/console/views/listings/row/scan?key=L1" in text
    assert browser.get("/console/views/listings/row/scan?key=L1").text.count("<li id=") == 7


class Endless(AuditReader):
    """A log whose end is never reached."""

    def __init__(self) -> None:
        self.pages = 0

    async def page(self, starts: Mapping[int, int], event_filter: EventFilter, limit: int) -> AuditPage:
        self.pages += 1
        await asyncio.sleep(0)
        return AuditPage(next_offsets={0: self.pages})


def test_a_search_of_the_log_ends_when_its_reader_leaves() -> None:
    audit = Endless()
    app = create_app(replace(world(), audit=audit))
    path, sent = "/console/views/city_market/row/scan", []

    async def read() -> None:
        left = asyncio.Event()
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"key=GALT",
            "headers": [(b"host", b"x"), (b"accept", b"text/html")], "server": ("x", 80), "scheme": "http",
            "http_version": "1.1",
        }  # fmt: skip

        async def receive() -> Any:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b"").decode())
            if len(sent) > 10:
                left.set()

        async with asyncio.timeout(60):
            await app(scope, receive, send)
        ended = audit.pages
        for _ in range(10):
            await asyncio.sleep(0)
        assert audit.pages == ended

    asyncio.run(read())
    assert "offsets read" in "".join(sent)


def test_values_of_every_kind_are_shown() -> None:
    assert shown_value(2**80) == str(2**80) and str(2**80) in pretty({"a": [2**80, float("inf")]})
    assert shown_value("x" * 1_000).endswith("…") and shown_value(["é"]) == '["é"]'
    service, browser = open_console()
    service.overseer.found = DeploymentLook((Part("view", "a", "away", "quotes \ud800", "store"),), Sample())
    assert "quotes ?" in browser.get("/console").text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0.0 s"), (99.9, "99.9 s"), (120, "2 min"), (10_000, "3 h"), (10**6, "12 d")]
)
def test_durations_are_short(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_commands_in_problems_are_marked() -> None:
    assert marked("run `replay rebuild <x>` now") == "run <code>replay rebuild &lt;x&gt;</code> now"
    assert marked("one ` is none <b>") == "one ` is none &lt;b&gt;"


def test_captured_databases_are_listed_with_how_far_they_are() -> None:
    plain, _ = open_console()
    assert "Databases" not in Browser(create_app(plain)).get("/console").text
    service = world(modules=("listings", "shop"))
    browser = Browser(create_app(service))
    assert ">Databases</a>" in browser.get("/console").text
    text = browser.get("/console/sources").text
    check(browser.get("/console/sources"))
    assert ">shop</th>" in text and "nothing yet" in text and "public.customers" in text
    commit = Commit(0x1A2B3C8, now_ms() - 10_800_000)
    captured: Any = Captured(
        service.captured.sources, commit, Snapshot("initial", "IN_PROGRESS", "public.customers", 1_500)
    )
    text = Browser(create_app(replace(service, captured=captured))).get("/console/sources").text
    assert "0/1A2B3C8" in text and "initial in progress public.customers 1,500" in text and ">3 h<" in text
    captured.error = LogUnavailable("reading", "no broker")
    assert "no broker" in Browser(create_app(replace(service, captured=captured))).get("/console/sources").text


class Captured:
    """Captured databases whose state a test decides."""

    error: Exception | None = None

    def __init__(self, sources: Any, commit: Commit, snapshot: Snapshot) -> None:
        self.sources, self._commit, self._snapshot = sources, commit, snapshot

    async def last_commit(self, name: str) -> Commit:
        if self.error is not None:
            raise self.error
        return self._commit

    async def snapshot(self, name: str) -> Snapshot:
        return self._snapshot


def test_what_the_queries_of_stream_views_do_is_shown() -> None:
    service = world()
    report = StreamReport(batch=7, records=1_234, watermark="2026-01-02T03:04:05Z")
    well(service, Lag("hourly_views", "postgres", 1, 1, "caught up", {"0": 1}, 0, 0, 0.0, stream=report))
    text = Browser(create_app(service)).get("/console").text
    assert "batch 7 took" in text and "1,234 records" in text
