"""The console in a real browser: what a person does with it, with the keyboard alone, and what axe finds.

HEADWATER_SCREENSHOTS=docs/images makes the pictures of docs/console.md.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from headwater.api.guard.keys import new_key, now, write_keys
from headwater.commands.handling.handler import dead_letter
from headwater.eventlog.envelope import Envelope, Position, decode, encode
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Record
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import COMMANDS, EVENTS, PROCESSES
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey
from tests.integration.api.api_deployment import PATIENT, Deployment, serving, stop
from tests.integration.replay.deployed import Deployed
from tests.support.background import running
from tests.support.listed import LISTING
from tests.support.ordered_producer import ordered_producer
from tests.support.servers import without_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.servers

START_S = 600.0
BOUND_MS = 60_000
SERIOUS = {"serious", "critical"}
LISTED = LISTING | {"description": "Quiet street, new roof"}
LINE = {"sku": "tea", "quantity": 1, "unit_cents": 500}
PAGES = {
    "now": "/console",
    "views": "/console/views",
    "view": "/console/views/listings",
    "row": "/console/views/listings/row?key=sacramento-2",
    "scan": "/console/views/city_market/row/scan?key=Sacramento",
    "stream": "/console/streams?stream=listing/sacramento-2",
    "log": "/console/streams",
    "followed": "/console/followed?stream=listing/sacramento-2&version=1",
    "processes": "/console/processes",
    "instances": "/console/processes/scan",
    "instance": "/console/processes/instance?process=order_fulfilment&key=O1",
    "letters": "/console/letters",
    "audit": "/console/audit",
}


PICTURES = ("console-now-light.png", "console-row-light.png", "console-stream-dark.png")


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    return ("listings", "orders")


@pytest.fixture(scope="module")
def key(deployment: Deployment) -> str:
    """Of an operator who may also send commands."""
    made, stored = new_key("ada", ["operate", "commands:*"], now(), None, {})
    write_keys(deployment.folder / "keys.json", [stored])
    return made


@pytest.fixture(scope="module")
def variables(deployment: Deployment, key: str) -> Mapping[str, str]:
    return {"HEADWATER_API_KEYS": str(deployment.folder / "keys.json")}


@pytest.fixture(scope="module")
def api(deployment: Deployment, variables: Mapping[str, str], key: str) -> Iterator[httpx.Client]:
    """A client of a whole deployment: its handler, its read side and its API, with twelve listings in all views."""
    running_handler = deployment.start("commands", **PATIENT)
    try:
        with serving(deployment, **variables) as client, read_side(deployment) as built:
            client.headers["authorization"] = f"Bearer {key}"
            position = ""
            for number in range(1, 13):
                position = send(client, "listing.list_property", f"sacramento-{number}", **LISTED)
            changed = send(client, "listing.change_price", "sacramento-2", price=60_000)
            placed = client.post("/commands/order.place", json={"order_id": "O1", "customer": "Ada", "lines": [LINE]})
            assert placed.status_code == 201, placed.text
            eventually(lambda: is_there(client, built, f"{position},{changed}"), "the views have everything", START_S)
            eventually(lambda: "order_fulfilment/O1" in instances(deployment), "the process has begun", START_S)
            yield client
    finally:
        stop(running_handler)


def instances(deployment: Deployment) -> set[str]:
    """The keys of the records of processes."""
    with closing(KafkaLog(deployment.log)) as log:
        return {each.key for partition in range(log.partitions) for each in log.read(PROCESSES, partition, 0)}


@contextmanager
def read_side(deployment: Deployment) -> Iterator[Sequence[TableView]]:
    """The views of the deployment that need no Spark, with loaders; the reference plays their live query."""
    settings, stores = deployment.log, deployment.stores
    views = ViewRegistry.load(settings.modules).of_kind(TableView)
    producer = ordered_producer(settings.bootstrap, **{"linger.ms": 5})
    servers = {"postgres": OnPostgres(stores), "elasticsearch": OnElasticsearch(stores), "valkey": OnValkey(stores)}
    with closing(KafkaLog(settings)) as log:
        read = ReadSoFar(log)
        deployed = Deployed(settings, stores, servers, read, producer)  # type: ignore[arg-type]
        built = deployment.start("replay", "rebuild", *(view.name for view in views), "--engine", "local")
        assert built.wait(START_S) == 0, (deployment.folder / "replay.log").read_text()
        try:
            with deployed.served(list(views)), running(partial(emit, deployed, read, list(views))):
                yield list(views)
        finally:
            for store in [store for server in servers.values() for store in server._opened]:
                store.close()


class ReadSoFar:
    """The log as far as its records were read: what comes after that is no progress yet."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.ends = dict.fromkeys(range(log.partitions), 0)

    def end(self, _: str, partition: int) -> int:
        return self.ends[partition]

    def read(self, partition: int) -> Iterator[Source]:
        """The events that are new in a partition."""
        start, end = self.ends[partition], self._log.end(EVENTS, partition)
        for record in self._log.read(EVENTS, partition, start, end):
            if record.value is not None and not is_heartbeat_key(record.key):
                at, text = Position(partition, record.offset), record.value.decode()
                yield Source(decode(record.value), at, record.timestamp_ms, text)
        self.ends[partition] = end


