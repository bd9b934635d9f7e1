"""Expensive work: bounded in number, refused beyond that, off the event loop, and ended when its client leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from headwater.api.app import create_app
from headwater.api.errors import NotCaughtUp
from headwater.api.limits import Admission, Work
from headwater.api.reading import Live, Page
from headwater.api.reads.log import LogReader
from headwater.api.reads.scans import AuditPage, AuditReader
from headwater.api.requests.query import Query
from headwater.api.waiting import awaited as polls
from headwater.api.waiting.awaited import After
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog import topics
from headwater.eventlog.envelope import Position, encode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, event, fake_service
from tests.unit.api.followers import Follower, until

Scenario = Callable[[], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(main())


class Client(Follower):
    """Whose answer is one document."""

    def _show(self) -> None: ...


@asynccontextmanager
async def requesting(app: Any, path: str, query: str = "") -> Any:
    """A request whose client leaves at the end of the block."""
    client = Client(False, path)
    call = asyncio.create_task(client.call(app, query, None))
    try:
        yield client
    finally:
        client.gone.set()
        await asyncio.wait_for(call, 60)


class EndlessLog(MemoryLog):
    """A log of which every read gives erased events for ever, while `endless`; reading: how many reads are going on."""

    endless = True
    reading = 0

    def read(self, topic: str, partition: int, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        (record,) = super().read(topic, partition, 0, 1)
        self.reading += 1
        try:
            while self.endless:
                yield record
        finally:
            self.reading -= 1


def test_pages_of_all_streams_end_when_their_clients_leave() -> None:
    log = EndlessLog(1)
    log.submit(Entry(topics.EVENTS, "listing/L1/1", None, 1), 0)
    service = replace(fake_service(), audit=AuditReader(log))
    app = create_app(service)

    async def scenario() -> None:
        for _ in range(3):  # one more than there are threads
            async with requesting(app, "/streams/$all", "type=none"):
                await until(lambda: log.reading > 0)
            await until(lambda: log.reading == 0)
        log.endless = False
        async with requesting(app, "/streams/$all", "type=none") as client:
            await until(lambda: client.ended)
            assert client.status == 200

    play(scenario)


class SlowAudit(AuditReader):
    """Pages that come once they are allowed to."""

    def __init__(self) -> None:
        self.allowed, self.running, self.cancelled = asyncio.Event(), 0, 0

    async def page(self, *_: Any) -> Any:
        self.running += 1
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return AuditPage(ended=True)


def test_more_work_than_may_wait_is_refused_and_who_leaves_makes_room() -> None:
    async def scenario() -> None:
        audit = SlowAudit()
        work = Work(scans=Admission("pages of all streams", 1, 1))
        app = create_app(replace(fake_service(), audit=audit, work=work))
        async with requesting(app, "/streams/$all") as first:
            await until(lambda: audit.running == 1)
            async with requesting(app, "/streams/$all") as waiting:
                await until(lambda: work.scans._inside == 2)
                async with requesting(app, "/streams/$all") as refused:
                    await until(lambda: refused.ended)
                assert refused.status == 503
                assert "urn:headwater:problem:overloaded" in refused.text
                assert refused.headers["retry-after"] == "1"
                assert not waiting.status
            assert work.scans._inside == 1  # it left while it waited
            async with requesting(app, "/streams/$all") as later:
                await until(lambda: work.scans._inside == 2)
                audit.allowed.set()
                await until(lambda: first.ended and later.ended)
                assert [first.status, later.status] == [200, 200]
        assert (work.scans._inside, audit.cancelled) == (0, 0)

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "path", "media"),
    [
        ("many_lines", "/commands", "application/x-ndjson"),
        ("many_lines", "/observations/listing_viewed", "application/x-ndjson"),
        ("bodies", "/commands/listing.sell", "application/json"),
        ("bodies", "/observations/listing_viewed", "application/json"),
    ],
)
def test_more_requests_with_a_body_than_may_be_read_are_refused(kind: str, path: str, media: str) -> None:
    limited: dict[str, Any] = {kind: Admission("requests", 1, -1)}
    work = Work(**limited)
    answer = AppClient(create_app(replace(fake_service(), work=work))).post(
        path, content=b"{}", headers={"content-type": media}
    )
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:overloaded")
    assert answer.headers["retry-after"] == "1"


class Counted(Event, type="tally.counted"):
    tally_id: str


class Count(Command, type="tally.count"):
    tally_id: str


class Tally(BaseModel):
    model_config = ConfigDict(frozen=True)
    number: int = 0


def count(command: Count, state: Tally) -> Sequence[Event]:
    return [Counted(tally_id=command.tally_id)]


def test_states_are_folded_off_the_loop_and_only_so_many_at_once(service: FakeService) -> None:
    folded, going_on = threading.Event(), threading.Event()

    def evolve(state: Tally, event: Counted) -> Tally:
        going_on.set()
        assert folded.wait(240)
        return Tally(number=state.number + 1)

    tally = Aggregate(name="tally", id_field="tally_id", initial=Tally(), decide=count, evolve=evolve)
    events = [event("tally/a", version, "tally.counted", tally_id="a") for version in (1, 2, 3)]
    service.readers["postgres"].rows["streams"] = {
        each.id: {
            "event_id": each.id,
            "stream": each.stream,
            "sequence": each.sequence,
            "record": encode(each).decode(),
        }
        for each in events
    }
    work = Work(folds=Admission("states of streams", 1, 0))
    app = create_app(replace(service, commands=CommandRegistry([("here", tally)]), work=work))

    async def scenario() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://headwater") as client:
            state = asyncio.create_task(client.get("/streams/tally/a?version=3"))
            await until(going_on.is_set)
            assert (await client.get("/health/live")).status_code == 200
            assert (await client.get("/streams/tally/a?version=1")).status_code == 503
            assert (await client.get("/streams/tally/a")).status_code == 200
            folded.set()
            assert (await state).json()["state"] == {"number": 3}

    play(scenario)


def test_queries_of_views_are_bounded_and_end_when_their_clients_leave(service: FakeService) -> None:
    cancelled, started = list[str](), list[str]()

    async def find(live: Live, query: Query) -> Page:
        started.append(live.view.name)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(live.view.name)
            raise
        raise AssertionError

    async def scenario() -> None:
        service.readers["postgres"].find = find  # type: ignore[method-assign]
        work = Work(reads={"postgres": Admission("reads of views", 1, 0)})
        app = create_app(replace(service, work=work))
        async with requesting(app, "/views/listings"):
            await until(lambda: len(started) == 1)
            async with requesting(app, "/views/listings") as refused:
                await until(lambda: refused.ended)
                assert refused.status == 503
        assert cancelled == ["listings"]
        async with requesting(app, "/views/listings"):
            await until(lambda: len(started) == 2)

    try:
        play(scenario)
    finally:
        del service.readers["postgres"].find


SOLD = event("listing/L1", 5, "listing.sold", listing_id="L1", city="GALT", sold_for=1, price=1, square_feet=1)


@pytest.mark.parametrize("store", ["postgres", "valkey"])
def test_one_poll_serves_all_who_wait_for_a_view(service: FakeService, store: str) -> None:
    service.events.events[Position(2, 100)] = SOLD
    view, reader = service.views["listing_card" if store == "valkey" else "listings"], service.readers[store]

    async def wait(wait_ms: int) -> None:
        await service.waiter.wait(view, reader, After("2:100", wait_ms))

    ends, lags = service.events.ends, list[Sequence[str]]()

    async def counted(topics: Sequence[str]) -> Mapping[str, int]:
        lags.append(topics)
        return await ends(topics)

    async def scenario() -> None:
        service.events.ends = counted  # type: ignore[method-assign]
        began = time.monotonic()
        waiting = [asyncio.create_task(wait(240_000)) for _ in range(100)]
        await until(lambda: reader.asked > 10)
        polled_at_most = 1 + (time.monotonic() - began) / polls.MIN_INTERVAL_S
        assert reader.asked <= polled_at_most
        assert reader.guarded <= polled_at_most
        late = await asyncio.gather(*(wait(20) for _ in range(100)), return_exceptions=True)
        assert {type(each) for each in late} == {NotCaughtUp}
        assert len(lags) < 100  # each answer says how far the view is behind; those of the same moment share it
        reader.applied = {partition: {"2": 100} for partition in range(4)}
        await asyncio.gather(*waiting)

    play(scenario)


def test_who_waits_leaves_and_comes_back_while_others_wait(service: FakeService) -> None:
    service.events.events[Position(2, 100)] = SOLD
    view, reader = service.views["listings"], service.readers["postgres"]

    async def scenario() -> None:
        waiting = asyncio.create_task(service.waiter.wait(view, reader, After("2:100", 60_000)))
        leaving = asyncio.create_task(service.waiter.wait(view, reader, After("2:100", 60_000)))
        await until(lambda: reader.asked >= 2)
        leaving.cancel()
        asked = reader.asked
        await until(lambda: reader.asked >= asked + 3)
        reader.applied = {partition: {"2": 100} for partition in range(4)}
        await waiting
        assert leaving.cancelled()
        await service.waiter.wait(view, reader, After("2:100", 0))
        await until(lambda: not service.waiter._polls._running)  # nobody waits any more

    play(scenario)


def test_an_error_of_a_poll_reaches_all_who_wait_for_it(service: FakeService) -> None:
    service.events.events[Position(2, 100)] = SOLD
    view, reader = service.views["listings"], service.readers["postgres"]
    service.generations.missing.add("listings")

    async def scenario() -> None:
        waiting = (service.waiter.wait(view, reader, After("2:100", 60_000)) for _ in range(3))
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(error).__name__ for error in errors} == {"GenerationMissing"}
        service.generations.missing.clear()
        reader.applied = {partition: {"2": 100} for partition in range(4)}
        await service.waiter.wait(view, reader, After("2:100", 0))

    play(scenario)


def test_a_position_that_does_not_exist_is_looked_for_once_for_all() -> None:
    asked = list[str]()

    class Log(MemoryLog):
        def end(self, topic: str, partition: int) -> int:
            asked.append(topic)
            return super().end(topic, partition)

    async def scenario() -> None:
        reader = LogReader(Log(1))
        began = time.monotonic()
        assert set(await asyncio.gather(*(reader.event_at(Position(0, 10**6)) for _ in range(200)))) == {None}
        assert len(asked) <= 1 + (time.monotonic() - began) / 0.005
        reader.close()

    play(scenario)
