"""Types of observations, their records, and the recorder on the log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.commands.declaring.observation import Observation, ObservationRegistry
from headwater.commands.errors import DeclarationError, MalformedObservation, UnknownObservation
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.envelope import decode, partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import OBSERVATIONS


class Reading(Observation, type="reading", version=3):
    """A sensor's."""

    celsius: float
    raw: int | None = None


REGISTRY = ObservationRegistry([("here", Reading)])


def read(number: int, time: str = "null", source: str = "s1") -> Any:
    text = f'{{"id":"{number}","source":"{source}","time":{time},"data":{{"celsius":21.5}}}}'
    return REGISTRY.read("reading", text.encode())


def test_the_shipped_types_and_those_of_a_package() -> None:
    shipped = ObservationRegistry.load(["listings"]).types
    assert "listing_viewed" in shipped
    assert set(ObservationRegistry.load(["listings", __name__]).types) == {*shipped, "reading"}


def test_declarations_that_are_wrong() -> None:
    with pytest.raises(DeclarationError, match="Reading-1"):

        class Wrong(Observation, type="Reading-1"):
            pass

    with pytest.raises(DeclarationError, match='"heartbeat" is reserved'):

        class Beat(Observation, type="heartbeat"):
            pass

    with pytest.raises(DeclarationError, match=r'"here" and "there" both declare'):
        ObservationRegistry([("here", Reading), ("there", Reading)])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_would_be_stored_as_null_is_refused(number: str) -> None:
    with pytest.raises(MalformedObservation, match=r"data\.celsius"):
        REGISTRY.read("reading", f'{{"id":"1","source":"s1","data":{{"celsius":{number}}}}}'.encode())


def test_what_cannot_be_read() -> None:
    with pytest.raises(UnknownObservation, match="reading"):
        REGISTRY.read("weight", b"{}")
    for text in (b"", b"[]", b'{"id":"\\ud800"}', b'{"id":"1","source":"s","data":{"celsius":"warm"}}'):
        with pytest.raises(MalformedObservation):
            REGISTRY.read("reading", text)


def test_an_integer_that_no_store_can_hold_is_refused_with_its_place() -> None:
    def report(raw: int) -> bytes:
        return b'{"id":"%d","source":"s","data":{"celsius":1,"raw":%d}}' % (2**63, raw)

    assert REGISTRY.read("reading", report(2**63 - 1)).data.raw == 2**63 - 1
    with pytest.raises(MalformedObservation) as error:
        REGISTRY.read("reading", report(2**63))
    assert [detail["loc"] for detail in error.value.details] == [("data", "raw")]


def test_a_time_ahead_of_the_clock_is_refused_beyond_what_clocks_differ() -> None:
    def at(seconds: float) -> str:
        return f'"{(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}"'

    assert read(1, at(50)).time > datetime.now(UTC)
    with pytest.raises(MalformedObservation) as refused:
        read(1, at(70))
    (detail,) = refused.value.details
    assert detail["loc"] == ("time",)
    assert "more than 60 s in the future" in detail["msg"]


def test_a_record_and_where_it_is() -> None:
    log = MemoryLog(partitions=4)
    reports = [read(1, '"2026-01-02T03:04:05.678+01:00"'), read(2), read(1, source="s2")]
    before = datetime.now(UTC)
    positions = asyncio.run(ObservationRecorder(log).record(reports, correlation_id="c", traceparent="00-a"))
    assert positions[0].partition == positions[1].partition == partition_of("reading/s1", 4)
    records = [next(log.read(OBSERVATIONS, position.partition, position.offset)) for position in positions]
    names = [record.key.rpartition("@")[0] for record in records]
    assert names == ["reading/s1/1", "reading/s1/2", "reading/s2/1"]
    first, second = decode(records[0].value), decode(records[1].value)
    assert (first.id, first.type, first.stream, first.data_version) == ("reading/s1/1", "reading", "reading/s1", 3)
    assert (first.data, first.correlation_id, first.traceparent) == ({"celsius": 21.5, "raw": None}, "c", "00-a")
    assert first.time == datetime(2026, 1, 2, 2, 4, 5, 678000, tzinfo=UTC)
    assert records[0].timestamp_ms == 1767319445678
    assert second.time >= before
    assert first.recorded_time is not None
    assert first.recorded_time == second.recorded_time
    assert before <= first.recorded_time <= datetime.now(UTC)
    assert asyncio.run(ObservationRecorder(log).record([])) == []


def test_each_copy_of_a_report_is_kept_by_compaction() -> None:
    """A copy that is late must not take the place of one in time, nor a corrected one that of the first."""
    log, report = MemoryLog(partitions=1), REGISTRY.read("reading", b'{"id":"a@b","source":"s@1","data":{"celsius":1}}')
    asyncio.run(ObservationRecorder(log).record([report, report]))
    asyncio.run(ObservationRecorder(log).record([report]))
    keys = [record.key for record in log.read(OBSERVATIONS, 0, 0)]
    assert len(set(keys)) == 3
    assert {key.rpartition("@")[0] for key in keys} == {"reading/s@1/a@b"}


def test_every_time_that_is_accepted_is_the_time_of_its_record() -> None:
    log = MemoryLog(partitions=1)
    for time in ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000999Z", "1969-12-31T23:59:59.999Z"):
        with pytest.raises(MalformedObservation, match="time"):
            read(1, f'"{time}"')
    asyncio.run(ObservationRecorder(log).record([read(1, '"1970-01-01T00:00:00.001Z"')]))
    assert next(log.read(OBSERVATIONS, 0, 0)).timestamp_ms == 1


class Held(MemoryLog):
    """Stores nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[tuple[Future[int], Callable[[], int]]] = []

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        stored: Future[int] = Future()
        self.pending.append((stored, super().submit(entry, partition).result))
        return stored


def test_it_returns_when_the_last_is_stored_and_raises_when_one_is_not() -> None:
    async def scenario(failing: bool) -> None:
        log = Held()
        recording = asyncio.create_task(ObservationRecorder(log).record([read(1), read(2)]))
        await asyncio.sleep(0)
        (first, at), (second, _) = log.pending
        first.set_result(at())
        await asyncio.sleep(0)
        assert not recording.done()
        if failing:
            second.set_exception(LogUnavailable("appending", "no broker"))
            with pytest.raises(LogUnavailable):
                await recording
        else:
            second.set_result(7)
            assert [record.offset for record in await recording] == [0, 7]

    asyncio.run(scenario(failing=False))
    asyncio.run(scenario(failing=True))