def emit(deployed: Deployed, log: ReadSoFar, views: Sequence[TableView], stop: threading.Event) -> None:
    """Make patches of what is new in the log, until `stop` is set."""
    while not stop.wait(0.1):
        for partition in log.ends:
            deployed.sources += log.read(partition)
        deployed.emit(views)


def send(client: httpx.Client, command: str, listing: str, **fields: object) -> str:
    """Send a command and return the position of its event."""
    answer = client.post(f"/commands/{command}", json={"listing_id": listing, **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["position"])


def is_there(client: httpx.Client, views: Sequence[TableView], position: str) -> bool:
    """Whether those of these views that can be asked have this position."""
    asked = [view.name for view in views if view.stores[0].finds]
    return all(client.get(f"/views/{view}", params={"after": position}).status_code == 200 for view in asked)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        without_server("Chromium is not here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        expect.set_options(timeout=BOUND_MS)  # for all pages; by default it is 5 s
        yield browser
        browser.close()


Opened = Callable[..., Page]


def take_screenshot(page: Page, name: str) -> None:
    """A picture for the documentation, if somebody wants pictures."""
    if (folder := os.environ.get("HEADWATER_SCREENSHOTS")) and name in PICTURES:
        page.screenshot(path=Path(folder) / name)


@pytest.fixture
def opened(chromium: Browser, api: httpx.Client, key: str) -> Iterator[Opened]:
    """Opens a page of a browser whose session is that of the operator; it must load nothing elsewhere, nor complain."""
    contexts: list[BrowserContext] = []
    requests: list[str] = []
    complaints: list[str] = []

    def open_page(path: str = "/console", **options: object) -> Page:
        context = chromium.new_context(base_url=str(api.base_url), **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(BOUND_MS)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        page.locator("#key").fill(key)
        page.locator("#key").press("Enter")
        page.wait_for_url(f"**{path}")
        return page

    yield open_page
    for each in contexts:
        each.close()
    assert {urlsplit(url).netloc for url in requests} == {urlsplit(str(api.base_url)).netloc}
    assert complaints == []


def tab_to(page: Page, name: str) -> None:
    """Press the tabulator until the focus is on what has this name: the text of a link or button, or an id."""
    for _ in range(150):
        page.keyboard.press("Tab")
        focused = page.evaluate("[document.activeElement.textContent, document.activeElement.id]")
        if name in [each.strip() for each in focused]:
            return
    raise AssertionError(f'nothing with the name "{name}" has the focus')


@pytest.mark.complete
def test_a_person_finds_a_listing_sees_it_change_and_looks_why_with_the_keyboard_alone(
    opened: Opened, api: httpx.Client
) -> None:
    page = opened()
    # the one view that needs Spark is the one that is not well
    expect(page.locator("ul.problems > li")).to_have_count(1)
    expect(page.locator("ul.problems")).to_contain_text("view hourly_views in postgres")
    expect(page.locator("ul.problems .command code")).to_have_text("headwater projections")
    expect(page.locator("#views .dot.caught-up")).to_have_count(5)
    # the browser itself remembers how old the rows were
    expect(page.locator("#views .spark svg").first).to_have_attribute("aria-label", re.compile("s now, .* at most"))
    expect(page.locator("#views .spark + td").filter(has_text="/s").first).to_be_visible()
    tab_to(page, "Views")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/views")
    tab_to(page, "listings")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/views/listings")
    tab_to(page, "key")
    page.keyboard.type("sacramento-1")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("sacramento-1")
    expect(page.locator("#row")).to_contain_text("59222")
    expect(page.locator("body")).to_have_class("followed")

    send(api, "listing.change_price", "sacramento-1", price=61_000)
    expect(page.locator("#row")).to_contain_text("61000")

    tab_to(page, "price: why?")
    page.keyboard.press("Enter")
    page.wait_for_url("**column=price#why")
    last = page.locator("ol.events > li").last
    expect(last.locator(".before").first).to_have_text("59222")
    expect(last.locator(".after").first).to_have_text("61000")
    tab_to(page, "listing.price_changed")
    page.keyboard.press("Enter")
    expect(page.locator("#state-title")).to_have_text("State at version 2 of 2")
    expect(page.locator("#v2")).to_contain_text("ada")
    tab_to(page, "version")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#state-title")).to_have_text("State at version 1 of 2")
    expect(page.locator("pre")).to_contain_text('"price": 59222')


@pytest.mark.complete
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_no_page_is_wider_than_a_phone(opened: Opened, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    for name, path in PAGES.items():
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(path)
        found = Axe().run(page).response["violations"]
        wrong = [
            (event["id"], [node["html"] for node in event["nodes"]]) for event in found if event["impact"] in SERIOUS
        ]
        assert wrong == [], name
        take_screenshot(page, f"console-{name}-{scheme}.png")
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


@pytest.mark.complete
def test_the_page_for_signing_in_is_for_everybody(chromium: Browser, api: httpx.Client) -> None:
    context = chromium.new_context(base_url=str(api.base_url))
    page = context.new_page()
    page.set_default_timeout(BOUND_MS)
    page.goto("/console")
    expect(page.locator("#key")).to_be_focused()
    assert [event["id"] for event in Axe().run(page).response["violations"] if event["impact"] in SERIOUS] == []
    page.locator("#key").fill("hw_wrong")
    page.keyboard.press("Enter")
    expect(page.locator("[role=alert]")).to_be_visible()
    context.close()


@pytest.mark.complete
def test_pages_work_without_javascript(opened: Opened) -> None:
    page = opened("/console/streams?stream=listing/sacramento-2", java_script_enabled=False)
    page.locator("#version").press("ArrowLeft")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#state-title")).to_have_text("State at version 1 of 2")
    page.goto("/console/views/city_market/row/scan?key=Sacramento")
    expect(page.locator(".end")).to_have_text("The end of the log.")
    assert page.locator("ol.events > li[id]").count() >= 12


@pytest.mark.complete
def test_the_command_that_rebuilds_a_view_is_copied_and_works(opened: Opened, deployment: Deployment) -> None:
    page = opened("/console/views/listing_card")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".command", has_text="replay rebuild").get_by_role("button", name="Copy").click()
    expect(page.locator(".command", has_text="replay rebuild")).to_contain_text("Copied")
    command = page.evaluate("navigator.clipboard.readText()")
    assert command == "replay rebuild listing_card"
    rebuilt = deployment.start(*command.split(), HEADWATER_ACTOR="ada")
    assert rebuilt.wait(START_S) == 0
    page.goto("/console/audit")
    expect(page.locator("tbody")).to_contain_text("replay rebuild")
    expect(page.locator("tbody")).to_contain_text("ada")


@pytest.mark.complete
def test_a_process_instance_is_found_with_its_timer(opened: Opened) -> None:
    page = opened("/console/processes")
    page.get_by_role("link", name="Count instances and timers").click()
    row = page.locator("table").first.locator("tr", has_text="order_fulfilment")
    expect(row.locator("td")).to_have_text(["1", "0", "0", "1", "0"])
    page.get_by_role("link", name="O1").click()
    expect(page.locator("pre")).to_contain_text('"status": "awaiting_payment"')
    expect(page.locator("main")).to_contain_text("unpaid")
    page.goto("/console/processes")
    page.locator("#key").fill("O2")
    page.locator("#key").press("Enter")
    expect(page.locator(".note")).to_contain_text("There is no such instance")


@pytest.mark.complete
def test_a_letter_is_retried_by_the_command_of_its_page(
    opened: Opened, api: httpx.Client, deployment: Deployment
) -> None:
    """Of a command that the code could not read, before the mended code was deployed."""
    order = {"order_id": "O2", "customer": "Ada", "lines": [LINE]}
    command = Envelope(id="unread", type="order.place", stream="order/O2", time=datetime.now(UTC), data=order)
    record = Record(COMMANDS, 0, 10**9, command.stream, encode(command), now_ms())
    with closing(KafkaLog(deployment.log)) as log:
        log.submit(dead_letter(record, "its fields are unknown", now_ms()), 0).result(240)
    page = opened("/console/letters")
    letter = page.locator("ol.events > li")
    expect(letter.locator("h3")).to_have_text(f"{COMMANDS}/0/{10**9}")
    expect(letter).not_to_contain_text("Ada")
    retried = deployment.start(*letter.locator(".command code").inner_text().split())
    assert retried.wait(START_S) == 0
    page.goto("/console/letters")
    expect(page.locator("main")).to_contain_text("There are none.")
    eventually(lambda: api.get("/streams/order/O2").status_code == 200, "the order is placed")
