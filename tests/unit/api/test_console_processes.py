"""The pages of processes: their numbers are those of the owners, and an instance is found with what waits for it."""

from __future__ import annotations

import html
import random
import re
from urllib.parse import urlencode

import pytest

from headwater.api.console import processes
from headwater.api.console.processes import InstanceState, OneInstance, Timer, read_record
from headwater.api.reads import log as reading
from headwater.commands.reacting.instance_store import PARKED_PREFIX
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import NEXT_OFFSET, Entry, Record
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import PROCESSES
from tests.support.process_world import World
from tests.support.seeds import seed_of, sweep
from tests.unit.api.console_world import HOSTILE, Browser, open_console
from tests.unit.api.fake_service import PARTITIONS, FakeService, fake_service
from tests.unit.commands.test_process_failures import WORST, counting, history
from tests.unit.commands.test_process_metrics import counted, some_history
from tests.unit.commands.test_process_store import per_customer, place

SCAN = "/console/processes/scan"


@pytest.fixture
def world() -> World:
    """An order that is counted, one at which counting has stopped, and a customer with timers."""
    made = World(random.Random(1), partitions=PARTITIONS)
    made.deploy(counting(WORST["nothing"]), per_customer())
    made.record_events("order/good", *history("good"))
    made.record_events("order/bad", *history("bad"))
    place(made, 1)
    made.settle()
    return made


def opened(log: MemoryLog) -> tuple[FakeService, Browser]:
    return open_console(fake_service(modules=("orders",), log=log))


def instance(process: str, key: str) -> str:
    return f"/console/processes/instance?{urlencode({'process': process, 'key': key})}"


def cells(page: str) -> dict[str, list[str]]:
    """The first table of a page: its rows by what each names."""
    table = page.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr")[1:]]
    return {re.sub(r" ?<.*", "", row[0]): row[1:] for row in rows}


def test_all_processes_are_listed_with_what_they_handle() -> None:
    _, browser = opened(MemoryLog(PARTITIONS))
    found = cells(browser.get("/console/processes").text)
    key, starts, besides, begins = found["order_fulfilment"]
    assert (key, starts, begins) == ("order_id", "order.placed", "from the first deployment on")
    assert "order.paid" in besides and "order.placed" not in besides


def test_a_deployment_without_processes_has_no_such_page_in_its_navigation() -> None:
    _, browser = open_console()
    assert "/console/processes" not in browser.get("/console").text
    assert "This deployment has none" in browser.get("/console/processes").text


def test_the_numbers_are_those_of_the_owners(world: World) -> None:
    _, browser = opened(world.log)
    page = browser.get(SCAN).text
    found = cells(page)
    owned = counted(world)
    assert owned["p"].timers == 2 and owned["counting"].stopped == 1
    for process, waiting in (("counting", "2"), ("p", "0")):
        of_owner = owned[process]
        late = str(of_owner.timers)  # the clock of the owners is behind
        expected = [str(of_owner.instances), str(of_owner.stopped), waiting, str(of_owner.timers), late]
        assert found[process] == expected
    assert found["order_fulfilment"] == ["0", "0", "0", "0", "0"]
    assert page.count("not declared by this code") == 2
    assert html.escape(instance("counting", "bad")) in page and html.escape(instance("p", "Ada")) in page


@pytest.mark.parametrize("number", sweep(4, 1))
def test_the_numbers_do_not_depend_on_the_portions(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed_of(number))
    world = some_history(chance, PARTITIONS)
    monkeypatch.setattr(reading, "PORTION_RECORDS", chance.randint(1, 5))
    _, browser = opened(world.log)
    page = browser.get(SCAN).text
    found = cells(page)
    for process, count in counted(world).items():
        number_of, stopped, _, timers, _ = found[process]
        assert (number_of, stopped, timers) == (str(count.instances), str(count.stopped), str(count.timers))
    assert page.count('class="progress"') > PARTITIONS


def test_an_instance_is_shown_with_its_state_and_timers(world: World) -> None:
    _, browser = opened(world.log)
    page = browser.get(instance("p", "Ada")).text
    assert world.instance("p/Ada") is not None
    assert page.count('<span class="bad">late</span>') == 2
    assert "dead letters" not in page and "Waits for it" not in page


def test_an_instance_that_has_stopped_is_shown_with_what_waits_for_it(world: World) -> None:
    _, browser = opened(world.log)
    page = browser.get(instance("counting", "bad")).text
    assert "It has stopped" in page and "Waits for it: 2" in page
    assert page.count("/console/streams?stream=order%2Fbad&amp;version=") == 2


def test_no_key_of_an_instance_becomes_markup_and_each_is_found() -> None:
    log = MemoryLog(PARTITIONS)
    state = b'{"state":{"n":18446744073709551617},"seen":{},"timers":{"t":{"due_ms":99999999999999999}}}'
    for key in HOSTILE:
        at = partition_of(f"expiry/{key}", PARTITIONS)
        log.submit(Entry(PROCESSES, f"expiry/{key}", state, 1), at).result()
        log.submit(Entry(PROCESSES, f"{PARKED_PREFIX}expiry/{key}/7", b"no event", 1), at).result()
        log.submit(Entry(PROCESSES, f"{PARKED_PREFIX}expiry/{key}/x/8", b"of another", 1), at).result()
    _, browser = opened(log)
    scan = browser.get(SCAN).text
    for key in HOSTILE:
        if "<script>" in key or "<img" in key:
            assert key not in scan
        address = instance("expiry", key)
        assert html.escape(address) in scan, key
        page = browser.get(address).text
        assert "18446744073709551617" in page, key
        assert "offset 7" in page and "Waits for it: 1" in page, key


def test_one_that_is_not_there_or_cannot_be_read_is_said_to_be_so() -> None:
    log = MemoryLog(PARTITIONS)
    for key, value in (("broken", b"\xff{"), ("list", b"[]"), ("gone", b'{"state":1}'), ("gone", None)):
        log.submit(Entry(PROCESSES, f"p/{key}", value, 1), partition_of(f"p/{key}", PARTITIONS)).result()
    _, browser = opened(log)
    assert "There is no such instance" in browser.get(instance("p", "never")).text
    assert "There is no such instance" in browser.get(instance("p", "gone")).text
    assert "cannot be read" in browser.get(instance("p", "broken")).text
    assert "cannot be read" in browser.get(instance("p", "list")).text
    assert cells(browser.get(SCAN).text)["p"][0] == "2"
    assert browser.get(instance("p", "")).status_code == 422


def test_more_than_a_page_can_count_ends_it_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog(PARTITIONS)
    for number in range(40):
        log.submit(Entry(PROCESSES, f"p/{number}", b'{"state":1}', 1), 0).result()
    monkeypatch.setattr(processes, "MAX_KNOWN", 30)
    _, browser = opened(log)
    assert "headwater_process_" in browser.get(SCAN).text
    monkeypatch.setattr(processes, "MAX_KNOWN", 40)
    assert cells(browser.get(SCAN).text)["p"][0] == "40"


def test_a_log_that_goes_away_meanwhile_ends_the_page_with_the_problem(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise LogUnavailable("reading", "Kafka does not answer")

    _, browser = opened(world.log)
    monkeypatch.setattr(world.log, "read", gone)
    page = browser.get(SCAN).text
    assert "Kafka does not answer" in page and page.rstrip().endswith("</html>")


def test_what_is_read_of_a_record() -> None:
    value = b'{"shape":"s","state":{"a":1},"stopped":"x","timers":{"b":{"due_ms":2},"a":{"due_ms":3}}}'
    assert read_record(value) == InstanceState({"a": 1}, "s", stopped=True, timers=[Timer(2, "b"), Timer(3, "a")])


def test_what_was_released_does_not_wait() -> None:
    def record(offset: int, key: str, value: bytes | None) -> Record:
        return Record(PROCESSES, 0, offset, key, value, now_ms())

    one = OneInstance("p/a")
    one.add([record(0, "parked:p/a/5", b"{}"), record(1, "parked:p/a/6", b"{}"), record(2, NEXT_OFFSET, b"7")])
    one.add([record(3, "parked:p/a/5", None), record(4, "p/a", b"{}"), record(5, "p/a", None)])
    assert list(one.waiting) == [6] and one.value is None
